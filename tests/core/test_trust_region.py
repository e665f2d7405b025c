"""The subproblem of a walk along the boundary against a general solver, and at its corners."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from almakit.optim import SOLVERS

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
        rules += [
            {"type": "ineq", "fun": lambda v: v[n:] - (v[:n] - h)},
            {"type": "ineq", "fun": lambda v: v[n:] + (v[:n] - h)},
        ]
    bounds = [*zip(low[0].tolist(), high[0].tolist(), strict=True), *[(0, None)] * extra]
    values = []
    for scale in (0.0, 0.2):
        start = np.concatenate([scale * h, np.full(extra, 2.0)])
        answer = minimize(
            lambda v: v[n:].sum(),
            start,
            bounds=bounds,
            constraints=rules,
            method="SLSQP",
            options={"ftol": 1e-13, "maxiter": 800},
        )
        if answer.success:
            values.append(float(answer.fun) ** (0.5 if norm == 2.0 else 1.0))
    return min(values, default=float("nan"))


def solve(
    home: Tensor, b: Tensor, c: Tensor, r: Tensor, low: Tensor, high: Tensor, norm: float, times: int = 1
) -> Tensor:
    """The step after ``times`` calls: in l1 the trust region is kept by feedback from one to the next."""
    # The clean image lies at delta + home; its room in the box is that of the point less delta.
    solver = SOLVERS[norm](low - home, high - home)
    for index in range(times):
        d = solver.step(-home, b, c, r, torch.full((len(home),), index == 0))
    return d


@pytest.mark.parametrize("norm", [1.0, 2.0])
def test_it_finds_the_optimum(norm: float) -> None:
    solved = 0
    for seed in range(7):
        home, b, c, r, low, high = case(seed)
        d = solve(home, b, c, r, low, high, norm, times=60)
        assert bool((d >= low - 1e-9).all()) and bool((d <= high + 1e-9).all())
        best = by_solver(home, b, c, r, low, high, norm)
        if float((b * d).sum()) > float(c) + 1e-3 or float(d.norm()) > 1.02 * float(r) or np.isnan(best):
            continue
        solved += 1
        assert float(torch.linalg.vector_norm(d - home, ord=norm)) == pytest.approx(best, rel=2e-2, abs=1e-3)
    assert solved >= 4


def test_in_linf_without_a_trust_region_it_is_the_smallest_ball() -> None:
    solved = 0
    for seed in range(7):
        home, b, c, _, low, high = case(seed)
        r = home.norm(dim=1) * 10
        best = by_solver(home, b, c, torch.tensor([1e3]), low, high, float("inf"))
        d = solve(home, b, c, r, low, high, float("inf"))
        if float((b * d).sum()) > float(c) + 1e-6 or np.isnan(best):
            continue
        solved += 1
        # The radius is bisected ten times between nothing and what ten times the distance allows.
        assert float((d - home).abs().max()) <= best + 0.2
    assert solved >= 4


@pytest.mark.parametrize("norm", NORMS)
def test_the_half_space_is_met_as_far_as_the_radius_goes(norm: float) -> None:
    home, b, c, r, low, high = (torch.cat(parts) for parts in zip(*(case(seed, 60) for seed in range(30)), strict=True))
    d = solve(home, b, c, r, low, high, norm, times=5)
    assert bool((d >= low - 1e-9).all()) and bool((d <= high + 1e-9).all())
    need = torch.maximum(c, -r * b.norm(dim=1))
    met = (b * d).sum(1) <= need + 0.02 * r * b.norm(dim=1)
    assert int(met.sum()) >= 27, "the box may stop a few"


@pytest.mark.parametrize("norm", NORMS)
def test_a_zero_normal_and_a_zero_radius_do_no_harm(norm: float) -> None:
    home, b, c, r, low, high = case(1)
    assert bool(torch.isfinite(solve(home, torch.zeros_like(b), c, r, low, high, norm, times=3)).all())
    still = solve(home, b, c.abs(), torch.zeros_like(r), low, high, norm, times=3)
    assert bool(torch.isfinite(still).all())
