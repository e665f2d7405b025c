"""The inner problem of Brendel & Bethge against a general solver, and at its corners."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from almakit.core.trust_region import nearest_step

NORMS = [1.0, 2.0, float("inf")]


def case(seed: int, n: int = 8) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    x, x0 = uniform(1, n), uniform(1, n)
    b = torch.randn(1, n, generator=generator, dtype=torch.float64)
    return x0 - x, b, 0.6 * uniform(1) - 0.3, 0.05 + 0.6 * uniform(1), -x, 1 - x


def by_solver(home: Tensor, b: Tensor, c: Tensor, r: Tensor, low: Tensor, high: Tensor, norm: float) -> float:
    """The least |d - home|_norm, in epigraph form."""
    n, h, normal = home.shape[1], home[0].numpy(), b[0].numpy()
    extra = {1.0: n, 2.0: 1, float("inf"): 1}[norm]
    rules = [
        {"type": "ineq", "fun": lambda v: float(c) - normal @ v[:n]},
        {"type": "ineq", "fun": lambda v: float(r) ** 2 - v[:n] @ v[:n]},
    ]
    if norm == 2.0:
        rules.append({"type": "ineq", "fun": lambda v: v[n] - ((v[:n] - h) ** 2).sum()})
    else:
        rules += [{"type": "ineq", "fun": lambda v: v[n:] - (v[:n] - h)}, {"type": "ineq", "fun": lambda v: v[n:] + (v[:n] - h)}]
    bounds = [*zip(low[0].tolist(), high[0].tolist(), strict=True), *[(0, None)] * extra]
    values = []
    for scale in (0.0, 0.2):
        start = np.concatenate([scale * h, np.full(extra, 2.0)])
        answer = minimize(lambda v: v[n:].sum(), start, bounds=bounds, constraints=rules, method="SLSQP", options={"ftol": 1e-13, "maxiter": 800})
        if answer.success:
            values.append(float(answer.fun) ** (0.5 if norm == 2.0 else 1.0))
    return min(values, default=float("nan"))


@pytest.mark.parametrize("norm", NORMS)
def test_it_finds_the_optimum(norm: float) -> None:
    solved = 0
    for seed in range(7):
        home, b, c, r, low, high = case(seed)
        d = nearest_step(home, b, c, r, low, high, norm, rounds=40, newton=30)
        assert bool((d >= low).all()) and bool((d <= high).all()) and float(d.norm()) <= float(r) * 1.002
        best = by_solver(home, b, c, r, low, high, norm)
        if float((b * d).sum()) > float(c) + 1e-8 or np.isnan(best):
            continue
        solved += 1
        assert float(torch.linalg.vector_norm(d - home, ord=norm)) == pytest.approx(best, rel=2e-3, abs=1e-6)
    assert solved >= 4


@pytest.mark.parametrize("norm", NORMS)
def test_few_rounds_are_nearly_as_good(norm: float) -> None:
    home, b, c, r, low, high = (torch.cat(parts) for parts in zip(*(case(seed, 60) for seed in range(30)), strict=True))
    exact = nearest_step(home, b, c, r, low, high, norm, rounds=40, newton=30)
    quick = nearest_step(home, b, c, r, low, high, norm)
    sizes = [torch.linalg.vector_norm((d - home).flatten(1), ord=norm, dim=1) for d in (quick, exact)]
    assert bool((sizes[0] <= 1.01 * sizes[1] + 1e-6).all())
    assert bool(((b * quick).sum(1) <= torch.maximum((b * exact).sum(1), c) + 1e-3 * b.norm(dim=1)).all())


@pytest.mark.parametrize("norm", NORMS)
def test_a_half_space_out_of_reach_is_approached_as_far_as_possible(norm: float) -> None:
    home, b, _, _, low, high = case(3, 20)
    r = torch.tensor([0.1], dtype=torch.float64)
    d = nearest_step(home, b, torch.tensor([-100.0], dtype=torch.float64), r, low, high, norm)
    assert float(d.norm()) == pytest.approx(0.1, rel=1e-2)
    straight = torch.minimum(torch.maximum(-b / b.norm() * 0.1, low), high)
    assert float((b * d).sum()) <= float((b * straight).sum()) * 0.98


@pytest.mark.parametrize("norm", NORMS)
def test_a_zero_normal_and_a_zero_radius_do_no_harm(norm: float) -> None:
    home, b, c, r, low, high = case(1)
    assert bool(torch.isfinite(nearest_step(home, torch.zeros_like(b), c, r, low, high, norm)).all())
    still = nearest_step(home, b, c.abs(), torch.zeros_like(r), low, high, norm)
    assert float(still.abs().max()) < 1e-6


@pytest.mark.parametrize("norm", NORMS)
def test_from_the_clean_image_itself_it_goes_out_to_the_half_space(norm: float) -> None:
    _, b, _, _, low, high = case(4, 20)
    home = torch.zeros_like(b)
    c, r = torch.tensor([-0.2], dtype=torch.float64), torch.tensor([0.5], dtype=torch.float64)
    d = nearest_step(home, b, c, r, low, high, norm)
    assert float((b * d).sum()) <= -0.2 * 0.999
    best = by_solver(home, b, c, r, low, high, norm)
    assert float(torch.linalg.vector_norm(d, ord=norm)) == pytest.approx(best, rel=1e-2)
