"""The training loop: reproducible to the bit, no trace on the caller's random state, and it learns."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from almakit import data, models, train
from almakit.cli.main import main
from almakit.models.zoo import ZOO
from almakit.train.loop import shifted

WEIGHTS = Path(models.__file__).parent / "zoo" / "weights"
SHORT = train.Recipe("mnist/smallcnn-tiny", epochs=2, batch_size=32, seed=3)


def test_training_is_the_same_every_time_and_depends_on_the_seed() -> None:
    torch.manual_seed(11)
    before = torch.get_rng_state()
    first = train.train(SHORT, limit=64, test_limit=64)
    assert torch.equal(torch.get_rng_state(), before), "the caller's random state is left alone"
    torch.manual_seed(12)
    again = train.train(SHORT, limit=64, test_limit=64)
    other = train.train(replace(SHORT, seed=4), limit=64, test_limit=64)
    assert first.log["weights_sha256"] == again.log["weights_sha256"] != other.log["weights_sha256"]
    assert not first.model.training and not any(parameter.requires_grad for parameter in first.model.parameters())


def test_it_learns_and_what_is_saved_can_be_loaded(tmp_path: Path) -> None:
    lines: list[dict[str, object]] = []
    recipe = replace(SHORT, epochs=3, batch_size=16, learning_rate=2e-3, shift=0, seed=4)
    trained = train.train(recipe, limit=1500, test_limit=500, trace=lines.append)
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert trained.log["clean_accuracy"] > 80
    path = train.save(trained, tmp_path / "out")
    assert {entry.suffix for entry in path.parent.iterdir()} == {".json", ".safetensors"}
    log = json.loads(path.with_suffix(".json").read_text())
    assert log["recipe"]["model"] == "mnist/smallcnn-tiny" and log["training_images"] == 1500
    loaded = models.load(f"mnist/smallcnn-tiny@{path}")
    assert loaded.weights_sha256 == log["weights_sha256"]
    x, labels = data.load("mnist", limit=500).tensors()
    assert 100 * train.accuracy(loaded, x, labels) == pytest.approx(log["clean_accuracy"])


def test_the_shipped_networks_have_recipes() -> None:
    for entry in (entry for entry in ZOO.values() if entry.shipped):
        log = json.loads((WEIGHTS / str(entry.shipped)).with_suffix(".json").read_text())
        assert train.Recipe(**log["recipe"]) == train.recipes()[entry.name]


def test_images_move_by_whole_pixels() -> None:
    x = torch.zeros(200, 2, 7, 7)
    x[:, 0, 3, 3], x[:, 1, 3, 4] = 1.0, 2.0
    moved = shifted(x, 2, torch.Generator().manual_seed(0))
    rows, columns = torch.nonzero(moved[:, 0])[:, 1], torch.nonzero(moved[:, 0])[:, 2]
    assert len(rows) == 200 and set(rows.tolist()) == set(columns.tolist()) == {1, 2, 3, 4, 5}
    # Both channels move together.
    assert torch.equal(torch.nonzero(moved[:, 1])[:, 2], columns + 1)
    assert shifted(x, 0, torch.Generator()) is x


@pytest.mark.slow
def test_the_ddn_network_of_the_package_comes_out_again(tmp_path: Path) -> None:
    assert main(["train", "mnist/smallcnn-tiny-ddn", "--out", str(tmp_path), "--quiet"]) == 0
    again = json.loads((tmp_path / "mnist-smallcnn-tiny-ddn.json").read_text())
    assert again["clean_accuracy"] == pytest.approx(ZOO["mnist/smallcnn-tiny-ddn"].accuracy, abs=1.0)
    shipped = json.loads((WEIGHTS / "mnist-smallcnn-tiny-ddn.json").read_text())
    assert again["pgd_accuracy"] == pytest.approx(shipped["pgd_accuracy"], abs=3.0)
