"""The shared geometry against independent solvers: linear programs, bounded searches and the closed forms of the linear
tests."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from closed_form.linear import to_halfspace as exact_halfspace
from scipy.optimize import linprog, minimize_scalar

from almakit.core import Box
from almakit.optim import bounds, clip, dual_length, length, onto_ball, proximal, to_halfspace

INF = float("inf")


def boxed(
    seed: int, batch: int = 4, shape: tuple[int, ...] = (2, 5, 3)
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(batch, *shape, generator=generator, dtype=torch.float64)
    x[0].flatten()[:3] = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)  # no room at all in one direction
    z = torch.randn(batch, *shape, generator=generator, dtype=torch.float64)
    low, high = bounds(Box(), x)
    return x, z, low, high


@pytest.mark.parametrize("norm", [1.0, 2.0, INF])
@pytest.mark.parametrize("seed", range(5))
def test_the_way_to_a_half_space_is_the_shortest(norm: float, seed: int) -> None:
    x, w, low, high = boxed(seed)
    w[1].flatten()[:5] = 0
    most = torch.where(w > 0, w * high, w * low).flatten(1).sum(1)
    for fraction in (0.001, 0.3, 0.9, 0.9999):
        need = fraction * most
        d = to_halfspace(w, need, low, high, norm)
        assert bool((d >= low - 1e-12).all()) and bool((d <= high + 1e-12).all())
        assert torch.allclose((w * d).flatten(1).sum(1), need, rtol=1e-9)
        exact = [exact_halfspace(x[i].flatten(), w[i].flatten(), float(need[i]), norm) for i in range(len(x))]
        assert torch.allclose(length(d, norm), torch.tensor(exact, dtype=torch.float64), rtol=1e-9)


@pytest.mark.parametrize("norm", [1.0, 2.0, INF])
def test_an_unreachable_half_space_takes_all_the_room_and_a_met_one_nothing(norm: float) -> None:
    _, w, low, high = boxed(7)
    everything = torch.where(w > 0, high, low)
    far = torch.full((len(w),), 1e9, dtype=torch.float64)
    assert torch.equal(to_halfspace(w, far, low, high, norm), everything)
    assert not to_halfspace(w, -far, low, high, norm).any()
    assert not to_halfspace(torch.zeros_like(w), far, low, high, norm).any()


@pytest.mark.parametrize("norm", [1.0, 2.0])
@pytest.mark.parametrize("seed", range(5))
def test_projection_onto_ball_and_box_satisfies_its_variational_inequality(norm: float, seed: int) -> None:
    """d is the projection of z exactly when no feasible v has (z - d).(v - d) > 0."""
    _, z, low, high = boxed(seed)
    for radius in (0.05, 0.7, 2.0, 100.0):
        d = onto_ball(z, torch.full((len(z),), radius, dtype=z.dtype), low, high, norm)
        assert bool((d >= low - 1e-12).all()) and bool((d <= high + 1e-12).all())
        assert bool((length(d, norm) <= radius * (1 + 1e-9)).all())
        for i in range(len(z)):
            pull = (z[i] - d[i]).flatten().numpy()
            lo, hi, n = low[i].flatten().numpy(), high[i].flatten().numpy(), pull.size
            if norm == 1:
                answer = linprog(
                    np.concatenate([-pull, pull]),
                    A_ub=np.ones((1, 2 * n)),
                    b_ub=[radius],
                    bounds=[(0, h) for h in hi] + [(0, -v) for v in lo],
                )
                best = -answer.fun
            # maximise pull.v over the l2 ball and the box: v = clip(pull / (2 t)) for the t that meets the radius
            else:
                best = max(
                    float(pull @ v)
                    for t in np.logspace(-6, 6, 4001)
                    for v in [np.clip(pull / t, lo, hi)]
                    if np.linalg.norm(v) <= radius
                )
            assert best <= float(pull @ d[i].flatten().numpy()) + 1e-6 * (1 + abs(best))


def test_projection_onto_the_linf_and_l0_balls() -> None:
    _, z, low, high = boxed(1)
    d = onto_ball(z, torch.full((len(z),), 0.1, dtype=z.dtype), low, high, INF)
    assert torch.equal(d, clip(clip(z, low, high), torch.full_like(z, -0.1), torch.full_like(z, 0.1)))
    counts = torch.tensor([0.0, 1.0, 5.0, 1000.0], dtype=z.dtype)
    sparse = onto_ball(z, counts, low, high, 0.0)
    kept = (sparse != 0).flatten(1).sum(1)
    assert bool((kept <= counts).all()) and int(kept[1]) == 1 and int(kept[2]) == 5
    assert torch.equal(sparse[3], clip(z, low, high)[3])
    worth = (z.square() - (z - clip(z, low, high)).square()).flatten(1)
    for i in (1, 2):
        assert worth[i][sparse[i].flatten() != 0].min() >= worth[i][sparse[i].flatten() == 0].max()


@pytest.mark.parametrize("norm", [0.0, 2 / 3, 1.0])
def test_separable_proximal_maps_are_the_minimisers(norm: float) -> None:
    _, z, low, high = boxed(3, batch=2, shape=(12,))
    metric, weight = torch.rand_like(z) + 0.5, torch.tensor([0.05, 0.4], dtype=z.dtype)
    d = proximal(z, weight, metric, low, high, norm)

    def cost(value: float, i: int, j: int) -> float:
        penalty = float(value != 0) if norm == 0 else abs(value) ** norm
        return float(weight[i]) * penalty + float(metric[i, j]) * (value - float(z[i, j])) ** 2 / 2

    for i in range(2):
        for j in range(12):
            grid = np.append(np.linspace(float(low[i, j]), float(high[i, j]), 4001), 0.0)
            assert cost(float(d[i, j]), i, j) <= min(cost(v, i, j) for v in grid) + 1e-7


@pytest.mark.parametrize("norm", [2.0, INF])
@pytest.mark.parametrize("seed", range(5))
def test_joint_proximal_maps_beat_every_other_radius(norm: float, seed: int) -> None:
    """For a fixed length t the best d is a weighted projection; a bounded search over t must not find a better one."""
    _, z, low, high = boxed(seed, batch=2, shape=(9,))
    metric, weight = torch.rand_like(z) + 0.5, torch.tensor([0.1, 0.6], dtype=z.dtype)
    d = proximal(z, weight, metric, low, high, norm)
    assert bool((d >= low).all()) and bool((d <= high).all())

    def cost(v: torch.Tensor, i: int) -> float:
        return float(weight[i] * v.norm(p=norm) + (metric[i] * (v - z[i]).square()).sum() / 2)

    def at(t: float, i: int) -> torch.Tensor:
        if norm == INF:
            return clip(clip(z[i], low[i], high[i]), torch.full_like(z[i], -t), torch.full_like(z[i], t))
        return clip(metric[i] * z[i] / (metric[i] + t), low[i], high[i])

    for i in range(2):
        found = minimize_scalar(
            lambda t, i=i: cost(at(t, i), i), bounds=(0, 10), method="bounded", options={"xatol": 1e-9}
        )
        assert cost(d[i], i) <= found.fun + 1e-6
        assert cost(d[i], i) <= cost(torch.zeros_like(z[i]), i) + 1e-12


def test_float32_keeps_its_precision_on_large_images() -> None:
    generator = torch.Generator().manual_seed(0)
    x, w = torch.rand(2, 3, 64, 64, generator=generator), torch.randn(2, 3, 64, 64, generator=generator)
    low, high = bounds(Box(), x)
    need = torch.tensor([5.0, 300.0])
    for norm in (1.0, 2.0, INF):
        d = to_halfspace(w, need, low, high, norm)
        assert d.dtype == torch.float32
        assert torch.allclose((w * d).double().flatten(1).sum(1), need.double(), rtol=1e-5)
        radius = length(d, norm) * 0.5
        assert torch.allclose(length(onto_ball(w, radius, low, high, norm), norm), radius, rtol=1e-5)


def test_room_respects_the_mask_and_other_boxes() -> None:
    x = torch.tensor([[-1.0, 0.0, 2.0]])
    low, high = bounds(Box(-1, 3, mask=torch.tensor([True, True, False])), x)
    assert low.tolist() == [[0, -1, 0]] and high.tolist() == [[4, 3, 0]]


def test_dual_lengths() -> None:
    w = torch.tensor([[3.0, -4.0]])
    assert dual_length(w, 1.0).item() == 4 and dual_length(w, 2.0).item() == 5 and dual_length(w, INF).item() == 7
