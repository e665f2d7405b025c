"""Brendel & Bethge: it runs, it ends at the optimum of linear models, it starts where starting is hard, and it fails
alone."""

from __future__ import annotations

import torch
from attacks.small_problem import LABELS, MODEL, X, traced
from torch import Tensor

from almakit.attacks.bb import BB

NORM = {"l1": 1.0, "l2": 2.0, "linf": float("inf")}
HELD = {"l1": 1.05, "l2": 1.001, "linf": 1.01}


def test_it_follows_the_boundary_inwards() -> None:
    result, notes = traced(BB(steps=40))
    distance = torch.stack([note["distance"] for note in notes])
    assert bool((distance[-1] < distance[0]).all()) and bool((result.distances <= distance[0]).all())
    inside = torch.stack([note["margin"] for note in notes])[-10:]
    assert bool((inside < 0).double().mean() > 0.5), "the overshoot keeps most iterates adversarial"


def test_counts() -> None:
    result = BB(steps=25, bisections=7)(MODEL, X, LABELS)
    starting = result.forwards - 25 - 7
    # The clean pass and the large steps until the first success, each with a backward.
    assert bool((starting >= 2).all()) and bool((starting <= 11).all())
    assert torch.equal(result.backwards, 24 + starting)


def test_where_gradients_are_zero_it_starts_from_random_images() -> None:
    def steps_only(x: Tensor) -> Tensor:
        score = ((x.flatten(1)[:, :4] - 0.5) * 4).round().sum(1)
        return torch.stack([score, -score - 0.5], 1)

    x = X.clone()
    x[:, 0, 0] = 0.95
    labels = torch.zeros(5, dtype=torch.long)
    result = BB(steps=5)(steps_only, x, labels)
    assert (
        bool((steps_only(result.adversarials).argmax(1) != labels)[result.success].all()) and result.success_rate > 0.5
    )
