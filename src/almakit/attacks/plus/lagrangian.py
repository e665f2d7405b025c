"""The augmented-Lagrangian phase: ALMA with a soft margin over a detached scale, and with every size measured in the problem's own unit.

The unit is the linearised distance to the decision boundary: the first step, the weight of the distance against the constraint and
the RMSProp average all start from it, so the multiplier begins near its final size whatever the distance, the image size or the model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...core import Problem
from ...core.penalties import P2
from ...core.steps import first_step, per_image
from .geometry import TINY, dot
from .margins import Direction, untargeted

MU_MIN, MU_MAX = 1e-6, 1e12
LOW = 0.3
# The part of a search in which it is watched how far the gradient misses what the margin does, and the share of both from which an image is rough.
WATCHED, ROUGH = (0.2, 0.4), 0.3


@dataclass(frozen=True)
class Lagrangian:
    """Settings of the phase, all dimensionless. ``first`` is D(x1) in units of the linearised distance to the boundary.

    ``weight`` is the distance at which the boundary would lie after scaling, ``warmth`` the start of the RMSProp average in units of
    the first squared gradient; both are what ALMA's fixed constants amount to on MNIST.
    """

    first: float | Tensor
    weight: float
    alpha: float = 0.5
    hot: float = 0.2
    cold: float = 0.02
    warmth: float = 150.0
    floor: float = 0.01
    gamma: float = 1.2
    improvement: float = 0.95
    check_steps: int = 10


def lagrangian(problem: Problem, steps: int, unit: Tensor, height: Tensor, s: Lagrangian, start: Tensor | None = None,
               direction: Direction = untargeted, early: tuple[int, Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """Spends ``steps`` queries from the clean images or ``start`` (B, ...); gives this search's best points (B, ...), or the best before where it found none,
    and which images (B,) were rough: for these it ends after fewer queries, if ``early`` says how many and which images (B,) are watched for it.

    ``unit`` (B,) is the linearised distance to the boundary, ``height`` (B,) the constraint on the clean image: in these two units a linear model looks
    the same whatever its margin. Rough is an image around which the gradient says little of what the margin does from one query to the next: rounded or
    switched activations, or a boundary that training has bent.
    """
    x, box, goal, penalty = problem.x, problem.box, problem.goal, P2()
    size = len(x)
    delta = torch.zeros_like(x) if start is None else start - x
    mu, rho = x.new_ones(size), x.new_ones(size)
    found_at = x.new_full((size,), float(steps))
    found = torch.zeros(size, dtype=torch.bool, device=x.device)
    average, momentum = torch.ones_like(x), torch.zeros_like(x)
    best_point, best_distance = problem.best_point, torch.full_like(unit, float("inf"))
    checked = rate = missed = moved_by = before = x.new_zeros(size)
    rough, length = torch.zeros_like(found), x.new_full((size,), float(steps))
    last_slope, last_point = torch.zeros_like(x), x
    sooner, may_be_rough = early or (steps, found)
    watched = range(max(1, round(WATCHED[0] * steps)), round(WATCHED[1] * steps)) if sooner < steps else range(0)
    weight = per_image(s.weight / unit.clamp_min(TINY), x)
    with problem.round():
        for i in range(steps):
            last = i == steps - 1
            query = problem.start() if i == 0 and start is None else problem.query(x + delta, grad=not last, distance_grad=not last)
            better = query.success & (query.distance < best_distance)
            best_point, best_distance = torch.where(per_image(better, x), query.point, best_point), torch.where(better, query.distance, best_distance)
            if last:
                break
            if i == sooner - 1:
                problem.release(rough)
            scale = goal.scale(query.logits.detach()) * (height / LOW).clamp(1e-3, 1)
            d = torch.where(query.valid, (query.margin + query.tolerance) / scale, torch.ones_like(scale))
            found_at = torch.where(query.success & ~found, torch.full_like(mu, i), found_at)
            found = found | query.success
            if i == 0:
                checked = d
            elif (i + 1) % s.check_steps == 0:
                rho = torch.where(~found & (d >= s.improvement * checked), rho * s.gamma, rho)
                checked = d
            if i:
                mu = (s.alpha * mu + (1 - s.alpha) * penalty.derivative(d, rho, mu)).clamp(MU_MIN, MU_MAX)
            slope, _ = direction(problem, query, s.hot * torch.exp(math.log(s.cold / s.hot) * (i / (length - 1).clamp_min(1)).clamp_max(1)))
            if i in watched:
                promised, done = dot(last_slope, query.point - last_point), query.margin - before
                known = torch.isfinite(done)
                missed = missed + torch.where(known, (done - promised).abs(), 0.0)
                moved_by = moved_by + torch.where(known, done.abs() + promised.abs(), 0.0)
                if i == watched[-1]:
                    rough = may_be_rough & (missed > ROUGH * moved_by)
                    length = torch.where(rough, float(sooner), length)
            last_slope, last_point, before = slope, query.point, query.margin
            gradient = per_image(penalty.derivative(d, rho, mu) / scale, x) * slope
            if i == 0:
                mean_square = s.warmth * gradient.square().flatten(1).mean(1).clamp_min(TINY)
                average = per_image(mean_square, x).expand_as(x).clone()
                rate = _rate(problem, gradient, s.first * unit) * (s.alpha * mean_square).sqrt()
            if query.distance_gradient is not None:
                gradient = gradient + weight * query.distance_gradient
            progress = ((i - found_at) / (length - found_at).clamp_min(1)).clamp(0, 1)
            decay = s.floor + (1 - s.floor) * (1 + torch.cos(math.pi * progress)) / 2
            problem.record(i, mu=mu, rho=rho, constraint=d, distance=query.distance, rate=rate * decay, success=query.success)
            if i and not query.all_valid:
                # Where the logits are not finite the gradient is a random direction: nothing is learnt from it, and what led there was too long.
                known = per_image(query.valid, x)
                gradient, momentum = torch.where(known, gradient, 0.0), torch.where(known, momentum, 0.0)
                rate = torch.where(query.valid, rate, rate / 2)
            average = s.alpha * average + (1 - s.alpha) * gradient.square()
            momentum = s.alpha * momentum + gradient / (average.sqrt() + TINY)
            moved = box.project_continuous(x + delta - per_image(rate * decay, x) * momentum, x)
            delta = torch.where(per_image(query.valid, x), moved, problem.midway(x + delta)) - x
    return best_point, rough


def _rate(problem: Problem, gradient: Tensor, distance: Tensor) -> Tensor:
    """(B,) the step against ``gradient`` (B, ...) that leads ``distance`` (B,) away from the clean image."""
    x, box = problem.x, problem.box

    def after(eta: Tensor) -> Tensor:
        return problem.bound(box.project_continuous(x - per_image(eta, x) * gradient, x))

    with torch.no_grad():
        return first_step(after, gradient, distance, box.width)
