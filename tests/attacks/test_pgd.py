"""PGD: the radius it holds, its directions, and linear models where one run is enough."""

from __future__ import annotations

import pytest
import torch
from attacks.small_problem import LABELS, MODEL, SECOND, X, fools
from closed_form.linear import random_problem, smallest

from almakit import attacks
from almakit.attacks.pgd import PGD
from almakit.errors import AlmakitError

NORM = {"l1": 1.0, "l2": 2.0, "linf": float("inf")}


@pytest.mark.parametrize(("distance", "radius"), [("l1", 8.0), ("l2", 1.2), ("linf", 0.2)])
@pytest.mark.parametrize("loss", ["ce", "dlr", "margin"])
def test_successes_hold_the_radius(distance: str, radius: float, loss: str) -> None:
    result = PGD(distance=distance, epsilon=radius, steps=30, loss=loss)(MODEL, X, LABELS)
    assert result.success_rate == 1 and bool(fools(result.adversarials).all())
    assert bool((result.distances <= radius * (1 + 1e-6)).all())


@pytest.mark.parametrize("distance", NORM)
def test_rounding_does_not_push_points_out_of_small_balls(distance: str) -> None:
    """In float32 the rounding of x + delta is 6e-8 per pixel: far more than 1e-6 of a small radius."""
    model, x, labels = random_problem(0, 8, (3, 16, 16), 2, shrink=1e-3)
    optimum = smallest(model, x, labels, NORM[distance])
    epsilon = 3 * float(optimum.median())
    result = PGD(distance=distance, epsilon=epsilon, steps=30)(model, x, labels)
    found = result.status == 1
    assert int(found.sum()) >= 3 and bool((result.distances[found] <= epsilon * (1 + 1e-6)).all())


@pytest.mark.parametrize("distance", ["l2", "linf"])
def test_a_linear_model_falls_when_the_radius_exceeds_the_optimum(distance: str) -> None:
    model, x, labels = random_problem(4, 4, (3, 8, 8), 2)
    optimum = smallest(model, x, labels, NORM[distance])
    for row in range(4):
        for factor, expected in ((0.98, False), (1.05, True)):
            result = PGD(distance=distance, epsilon=factor * float(optimum[row]), steps=60)(
                model, x[row : row + 1], labels[row : row + 1]
            )
            assert bool(result.success[0]) == expected


def test_counts_and_restarts() -> None:
    lost = PGD(distance="l2", epsilon=1e-3, steps=10, restarts=3)(MODEL, X, LABELS)
    assert (
        bool((lost.forwards == 1 + 3 * 11).all()) and bool((lost.backwards == 3 * 10).all()) and lost.success_rate == 0
    )
    assert bool(torch.isinf(lost.distances).all()) and torch.equal(lost.adversarials, X)


def test_a_sparse_step_has_unit_length_and_leaves_pixels_at_their_bound() -> None:
    slope = torch.tensor([[5.0, -4.0, 3.0, 0.1]])
    low, high = torch.full_like(slope, -0.5), torch.tensor([[0.0, 0.5, 0.5, 0.5]])
    step = PGD(distance="l1", epsilon=1.0, share=0.5)._direction(slope, torch.zeros_like(slope), low, high, 1.0)
    assert step.tolist() == [[0.0, -0.5, 0.5, 0.0]]


def test_targets_texts_and_refusals() -> None:
    result = PGD(distance="l2", epsilon=1.5, steps=40)(MODEL, X, LABELS, SECOND)
    assert result.success_rate > 0.5 and bool((MODEL(result.adversarials).argmax(1) == SECOND)[result.success].all())
    assert attacks.get("pgd(epsilon=0.3, rate=0.1)") == PGD(epsilon=0.3, rate=0.1)
    with pytest.raises(AlmakitError, match=r"search\(attack=pgd\(...\)\)"):
        PGD()(MODEL, X, LABELS)
    with pytest.raises(AlmakitError, match=r"share=0: it must be in \(0, 1\]"):
        PGD(share=0)
    with pytest.raises(AlmakitError, match="choose one of ce, dlr, margin"):
        PGD(loss="targeted-dlr")
