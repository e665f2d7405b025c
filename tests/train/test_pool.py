"""The pool of benchmarks/pool: its halves are on record, every network is the one its recipe made, and sealed ones do
not open by accident."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from torch import nn

from almakit import data, train
from almakit.errors import BadInput, BadModel
from almakit.models.classifier import state_sha256
from almakit.models.zoo import Entry, build
from almakit.train.loop import settled
from benchmarks.pool import networks as pool
from benchmarks.pool.architectures import plain

HERE = pool.HERE


def test_the_halves_are_those_that_were_drawn() -> None:
    halves, recorded = pool.halves(), json.loads((HERE / "split.json").read_text())
    assert {half: halves[half] for half in ("choosing", "sealed")} == pool.draw() and recorded["seed"] == pool.seed()
    assert sorted(halves["choosing"] + halves["sealed"]) == sorted(pool.FIRST)
    assert {half: halves[half] for half in ("choosing-2", "sealed-2")} == pool.draw_pairs()
    assert recorded["pairs_seed"] == pool.seed(pool.PAIRS)
    assert halves["fresh"] == sorted(pool.FRESH) and pool.POOL == pool.FIRST | pool.FRESH | pool.PAIRS
    for names in halves.values():
        assert len(names) >= 4
        assert {pool.POOL[name].entry.dataset for name in names} == {"mnist", "cifar10"}


@pytest.mark.parametrize("name", pool.POOL)
@pytest.mark.shared_data
def test_every_network_is_the_one_its_recipe_made(name: str) -> None:
    network, log = pool.POOL[name], pool.log(name)
    assert log["recipe"] == asdict(settled(network.recipe, network.entry)) and log["architecture"] == str(
        build(network.entry)
    )
    model = pool.load(name, sealed=True)
    # Batch norm's counters are not part of the file.
    state = {key: value for key, value in model.network.state_dict().items() if "num_batches" not in key}
    assert state_sha256(state) == log["weights_sha256"]
    x, labels = pool.images(name, pool.FEW[network.entry.dataset])
    assert len(x) == 200
    # Rounding differs between machines and may decide an image.
    assert round(200 * train.accuracy(model, x, labels)) == pytest.approx(log["few_right"], abs=1)


def test_the_readme_has_the_table_of_the_logs() -> None:
    assert "\n".join(pool.rows()) in (HERE / "README.md").read_text(encoding="utf-8")


def test_a_sealed_network_opens_only_when_asked_to() -> None:
    for half in ("sealed", "fresh", "sealed-2"):
        with pytest.raises(BadInput, match="is sealed"):
            pool.load(pool.halves()[half][0])
    with pytest.raises(BadInput, match="no network 'mnist-none' in the pool"):
        pool.load("mnist-none")


def test_altered_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(HERE, tmp_path / "pool", ignore=shutil.ignore_patterns("__pycache__", ".cache"))
    monkeypatch.setattr(pool, "HERE", tmp_path / "pool")
    name = pool.halves()["choosing"][-1]
    weights = tmp_path / "pool" / "weights" / f"{name}.safetensors"
    state = load_file(weights)
    next(iter(state.values())).view(-1)[0] += 1e-3
    save_file(state, weights)
    with pytest.raises(BadModel, match="not those of its log"):
        pool.load(name)


def test_plain_networks_have_the_layers_they_are_asked_for() -> None:
    network = plain((3, 31, 32), "4 pool 6/2", (7,), nn.Tanh, classes=5)
    assert " ".join(type(layer).__name__ for layer in network) == (
        "Conv2d Tanh MaxPool2d Conv2d Tanh Flatten Linear Tanh Linear"
    )
    assert network(torch.zeros(2, 3, 31, 32)).shape == (2, 5)
    assert [type(layer).__name__ for layer in plain((1, 4, 4))] == ["Flatten", "Linear"]
    for wrong in ("4 avg", "0", "4/3", "-2"):
        with pytest.raises(BadInput, match="is no layer"):
            plain((1, 8, 8), wrong)


def test_a_network_outside_the_zoo_is_trained_and_measured_on_the_images_that_are_given() -> None:
    entry = Entry("narrow", lambda: plain((1, 28, 28), "", (16,)), "a test's", "mnist", (1, 28, 28))
    recipe = train.Recipe("narrow", kind="pgd", epochs=1, batch_size=32, options={"radius": 2 / 255, "steps": 2})
    seen = data.load("mnist", split="train", limit=40)
    trained = train.train(recipe, entry=entry, limit=256, test=seen)
    assert trained.log["test_images"] == trained.log["measured_images"] == 40
    assert trained.log["epsilon"] == 2 / 255
    assert trained.log["clean_accuracy"] == round(100 * train.accuracy(trained.model, *seen.tensors()), 3)
    assert trained.model.name == "narrow" and trained.model.network[1].out_features == 16
    with pytest.raises(BadInput, match="no architecture called 'narrow'"):
        train.train(recipe)
