"""FAB against its algorithm in a box too wide to matter, against exact optima in one that does, and its counts."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from closed_form.linear import Linear
from laws.models import RowWise
from torch import Tensor

from almakit import Status, attacks
from almakit.attacks.fab import FAB
from almakit.core import Box

SHAPE = (3, 4, 4)
X = torch.rand(4, *SHAPE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
MODEL = RowWise(SHAPE).double().eval()
LABELS = MODEL(X).argmax(1)
CLASSES = MODEL(X).shape[1]
NORMS = {"l1": 1.0, "l2": 2.0, "linf": math.inf}
each_norm = pytest.mark.parametrize("distance", NORMS)


def shortest(w: Tensor, need: float, norm: float) -> Tensor:
    """The shortest d with w.d = need and no box, from its formula."""
    if norm == 2:
        return need * w / w.square().sum()
    if norm == 1:
        d = torch.zeros_like(w)
        at = w.abs().argmax()
        d[at] = need / w[at]
        return d
    return need * w.sign() / w.abs().sum()


def by_the_book(image: Tensor, label: int, norm: float, steps: int) -> list[float]:
    """Algorithm 1 for one image (1, ...) with no shared code: the distance of each x_i+1 before the step back."""
    point, seen = image.flatten().clone(), []
    home = image.flatten()
    for _ in range(steps):
        leaf = point.clone().requires_grad_(True)
        logits = MODEL(leaf.reshape(image.shape))[0]
        planes = []
        for k in range(CLASSES):
            if k != label:
                (w,) = torch.autograd.grad(logits[k] - logits[label], leaf, retain_graph=True)
                need = float((logits[label] - logits[k]).detach())
                planes.append((float(shortest(w, need, norm).norm(p=norm)), k, w, need))
        _, _, w, need = min(planes, key=lambda plane: plane[0])
        here, there = shortest(w, need, norm), shortest(w, need + float(w @ (point - home)), norm)
        lengths = float(here.norm(p=norm)), float(there.norm(p=norm))
        weight = min(lengths[0] / (lengths[0] + lengths[1]), 0.1)
        point = (1 - weight) * (point + 1.05 * here) + weight * (home + 1.05 * there)
        seen.append(float((point - home).norm(p=norm)))
        if int(MODEL(point.reshape(image.shape)).argmax()) != label:
            point = home + 0.9 * (point - home)
    return seen


@each_norm
def test_the_iterates_are_those_of_the_algorithm(distance: str) -> None:
    notes: list[dict[str, Any]] = []
    FAB(distance=distance, steps=12, search=0)(MODEL, X, LABELS, box=Box(-1e3, 1e3), trace=notes.append)
    ours = torch.stack([note["distance"] for note in notes])
    for row in range(len(X)):
        book = torch.tensor(by_the_book(X[row : row + 1], int(LABELS[row]), NORMS[distance], 12), dtype=torch.float64)
        # The plane lies the decision's tolerance beyond the boundary.
        assert torch.allclose(ours[:, row], book, rtol=1e-6), (ours[:, row], book)


@pytest.mark.parametrize(
    ("text", "forwards", "backwards"),
    [
        ("fab(steps=10)", 21, 9 * (CLASSES - 1)),
        ("fab(steps=10, search=0)", 20, 10 * (CLASSES - 1)),
        ("fab(steps=2)", 5, CLASSES - 1),
        ("fab(steps=10, candidates=3)", 21, 9 * 2),
        ("fab(steps=10, restarts=3)", 61, 29 * (CLASSES - 1)),
        ("fab(steps=10, targeted_classes=3)", 61, 29),
        ("fab(steps=10, targeted_classes=9)", 20 * (CLASSES - 1) + 1, 10 * (CLASSES - 1) - 1),
        ("fab(steps=10, targeted_classes=2, search=0)", 40, 20),
    ],
)
def test_counts(text: str, forwards: int, backwards: int) -> None:
    result = attacks.get(text)(MODEL, X, LABELS)
    # Where nothing was found there is nothing to search along.
    found = result.status == Status.SUCCESS
    assert bool(found.any()) and (bool(found.all()) or "steps=2" in text)
    assert result.forwards.tolist() == [
        forwards if good else 2 for good in found.tolist()
    ] and result.backwards.tolist() == [backwards] * len(X)


@each_norm
def test_the_final_search_only_shortens(distance: str) -> None:
    without = FAB(distance=distance, steps=5, search=0)(MODEL, X, LABELS)
    searched = FAB(distance=distance, steps=6, search=3)(MODEL, X, LABELS)
    assert bool((searched.distances <= without.distances).all())
    assert int((searched.distances < without.distances).sum()) >= 3


@pytest.mark.parametrize("targeted_classes", [None, 9])
def test_a_plane_that_misses_the_box_is_left_alone(targeted_classes: int | None) -> None:
    """Without the box class 1 is nearer, but in it only class 2 can be reached."""
    weight = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 1.0]])
    model = Linear(weight, torch.tensor([0.0, -4.5, -0.9]))
    x, labels = torch.tensor([[0.9, 0.2]]), torch.tensor([0])
    result = FAB(steps=20, targeted_classes=targeted_classes)(model, x, labels)
    assert float(result.distances) == pytest.approx(0.7, rel=1e-3)


def test_user_targets_take_one_boundary() -> None:
    targets = MODEL(X).argsort(1)[:, -3]
    result = FAB(steps=30, targeted_classes=9)(MODEL, X, LABELS, targets)
    assert bool((result.status == Status.SUCCESS).all()) and result.backwards.tolist() == [29] * len(X)
    assert torch.equal(MODEL(result.adversarials).argmax(1), targets)


def test_restarts_belong_to_the_image_and_only_help() -> None:
    once, thrice = (
        FAB(steps=20, search=0)(MODEL, X, LABELS, seed=1),
        FAB(steps=20, search=0, restarts=3)(MODEL, X, LABELS, seed=1),
    )
    assert bool((thrice.distances <= once.distances).all()) and bool((thrice.distances < once.distances).any())
    alone = FAB(steps=20, search=0, restarts=3)(MODEL, X[2:3], LABELS[2:3], seed=1)
    assert float(alone.distances) == float(thrice.distances[2])


def test_candidates_that_are_not_numbers_are_left_behind() -> None:
    def model(x: Tensor) -> Tensor:
        logits = MODEL(x)
        far = (x - X[0]).flatten(1).abs().amax(1) > 0.3
        return torch.where(far.unsqueeze(1) & (torch.arange(CLASSES) == 0), torch.nan, logits)

    result = FAB(distance="linf", steps=20, eta=3.0)(model, X[:1], LABELS[:1])
    assert int(result.status) == Status.SUCCESS and float(result.distances) < 0.3
