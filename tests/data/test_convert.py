"""Conversions from what sources deliver, on files of the same form; nothing but arrays is ever unpickled."""

from __future__ import annotations

import io
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import load as load_safetensors

from almakit.data import convert
from almakit.errors import Unavailable

RNG = np.random.default_rng(0)


def test_a_cifar_batch_comes_out_of_its_picture(tmp_path: Path) -> None:
    images = RNG.integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    Image.fromarray(images.reshape(4, 1024, 3)).save(tmp_path / "batch.png")
    (tmp_path / "labels.json").write_text(json.dumps([9, 9, 1, 2, 3, 4]))
    rows = np.frombuffer(
        convert.cifar_batch(tmp_path / "batch.png", tmp_path / "labels.json", first="2"), dtype=np.uint8
    ).reshape(4, 3073)
    assert rows[:, 0].tolist() == [1, 2, 3, 4]
    assert (rows[:, 1:].reshape(4, 3, 32, 32) == images.transpose(0, 3, 1, 2)).all()
    with np.load(io.BytesIO(convert.cifar_first(rows.tobytes(), 2))) as first:
        assert (first["x"] == images[:2]).all()
        assert first["y"].tolist() == [1, 2]


def test_alexnet_comes_out_of_flax(tmp_path: Path) -> None:
    layers = {
        f"Conv_{n}": {"kernel": RNG.random((3, 2, 4, 5), dtype=np.float32), "bias": RNG.random(5, dtype=np.float32)}
        for n in range(5)
    }
    (tmp_path / "alexnet.ckpt").write_bytes(pickle.dumps({"AlexNet_0": layers, "other": 1}, protocol=3))
    tensors = load_safetensors(convert.alexnet_of_flax(tmp_path / "alexnet.ckpt"))
    assert sorted(tensors) == sorted(f"features.{n}.{part}" for n in (0, 3, 6, 8, 10) for part in ("weight", "bias"))
    assert tensors["features.8.weight"].shape == (5, 4, 3, 2)
    assert tensors["features.8.weight"][1, 2, 0, 1] == layers["Conv_3"]["kernel"][0, 1, 2, 1]


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("evil-was-here",)


def test_code_in_a_pickle_never_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.ckpt").write_bytes(pickle.dumps({"AlexNet_0": Evil()}))
    with pytest.raises(Unavailable, match=r"wants to load \w+\.mkdir"):
        convert.alexnet_of_flax(tmp_path / "evil.ckpt")
    torch.save({"weight": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(pickle.UnpicklingError):
        convert.checkpoint(tmp_path / "evil.pt")
    assert not (tmp_path / "evil-was-here").exists()


@pytest.mark.parametrize("prefix", ["", "module.", "model.", "module.model."])
@pytest.mark.parametrize(
    "wrap", [lambda state: state, lambda state: {"state_dict": state, "epoch": 3}, lambda state: {"model": [state]}]
)
def test_checkpoints_lose_their_wrapping(tmp_path: Path, prefix: str, wrap: object) -> None:
    state = {
        f"{prefix}a.weight": torch.randn(2, 3, dtype=torch.float64),
        f"{prefix}bn.num_batches_tracked": torch.tensor(7),
    }
    torch.save(wrap(state), tmp_path / "net.pt")  # type: ignore[operator]
    tensors = load_safetensors(convert.checkpoint(tmp_path / "net.pt"))
    assert list(tensors) == ["a.weight"]
    assert tensors["a.weight"].dtype == np.float32
    np.testing.assert_allclose(tensors["a.weight"], state[f"{prefix}a.weight"].numpy(), rtol=1e-6)


def test_a_checkpoint_without_weights_is_a_sentence() -> None:
    with pytest.raises(Unavailable, match="no dictionary of weights"):
        convert.state_dict_of([1, 2, 3])
