"""Linear classifiers with the box, where the smallest perturbation is known exactly."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.optimize import linprog, minimize, nnls
from torch import Tensor

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


class Linear:
    """z = W x + b on flattened images; a plain callable, so it also tests models that are no modules."""

    def __init__(self, weight: Tensor, bias: Tensor):
        self.weight, self.bias = weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.weight.T.to(x.dtype) + self.bias.to(x.dtype)


def random_problem(
    seed: int,
    batch: int,
    shape: tuple[int, ...],
    classes: int = 5,
    shrink: float = 1.0,
    dtype: torch.dtype = torch.float32,
) -> tuple[Linear, Tensor, Tensor]:
    """A random linear model, images in [0, 1] and the labels it gives them; ``shrink`` < 1 moves the optimum towards
    the images."""
    generator = torch.Generator().manual_seed(seed)
    pixels = int(torch.tensor(shape).prod())
    weight = torch.randn(classes, pixels, generator=generator, dtype=torch.float64)
    x = torch.rand(batch, *shape, generator=generator, dtype=torch.float64)
    # The bias makes all classes alike at grey, so that images lie near the boundary and the box binds for some of them.
    bias = -(weight * 0.5).sum(1)
    if shrink != 1.0:
        x = 0.5 + (x - 0.5) * shrink
    model = Linear(weight.to(dtype), bias.to(dtype))
    x = x.to(dtype)
    return model, x, model(x).argmax(1)


def smallest(
    model: Linear, x: Tensor, labels: Tensor, norm: float, targets: Tensor | None = None, tolerance: float = 0.0
) -> Tensor:
    """(B,) the exact minimal l1, l2 or linf distance to another class (or the target) inside [0, 1]; inf where there is
    none."""
    best = torch.full((len(x),), float("inf"), dtype=torch.float64)
    weight, bias = model.weight.double(), model.bias.double()
    for row, (image, label) in enumerate(zip(x.double().flatten(1), labels.tolist(), strict=True)):
        if targets is None:
            rivals = [(weight[k] - weight[label], bias[k] - bias[label]) for k in range(len(weight)) if k != label]
            values = [to_halfspace(image, w, float(-(w @ image + b)) + tolerance, norm) for w, b in rivals]
            best[row] = min(values)
        else:
            best[row] = to_polytope(image, weight, bias, int(targets[row]), norm)
    return best


def to_halfspace(image: Tensor, w: Tensor, need: float, norm: float) -> float:
    """min |d|_norm subject to w.d >= need and 0 <= image + d <= 1, exactly."""
    if need <= 0:
        return 0.0
    room = torch.where(w > 0, 1 - image, image)
    gain = w.abs()
    if float((gain * room).sum()) < need:
        return float("inf")
    if norm == 1:
        # Greedy: the steepest pixels first, each to its bound.
        order = gain.argsort(descending=True)
        full = (gain * room)[order]
        reached = full.cumsum(0)
        last = int((reached < need).sum())
        before = float(reached[last - 1]) if last else 0.0
        return float(room[order][:last].sum()) + (need - before) / float(gain[order][last])
    # linf: d = min(t, room); l2: d = min(nu * gain, room); both grow along a piecewise-linear path until the need is
    # met.
    rate = torch.ones_like(gain) if norm == float("inf") else gain
    live = gain > 0
    breaks = torch.where(
        live, room / torch.where(rate > 0, rate, torch.ones_like(rate)), torch.full_like(room, float("inf"))
    )
    order = breaks.argsort()
    fixed, slope = 0.0, float((gain * rate).sum())
    level = 0.0
    for index in order.tolist():
        level = (need - fixed) / slope if slope > 0 else float("inf")
        if level <= float(breaks[index]):
            break
        fixed += float(gain[index] * room[index])
        slope -= float(gain[index] * rate[index])
    if norm == float("inf"):
        return level
    return float(torch.minimum(level * gain, room).norm())


def to_polytope(image: Tensor, weight: Tensor, bias: Tensor, target: int, norm: float) -> float:
    """min |d| such that every other class is below the target, by linear programming (l1, linf) or quadratic
    programming (l2)."""
    n = len(image)
    others = [k for k in range(len(weight)) if k != target]
    a = (weight[others] - weight[target]).numpy()
    b = -(a @ image.numpy() + (bias[others] - bias[target]).numpy())
    lo, hi = -image.numpy(), 1 - image.numpy()
    if norm == 1:
        # d = p - q with p, q >= 0.
        solution = linprog(
            np.ones(2 * n), A_ub=np.hstack([a, -a]), b_ub=b, bounds=[(0, h) for h in hi] + [(0, -low) for low in lo]
        )
        return float(solution.fun) if solution.status == 0 else float("inf")
    if norm == float("inf"):
        cost = np.zeros(n + 1)
        cost[-1] = 1
        eye = np.eye(n)
        top = np.hstack([a, np.zeros((len(a), 1))])
        bound = np.vstack([np.hstack([eye, -np.ones((n, 1))]), np.hstack([-eye, -np.ones((n, 1))])])
        solution = linprog(
            cost,
            A_ub=np.vstack([top, bound]),
            b_ub=np.concatenate([b, np.zeros(2 * n)]),
            bounds=[*zip(lo, hi, strict=True), (0, None)],
        )
        return float(solution.fun) if solution.status == 0 else float("inf")
    # Least distance programming (Lawson and Hanson, chapter 23): min |d| with G d >= h is a non-negative least squares
    # problem.
    g = np.vstack([-a, np.eye(n), -np.eye(n)])
    h = np.concatenate([-b, lo, -hi])
    system = np.vstack([g.T, h])
    wanted = np.zeros(n + 1)
    wanted[-1] = 1
    weights, residual = nnls(system, wanted, maxiter=100 * n)
    if residual < 1e-10:
        return float("inf")
    rest = system @ weights - wanted
    return float(np.linalg.norm(rest[:n] / rest[n]))


def shortest(w: Array, need: float, low: Array, high: Array, norm: float) -> float:
    """min |d| with w.d >= need and low <= d <= high, by general solvers."""
    n = len(w)
    if norm == 2:
        start = np.where(w > 0, high, low)
        answer = minimize(
            lambda d: d @ d,
            start * need / (w @ start),
            jac=lambda d: 2 * d,
            method="SLSQP",
            bounds=list(zip(low, high, strict=True)),
            constraints=[{"type": "ineq", "fun": lambda d: w @ d - need, "jac": lambda d: w}],
            options={"ftol": 1e-14, "maxiter": 500},
        )
        return float(np.sqrt(answer.fun))
    count = n if norm == 1 else 1
    spread = np.eye(n) if norm == 1 else np.ones((n, 1))
    rows = [np.hstack([np.eye(n), -spread]), np.hstack([-np.eye(n), -spread]), np.hstack([-w, np.zeros(count)])[None]]
    answer = linprog(
        np.concatenate([np.zeros(n), np.ones(count)]),
        A_ub=np.vstack(rows),
        b_ub=np.concatenate([np.zeros(2 * n), [-need]]),
        bounds=[*zip(low, high, strict=True), *[(0, None)] * count],
    )
    return float(answer.fun) if answer.status == 0 else math.inf
