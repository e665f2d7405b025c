"""The grid is the paper's: every published row has its cell, every text is an attack as almakit writes it, every
network is in the zoo."""

from __future__ import annotations

import csv
from importlib.resources import files

import pytest

from almakit.attacks import get
from almakit.errors import BadInput
from almakit.models.zoo import ZOO
from almakit.paper.grid import DATASETS, SAMPLES, cells, choose, distinct, network_of, networks, published
from almakit.runs.attack_text import text_of

OURS = {"soft-walk", "bb"}
ROWS = list(csv.DictReader(files("almakit").joinpath("paper", "tables.csv").read_text().splitlines()))


@pytest.mark.parametrize("dataset", DATASETS)
def test_every_published_row_has_a_cell_and_every_network_a_name(dataset: str) -> None:
    printed = {(row["distance"], row["attack"], row["budget"]) for row in ROWS if row["dataset"] == dataset}
    known = {(cell.distance, cell.attack, cell.budget) for cell in cells(dataset)}
    assert printed <= known
    assert {attack for _, attack, _ in known - printed} == OURS, "cells of ours that the paper has not"
    models = {row["model"] for row in ROWS if row["dataset"] == dataset} - {"geometric-mean"}
    assert models == {network.model for network in networks(dataset)}
    assert all(network.name in ZOO and ZOO[network.name].dataset == dataset for network in networks(dataset))
    assert len({cell.slug for cell in cells(dataset)}) == len(cells(dataset))


@pytest.mark.parametrize("dataset", DATASETS)
def test_texts_are_canonical_and_have_a_published_row(dataset: str) -> None:
    for cell in cells(dataset):
        attack = get(cell.text)
        assert text_of(attack) == cell.text
        for network in networks(dataset):
            key = (dataset, network.model, cell.distance, cell.attack, cell.budget)
            assert (key not in published()) == (cell.attack in OURS)
        assert cell.budget.replace("x", "×") in cell.title


def test_budgets_of_the_papers_runs() -> None:
    small = {cell.text for cell in choose("mnist", "small")}
    assert "alma(distance=l2, steps=100)" in small and "cw(distance=l2, steps=1000)" in small
    assert not small & {cell.text for cell in choose("mnist", "large")}
    assert len(choose("mnist")) == len(cells("mnist")) == 27 and SAMPLES["mnist"] == 10_000
    assert {cell.attack for cell in choose("mnist", attacks=("ddn", "alma"), distances=("l2",))} == {"ddn", "alma"}


def test_what_the_paper_has_not_is_a_sentence() -> None:
    for arguments, sentence in (
        (("mnist", "both", ("none",)), "have no attack 'none'; they have ead, fab"),
        (("mnist", "both", (), ("lpips",)), "have no distance 'lpips'; they have l1, l2"),
        (("mnist", "small", ("ddn",), ("l1",)), "nothing is left"),
    ):
        with pytest.raises(BadInput, match=sentence):
            choose(*arguments)  # type: ignore[arg-type]


def test_a_users_model_goes_by_the_name_of_its_file_unless_two_have_it() -> None:
    one, other = (network_of("imagenet", f"/home/{who}/photos.py:model") for who in ("ann", "bob"))
    assert distinct([one])[0].label == "photos.py:model" and one.name == "/home/ann/photos.py:model"
    assert [network.label for network in distinct([one, other])] == [one.name, other.name]
    assert network_of("cifar10", "../nets.py:wide@/tmp/best.pt").label == "nets.py:wide@best.pt"
    assert network_of("cifar10", "cifar10/resnet20").label == "cifar10/resnet20"
