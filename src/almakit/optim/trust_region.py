"""The subproblem of a walk along the decision boundary: the point nearest to the clean image where the linearised goal
is reached.

    min |delta + d|_p   subject to   b.d <= c,   |d| within the trust radius,   x + delta + d in the box

One solver per norm, all images at once, none of them calls the model. The half-space is met, as far as the box allows,
by a few Newton steps on one multiplier; the trust region, which is a rule of thumb anyway, only as well as a closed
form does it. In l1 it is kept by feedback: what a step was too long or too short by corrects the next one.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from ..core.box import Box
from .projections import bounds, clip

TINY = 1e-30
# Newton steps on the multiplier of the half-space.
NEWTON = 6


class Subproblem(Protocol):
    """``step`` maps the perturbations ``delta`` (B, ...), the goal's linearisation ``b`` (B, ...) and ``c`` (B,), and
    the trust ``radius`` (B,), a length in l2, to the steps d (B, ...); ``fresh`` (B,) marks images whose walk begins,
    of which nothing is remembered."""

    def step(
        self, delta: Tensor, b: Tensor, c: Tensor, radius: Tensor, fresh: Tensor, slope: Tensor | None = None
    ) -> Tensor: ...


def subproblem(x: Tensor, box: Box, norm: float) -> Subproblem:
    """The solver around the clean images ``x`` (B, ...) in l0 (as l1), l1, l2 or linf."""
    low, high = bounds(box, x)
    return SOLVERS[norm](low.flatten(1), high.flatten(1))


class _Nearest:
    """What the solvers for norms share: flat tensors (B, n), numbers (B, 1), b of unit length, no need beyond what the
    radius allows."""

    def __init__(self, low: Tensor, high: Tensor):
        self.low, self.high = low, high

    def step(
        self, delta: Tensor, b: Tensor, c: Tensor, radius: Tensor, fresh: Tensor, slope: Tensor | None = None
    ) -> Tensor:
        flat, b, r = delta.flatten(1), b.flatten(1), radius.unsqueeze(1)
        steepness = torch.linalg.vector_norm(b, dim=1, keepdim=True)
        steepness = torch.where(steepness > 0, steepness, torch.ones_like(steepness))
        need = torch.maximum(c.unsqueeze(1) / steepness, -r)
        found = self._solve(-flat, b / steepness, need, r, self.low - flat, self.high - flat, fresh.unsqueeze(1))
        return found.view_as(delta)

    def _solve(self, home: Tensor, b: Tensor, c: Tensor, r: Tensor, low: Tensor, high: Tensor, fresh: Tensor) -> Tensor:
        raise NotImplementedError


class Nearest2(_Nearest):
    """l2: d = clip(v home - t b). Without the box the part along b is c and the rest v times home's tangent, so that
    |d| = r gives v in closed form."""

    def _solve(self, home: Tensor, b: Tensor, c: Tensor, r: Tensor, low: Tensor, high: Tensor, fresh: Tensor) -> Tensor:
        along, square = _sum(b * home), _sum(home * home)
        tangent = (square - along * along).clamp_min(TINY).sqrt()
        straight = (r / square.clamp_min(TINY).sqrt()).clamp_max(1)
        v = torch.where(straight * along <= c, straight, ((r * r - c * c).clamp_min(0).sqrt() / tangent).clamp_max(1))
        base = v * home
        t = (v * along - c).clamp_min(0)
        for _ in range(NEWTON):
            # The excess is convex in t: Newton's steps from below are monotone, and exact once the set of stopped
            # values is right.
            raw = base - t * b
            d = clip(raw, low, high)
            t = t + ((_sum(b * d) - c) / _sum(b * b * (raw == d)).clamp_min(1e-12)).clamp_min(0)
        return clip(base - t * b, low, high)


class Nearest1(_Nearest):
    """l1: home, cut off at v on both sides of -t b, then clipped: a proximal step. t is solved for; v and a first t are
    kept from step to step, v corrected by what the last step's length missed the radius by. l0 takes it as its convex
    relaxation."""

    def __init__(self, low: Tensor, high: Tensor):
        super().__init__(low, high)
        self.v = self.t = low.new_zeros(len(low), 1)

    def _solve(self, home: Tensor, b: Tensor, c: Tensor, r: Tensor, low: Tensor, high: Tensor, fresh: Tensor) -> Tensor:
        widest = home.abs().amax(1, keepdim=True) + (high - low).amax(1, keepdim=True)
        v = torch.minimum(torch.where(fresh, _water_level(home.abs(), r), self.v), widest).clamp_min(TINY)
        t = torch.where(fresh, torch.zeros_like(c), self.t)
        below, above = torch.zeros_like(c), torch.full_like(c, float("inf"))
        for index in range(NEWTON):
            down = -t * b
            raw = torch.minimum(torch.maximum(home, down - v), down + v)
            d = clip(raw, low, high)
            excess = _sum(b * d) - c
            enough = excess <= 0
            above, below = (
                torch.where(enough, torch.minimum(above, t), above),
                torch.where(enough, below, torch.maximum(below, t)),
            )
            if index == NEWTON - 1:
                break
            slope = _sum(b * b * ((raw == d) & (raw != home)))
            newton = t + 1.0001 * excess / slope.clamp_min(TINY)
            halfway = torch.where(above < float("inf"), (below + above) / 2, 2 * t + 0.1 * v)
            back = torch.where(newton <= 0, 0.1 * t if index == 0 else torch.zeros_like(t), newton)
            good = (newton > below) & (newton < above) & (slope > 0)
            t = torch.where(good, newton, torch.where(enough & (below == 0), back, halfway))
        longer = (r / torch.linalg.vector_norm(d, dim=1, keepdim=True).clamp_min(TINY)).clamp(0.25, 4)
        self.v, self.t = v * longer, t * longer
        return d


class NearestInf(_Nearest):
    """linf: the corner against b of the smallest ball around the clean image whose corner meets the half-space, by
    bisection over its radius, which may fall by the share that the trust radius is of the distance; no value moves more
    than ``REACH`` times that share of it."""

    REACH, BISECTIONS = 8.0, 10

    def _solve(self, home: Tensor, b: Tensor, c: Tensor, r: Tensor, low: Tensor, high: Tensor, fresh: Tensor) -> Tensor:
        away = home.abs().amax(1, keepdim=True)
        share = r / torch.linalg.vector_norm(home, dim=1, keepdim=True).clamp_min(TINY)
        reach = self.REACH * share * away
        wanted = -reach * b.sign()

        def corner(radius: Tensor) -> Tensor:
            return clip(wanted, torch.maximum(low, home - radius), torch.minimum(high, home + radius))

        near, far = (away * (1 - share)).clamp_min(0), away + reach
        least = corner(near)
        fits = _sum(b * least) <= c
        for _ in range(self.BISECTIONS):
            middle = (near + far) / 2
            enough = _sum(b * corner(middle)) <= c
            near, far = torch.where(enough, near, middle), torch.where(enough, middle, far)
        return torch.where(fits, least, corner(far))


def _water_level(sizes: Tensor, r: Tensor) -> Tensor:
    """(B, 1) the level at which the ``sizes`` (B, n), cut off there, have the l2 length ``r`` (B, 1); large where they
    are shorter anyway."""
    squares = sizes * sizes
    level = r / (sizes > 0).sum(1, keepdim=True).clamp_min(1).sqrt()
    for _ in range(3):
        over = sizes > level
        rest = (r * r - _sum(squares * ~over)).clamp_min(0)
        level = torch.maximum(level, (rest / over.sum(1, keepdim=True).clamp_min(1)).sqrt())
    return torch.where(_sum(squares) <= r * r, torch.full_like(level, 1 / TINY), level)


def _sum(values: Tensor) -> Tensor:
    return values.sum(1, keepdim=True)


SOLVERS: dict[float, type[_Nearest]] = {0.0: Nearest1, 1.0: Nearest1, 2.0: Nearest2, float("inf"): NearestInf}
