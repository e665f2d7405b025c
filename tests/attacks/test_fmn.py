"""FMN: the flaw of the original and its mending, exact first radii, the l0 count, counts and refusals."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from closed_form.linear import Linear, random_problem, smallest

from almakit.attacks.fmn import FMN

NORMS = {"l1": 1.0, "l2": 2.0, "linf": math.inf}
each_norm = pytest.mark.parametrize("distance", NORMS)


def test_the_original_stops_inside_the_boundary_and_an_overshoot_mends_it() -> None:
    """A margin that flattens towards its zero: each linearised distance leads two thirds of the way there, ever closer,
    never across."""
    weight = torch.randn(24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = torch.full((4, 24), 0.5, dtype=torch.float64)

    def model(y: torch.Tensor) -> torch.Tensor:
        level = ((y - 0.5) @ weight / weight.norm() - 0.5) / 0.5
        margin = torch.where(level < 0, level.abs() ** 1.5, -0.1 * level)
        return torch.stack([margin, -margin], 1)

    labels = torch.zeros(4, dtype=torch.long)
    notes: list[dict[str, Any]] = []
    original = FMN(adaptive=False, overshoot=0, steps=25)(model, x, labels, trace=notes.append)
    assert not original.success.any()
    assert bool((notes[-1]["margin"] > 0).all()) and bool(((notes[-1]["distance"] - 0.5).abs() < 1e-9).all())
    for mended in (FMN(adaptive=False, steps=25), FMN(steps=25)):
        result = mended(model, x, labels)
        assert bool(result.success.all()) and bool((result.distances < 0.51).all())


@each_norm
def test_the_first_radius_is_exact_for_a_linear_model_inside_the_box(distance: str) -> None:
    model, x, labels = random_problem(5, 4, (30,), classes=2, dtype=torch.float64)
    notes: list[dict[str, Any]] = []
    FMN(distance=distance, steps=20, overshoot=0.05)(model, x, labels, trace=notes.append)
    assert torch.allclose(notes[0]["radius"], 1.05 * smallest(model, x, labels, NORMS[distance]), rtol=1e-6)
    for before, after in itertools.pairwise(notes):
        change = after["radius"] / before["radius"] - 1
        assert torch.equal(change < 0, after["success"])
        assert bool((change.abs() <= 0.2 + 1e-9).all()) and bool((change.abs() >= 0.005 - 1e-9).all())


def test_l0_finds_the_fewest_values() -> None:
    """Values 3 and 7 together turn the decision, no single one does, and all the others help little."""
    weight = torch.full((2, 40), 0.01)
    weight[0] *= -1
    for place in (3, 7):
        weight[1, place], weight[0, place] = 1.0, -1.0
    x = torch.full((2, 40), 0.2)
    model = Linear(weight, torch.tensor([4.0, 0.0]))
    result = FMN(distance="l0")(model, x, torch.tensor([0, 0]))
    assert result.distances.tolist() == [2.0, 2.0]
    changed = (result.adversarials != x).nonzero()
    assert changed.tolist() == [[0, 3], [0, 7], [1, 3], [1, 7]]
