"""Law 6 for ALMA: linear models with the box, where the smallest perturbation is exact.

Two classes leave one boundary, and there each image is held to the figures wherever its optimum is not below epsilon.
With more classes the nearest boundary may belong to a class that ALMA, following the margin, does not walk towards:
that is a property of the algorithm (the authors' library gives the same ratios on the same problems), so those are held
to the figures in the median, and their worst is on record in ``ratios.py``.
"""

from __future__ import annotations

import pytest
import torch
from closed_form.linear import Linear, random_problem, smallest
from torch import Tensor

from almakit import ALMA

EPSILON = {"l1": 0.5, "l2": 0.1}
NORM = {"l1": 1.0, "l2": 2.0}
# (distance, steps) -> the ratio to the optimum that the project promises.
PROMISED = {("l2", 100): 1.01, ("l1", 100): 1.10, ("l2", 1000): 1.003, ("l1", 1000): 1.03}
SHAPES = [(12,), (6, 6), (3, 5, 5)]


def ratios(
    distance: str, steps: int, model: Linear, x: Tensor, labels: Tensor, targets: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(B,) found over smallest, and (B,) the smallest."""
    result = ALMA(distance=distance, steps=steps)(model, x, labels, targets)
    optimum = smallest(model, x, labels, NORM[distance], targets)
    ratio = result.distances.double() / optimum
    # Not below the optimum, up to rounding: else the optimum would be wrong, or the point not adversarial.
    assert bool((ratio > 1 - 1e-4).all())
    return ratio, optimum


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("batch", "dtype"), [(1, torch.float32), (8, torch.float32), (8, torch.float64)], ids=str)
@pytest.mark.parametrize("distance", ["l2", "l1"])
def test_one_boundary_in_100_steps(distance: str, dtype: torch.dtype, batch: int, shape: tuple[int, ...]) -> None:
    held = 0
    for seed in range(3):
        ratio, optimum = ratios(distance, 100, *random_problem(seed, batch, shape, 2, dtype=dtype))
        far = optimum >= EPSILON[distance]
        held += int(far.sum())
        assert bool((ratio[far] <= PROMISED[distance, 100]).all()), ratio[far]
    assert held >= batch // 3, "too few images have an optimum above epsilon"


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("distance", ["l2", "l1"])
def test_one_boundary_in_1000_steps(distance: str, shape: tuple[int, ...]) -> None:
    ratio, optimum = ratios(distance, 1000, *random_problem(5, 10, shape, 2))
    far = optimum >= EPSILON[distance]
    assert int(far.sum()) >= 3 and bool((ratio[far] <= PROMISED[distance, 1000]).all()), ratio[far]


@pytest.mark.parametrize("classes", [pytest.param(3, marks=pytest.mark.slow), 10])
@pytest.mark.parametrize(("distance", "steps"), PROMISED)
def test_many_boundaries_in_the_median(distance: str, steps: int, classes: int) -> None:
    pooled = []
    for seed, shape in enumerate(SHAPES):
        ratio, optimum = ratios(distance, steps, *random_problem(seed, 16 if steps == 100 else 8, shape, classes))
        pooled.append(ratio[optimum >= EPSILON[distance]])
    together = torch.cat(pooled)
    assert len(together) >= 5 and float(together.median()) <= PROMISED[distance, steps], together


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("distance", ["l2", "l1"])
def test_towards_a_target(distance: str, classes: int) -> None:
    model, x, labels = random_problem(7, 24, (6, 6), classes)
    targets = model(x).argsort(1, descending=True)[:, 1]
    ratio, optimum = ratios(distance, 100, model, x, labels, targets)
    far = optimum >= EPSILON[distance]
    assert int(far.sum()) >= 4 and float(ratio[far].median()) <= PROMISED[distance, 100], ratio[far]
    assert bool(torch.isfinite(ratio).all())
