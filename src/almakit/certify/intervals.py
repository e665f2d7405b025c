"""Intervals of values, and the ball of images over which a network is bounded."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

NORMS = {"linf": math.inf, "l2": 2.0, "l1": 1.0}
UNIT = 2.0**-52
"""Twice float64's unit roundoff. A sum of n products is off by at most n units of the sum of their sizes, in any order
(Higham, section 3.1)."""
TOP, FEW = 64, 2**22
"""Number of a row's largest entries that bound a change in l1 if the row has more than ``FEW`` entries; any number is
sound."""


@dataclass(frozen=True)
class Interval:
    """``lower`` and ``upper`` (B, ...): every value lies between."""

    lower: Tensor
    upper: Tensor

    @property
    def middle(self) -> Tensor:
        return (self.upper + self.lower) / 2

    @property
    def radius(self) -> Tensor:
        return (self.upper - self.lower) / 2

    @property
    def size(self) -> Tensor:
        """The largest absolute value."""
        return torch.maximum(self.lower.abs(), self.upper.abs())

    def meet(self, other: Interval) -> Interval:
        return Interval(torch.maximum(self.lower, other.lower), torch.minimum(self.upper, other.upper))


@dataclass(frozen=True)
class Ball:
    """The images within ``radius`` (B,) of ``x`` (B, C, H, W) in l1, l2 or linf that lie in [0, 1]."""

    x: Tensor
    radius: Tensor
    norm: str = "linf"

    @property
    def interval(self) -> Interval:
        """Each pixel's interval."""
        reach = self.radius.reshape(-1, *(1 for _ in self.x.shape[1:]))
        return Interval((self.x - reach).clamp(0, 1), (self.x + reach).clamp(0, 1))

    def lower_bound(self, rows: Tensor, images: Tensor) -> Tensor:
        """(P,) a lower bound of a.x' over the ball of image ``images[p]``, for each row a of ``rows`` (P, pixels).

        linf: exact. l2 and l1: by weak duality, so sound for any multiplier; the best one to rounding (l2), or among
        the largest entries (l1).
        """
        pixels = self.interval
        centre, lower, upper = (part.flatten(1)[images] for part in (self.x, pixels.lower, pixels.upper))
        return self.lower_bound_of(rows, centre, lower, upper, self.radius[images])

    def lower_bound_of(self, rows: Tensor, centre: Tensor, lower: Tensor, upper: Tensor, radius: Tensor) -> Tensor:
        """``lower_bound`` for rows that involve only some pixels (P, n), given by values, interval ends and the radius
        (P,)."""
        if self.norm == "linf":
            return (rows * ((upper + lower) / 2) - rows.abs() * ((upper - lower) / 2)).sum(1)
        limit = torch.where(rows > 0, centre - lower, upper - centre).clamp_min(0)
        return (rows * centre).sum(1) - _gain(rows.abs(), limit, radius, self.norm)

    def spread(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """How far a.x' can fall and rise over each ball, (B, R) each, for rows a (R, pixels) that are the same for all
        images; l2 and l1 only.

        Pixels that cannot move in this direction are ignored; otherwise the box is considered by the intervals.
        """
        radius = self.radius[:, None]
        if self.norm == "l1":
            most = radius * rows.abs().amax(1)
            return most, most
        above, below = (self.x < 1).flatten(1).to(rows.dtype), (self.x > 0).flatten(1).to(rows.dtype)
        positive, negative = rows.clamp_min(0).square().T, rows.clamp_max(0).square().T
        return radius * (below @ positive + above @ negative).sqrt(), radius * (
            above @ positive + below @ negative
        ).sqrt()


def _gain(slope: Tensor, limit: Tensor, radius: Tensor, norm: str) -> Tensor:
    """(P,) an upper bound of max g.t over 0 <= t <= limit, |t| <= radius, for slopes g >= 0 (P, n): min over m >= 0 of
    the Lagrangian's maximum."""
    whole = (slope * limit).sum(1)
    if norm == "l1":
        # m radius + sum (g - m)+ limit: piecewise linear in m, with its kinks at the slopes.
        top, where = slope.topk(slope.shape[1] if slope.numel() <= FEW else min(TOP, slope.shape[1]), dim=1)
        filled = limit.gather(1, where).cumsum(1) >= radius[:, None]
        last = torch.where(filled.any(1), filled.to(torch.int8).argmax(1), top.shape[1] - 1)
        multiplier = top.gather(1, last[:, None])
        return torch.minimum(whole, multiplier[:, 0] * radius + ((slope - multiplier).clamp_min(0) * limit).sum(1))
    # Any multiplier is sound, and the bound's derivative in the best one is zero, so it is computed without gradients
    # and used once with them.
    with torch.no_grad():
        best = _multiplier(slope.detach(), limit, radius)[:, None]
    step = torch.minimum(slope / best, limit)
    bound = (slope * step - best / 2 * step.square()).sum(1) + best[:, 0] / 2 * radius.square()
    return torch.where(bound < whole, bound, whole)


def _multiplier(slope: Tensor, limit: Tensor, radius: Tensor) -> Tensor:
    """(P,) the multiplier of |t|_2 <= radius: pixels at their limit use a part of the radius, the others share the
    rest. It decreases until no further pixel reaches its limit."""
    fixed = limit <= 0
    for _ in range(30):
        left = (radius.square() - torch.where(fixed, limit, 0.0).square().sum(1)).clamp_min(1e-300)
        multiplier = (torch.where(fixed, 0.0, slope).square().sum(1) / left).sqrt().clamp(1e-150, 1e150)
        more = (slope >= multiplier[:, None] * limit) & ~fixed
        if not bool(more.any()):
            break
        fixed = fixed | more
    return multiplier
