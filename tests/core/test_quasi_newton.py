"""The quasi-Newton solver of the walk's subproblem: the closed form, box, mask and half-space, and a memory that ends
with its walk."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from almakit.core import Box
from almakit.distances.base import Bound, resolve
from almakit.optim import QuasiNewton

RANDOM = torch.Generator().manual_seed(0)
PRICE = torch.exp(3 * torch.randn(1, 6, 6, generator=RANDOM, dtype=torch.float64))
B = torch.randn(4, 1, 6, 6, generator=RANDOM, dtype=torch.float64)


def priced(x: Tensor, y: Tensor) -> Tensor:
    """A quadratic whose curvatures differ by a factor of more than a hundred."""
    return ((y - x).square() * PRICE).flatten(1).sum(1)


def bound(x: Tensor) -> Bound:
    return resolve(priced).bind(x)


def walked(solver: QuasiNewton, box: Box, level: Tensor, steps: int) -> Tensor:
    """``steps`` of a walk along a fixed half-space b.delta <= level, from the shortest way to it in l2."""
    delta = B * (level / B.flatten(1).square().sum(1)).view(-1, 1, 1, 1)
    delta = box.project_continuous(solver.x + delta, solver.x) - solver.x
    for number in range(steps):
        fresh = torch.full((len(B),), number == 0)
        radius = 0.5 * delta.flatten(1).norm(dim=1)
        delta = delta + solver.step(delta, B, level - (B * delta).flatten(1).sum(1), radius, fresh)
    return delta


def test_it_ends_at_the_closed_form_with_few_gradients() -> None:
    x = torch.full((4, 1, 6, 6), 0.5, dtype=torch.float64)
    level = torch.full((4,), -0.05, dtype=torch.float64)
    delta = walked(QuasiNewton(bound(x), Box(-100, 100), 4, 8, 0.95), Box(-100, 100), level, 20)
    exact = level.square() / (B.square() / PRICE).flatten(1).sum(1)
    assert torch.allclose((B * delta).flatten(1).sum(1), level)
    assert bool((priced(x, x + delta) < 1.001 * exact).all())


def test_kinks_do_not_spoil_it() -> None:
    """l1 with prices that differ by a factor of more than ten: the optimum spends everything on one value, and the
    gradients change only where another one crosses zero."""
    x, level = torch.full((4, 1, 6, 6), 0.5, dtype=torch.float64), torch.full((4,), -0.05, dtype=torch.float64)
    price = PRICE.pow(0.25)

    def kinked(x: Tensor, y: Tensor) -> Tensor:
        return ((y - x).abs() * price).flatten(1).sum(1)

    solver = QuasiNewton(resolve(kinked).bind(x), Box(-100, 100), 4, 12, 0.95)
    exact = level.abs() / (B.abs() / price).flatten(1).amax(1)
    ratio = kinked(x, x + walked(solver, Box(-100, 100), level, 100)) / exact
    assert bool((ratio > 0.999).all()) and bool((ratio < 1.05).all()), ratio


def test_neither_the_way_home_nor_the_way_to_the_boundary_is_longer_than_the_radius() -> None:
    """Values that cost little would be changed by far more than the radius, were the metric's way to the boundary taken
    whole."""
    x, radius = torch.full((4, 1, 6, 6), 0.5, dtype=torch.float64), torch.full((4,), 0.1, dtype=torch.float64)
    delta, far = -0.01 * B / PRICE, torch.full((4,), -1e3, dtype=torch.float64)
    step = QuasiNewton(bound(x), Box(-100, 100), 1, 8, 0.95).step(
        delta, B, far, radius, torch.ones(4, dtype=torch.bool)
    )
    assert bool((step.flatten(1).norm(dim=1) <= 2 * radius * (1 + 1e-9)).all())
    assert bool(((B * step).flatten(1).sum(1) < 0).all())


@pytest.mark.parametrize("masked", [False, True])
def test_it_keeps_to_box_and_mask(masked: bool) -> None:
    mask = torch.rand(1, 6, 6, generator=torch.Generator().manual_seed(1)) < 0.7
    x = torch.rand(4, 1, 6, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    box = Box(mask=mask if masked else None)
    delta = walked(QuasiNewton(bound(x), box, 4, 8, 0.95), box, torch.full((4,), -1.0, dtype=torch.float64), 10)
    assert bool(((x + delta >= 0) & (x + delta <= 1)).all())
    assert not masked or bool((delta[:, ~mask] == 0).all())
    assert torch.allclose((B * delta).flatten(1).sum(1), torch.full((4,), -1.0, dtype=torch.float64), atol=1e-6)


def test_an_image_that_begins_again_remembers_nothing() -> None:
    x, level = torch.full((4, 1, 6, 6), 0.5, dtype=torch.float64), torch.full((4,), -0.05, dtype=torch.float64)
    solver, new = (QuasiNewton(bound(x), Box(), 2, 8, 0.95) for _ in range(2))
    walked(solver, Box(), level, 5)
    assert torch.equal(walked(solver, Box(), level, 3), walked(new, Box(), level, 3))


def test_a_slope_that_is_at_hand_is_not_computed_again() -> None:
    x, level = torch.full((4, 1, 6, 6), 0.5, dtype=torch.float64), torch.full((4,), -0.05, dtype=torch.float64)
    delta, fresh, radius = 0.01 * B, torch.ones(4, dtype=torch.bool), torch.ones(4, dtype=torch.float64)
    given, asked = (QuasiNewton(bound(x), Box(), 1, 8, 0.95) for _ in range(2))
    slope = bound(x).value_and_grad(x + delta)[1]
    asked.bound.value_and_grad = None  # type: ignore[method-assign, assignment]
    assert torch.equal(given.step(delta, B, level, radius, fresh), asked.step(delta, B, level, radius, fresh, slope))


@pytest.mark.parametrize("memory", [1, 3])
def test_it_remembers_no_more_than_it_was_told_to(memory: int) -> None:
    x, level = torch.full((4, 1, 6, 6), 0.5, dtype=torch.float64), torch.full((4,), -0.05, dtype=torch.float64)
    solver = QuasiNewton(bound(x), Box(), 2, memory, 0.95)
    walked(solver, Box(), level, 5)
    assert len(solver.pairs) == memory
