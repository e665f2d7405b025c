"""PDGD and PDPGD: linear models, the multiplier's path, scale-freedom, counts and refusals."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from closed_form.linear import Linear, random_problem

from almakit.attacks.pdgd import PDGD, PDPGD


def test_l0_of_a_model_with_one_strong_value() -> None:
    """Value 3 alone can turn the decision; every other can hardly help."""
    weight = torch.full((2, 12), 0.01)
    weight[0] *= -1
    weight[1, 3], weight[0, 3] = 2.0, -2.0
    x = torch.full((2, 12), 0.2)
    model = Linear(weight, torch.tensor([2.0, 0.0]))
    result = PDPGD(distance="l0")(model, x, torch.tensor([0, 0]))
    assert result.distances.tolist() == [1.0, 1.0]
    assert bool(((result.adversarials - x).abs().argmax(1) == 3).all())


@pytest.mark.parametrize(
    "attack", [PDGD(steps=40), PDPGD(distance="linf", steps=40), PDPGD(distance="l1", steps=40)], ids=repr
)
def test_the_scale_of_the_logits_does_not_matter(attack: PDGD | PDPGD) -> None:
    model, x, labels = random_problem(4, 4, (20,), dtype=torch.float64)
    large = Linear(256 * model.weight, 256 * model.bias)
    # Only the 1e-8 that keeps Adam's division finite knows the scale, and ``unit`` takes it out before.
    assert torch.allclose(attack(model, x, labels).distances, attack(large, x, labels).distances, rtol=1e-6)


def test_the_multiplier_follows_the_sign_of_the_margin() -> None:
    model, x, labels = random_problem(1, 3, (20,))
    notes: list[dict[str, Any]] = []
    PDPGD(steps=30, dual_rate=0.2)(model, x, labels, trace=notes.append)
    assert len(notes) == 29
    assert torch.allclose(notes[0]["ratio"], torch.tensor(math.log(2.0)))
    for step, (before, after) in enumerate(itertools.pairwise(notes)):
        change = 0.2 * (1 - 0.9 * step / 29)
        clear = before["margin"].abs() > 1e-3
        assert torch.allclose(
            (after["ratio"] - before["ratio"])[clear], change * before["margin"].sign()[clear], atol=1e-5
        )
