"""The subproblem of a walk along the decision boundary: the point nearest to the clean image that reaches the
linearised goal.

    min |delta + d|_p   subject to   b.d <= c,   |d| within the trust radius,   x + delta + d in the box

There is one solver per norm, for all images at a time; none calls the model. The half-space constraint is met, as far
as the box allows, by a few Newton steps on one multiplier. The trust region is a heuristic and is met approximately by
a closed form; in l1, the error of each step's length corrects the next step.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from ..core.box import Box
from ..tensors import TINY, cheap_sync
from .projections import bounds, clip

# Newton steps on the multiplier of the half-space.
NEWTON = 6


class Subproblem(Protocol):
    """``step`` maps the perturbations ``delta`` (B, ...), the goal's linearisation ``b`` (B, ...) and ``c`` (B,), and
    the trust ``radius`` (B,), an l2 length, to the steps d (B, ...). ``fresh`` (B,) marks images that begin a walk,
    None for none; their stored state is reset."""

    def step(
        self, delta: Tensor, b: Tensor, c: Tensor, radius: Tensor, fresh: Tensor | None, slope: Tensor | None = None
    ) -> Tensor: ...


def subproblem(x: Tensor, box: Box, norm: float) -> Subproblem:
    """The solver around the clean images ``x`` (B, ...) in l0 (as l1), l1, l2 or linf."""
    low, high = bounds(box, x)
    return SOLVERS[norm](low.flatten(1), high.flatten(1))


class _Nearest:
    """Common part of the solvers for norms: flat tensors (B, n), numbers (B, 1), b of unit length, and a need that the
    radius allows.

    Masks are comparisons in place (``eq_``), which leave numbers: on a CPU a product with a boolean mask, or ``where``,
    takes fifteen times as long.

    ``low`` <= 0 and ``high`` >= 0 (B, n) are the bounds of a perturbation.
    """

    def __init__(self, low: Tensor, high: Tensor):
        self.low, self.high = low, high

    def step(
        self, delta: Tensor, b: Tensor, c: Tensor, radius: Tensor, fresh: Tensor | None, slope: Tensor | None = None
    ) -> Tensor:
        flat, b, r = delta.flatten(1), b.flatten(1), radius.unsqueeze(1)
        steepness = torch.linalg.vector_norm(b, dim=1, keepdim=True)
        scale = steepness + (steepness == 0)
        b, need = b / scale, torch.maximum(c.unsqueeze(1) / scale, -r)
        fresh = None if fresh is None else fresh.unsqueeze(1)
        return self._solve(flat, b, need, r, fresh).sub_(flat).view_as(delta)

    def _solve(self, delta: Tensor, b: Tensor, need: Tensor, r: Tensor, fresh: Tensor | None) -> Tensor:
        """The new perturbation y (B, n) with b.(y - delta) <= ``need`` (B, 1)."""
        raise NotImplementedError


class Nearest2(_Nearest):
    """l2: y = clip(s delta - t b). Without the box the step's part along b is given and the rest points from delta to
    zero, so that |y - delta| = r gives s in closed form."""

    def _solve(self, delta: Tensor, b: Tensor, need: Tensor, r: Tensor, fresh: Tensor | None) -> Tensor:
        along, square = _dot(b, delta), _dot(delta, delta)
        level = need + along
        c = level - along
        tangent = (square - along * along).clamp_min(TINY).sqrt()
        straight = (r / square.clamp_min(TINY).sqrt()).clamp_max(1)
        v = torch.where(-straight * along <= c, straight, ((r * r - c * c).clamp_min(0).sqrt() / tangent).clamp_max(1))
        base, squares = (1 - v) * delta, b * b
        t = (-v * along - c).clamp_min(0)
        for _ in range(NEWTON):
            # The excess is convex in t: Newton's steps from below are monotone, and exact once the set of stopped
            # values is right.
            raw = torch.addcmul(base, b, t, value=-1)
            y = torch.clamp(raw, self.low, self.high)
            free = raw.eq_(y).mul_(squares).sum(1, keepdim=True)
            excess = y.mul_(b).sum(1, keepdim=True) - level
            t = torch.maximum(t, torch.addcdiv(t, excess, free.clamp_min(1e-12)))
        return torch.clamp(torch.addcmul(base, b, t, value=-1), self.low, self.high)


class Nearest1(_Nearest):
    """l1: y = clip(soft(delta - t b, v)), a proximal step, where soft(p, v) draws each value of p towards zero by v. t
    is solved for; v and a first t are kept from step to step, v corrected by what the last step's length missed the
    radius by. l0 takes it as its convex relaxation."""

    def __init__(self, low: Tensor, high: Tensor):
        super().__init__(low, high)
        self.known: tuple[Tensor, Tensor] | None = None  # v and t (B, 1) of the next step
        self.widest = (high - low).amax(1, keepdim=True)

    def _solve(self, delta: Tensor, b: Tensor, need: Tensor, r: Tensor, fresh: Tensor | None) -> Tensor:
        level, zero = need + _dot(b, delta), torch.zeros_like(need)
        if self.known is None:
            v, t = _water_level(delta.abs(), r), zero
        else:
            v, t = self.known
            if fresh is not None and not (cheap_sync(delta.device) and not bool(fresh.any())):
                v, t = torch.where(fresh, _water_level(delta.abs(), r), v), torch.where(fresh, zero, t)
        largest = torch.linalg.vector_norm(delta, ord=float("inf"), dim=1, keepdim=True)
        v = torch.minimum(v, largest + self.widest).clamp_min(TINY)
        lowest, tenth = -v, 0.1 * v
        # t lies between ``below``, where too little is reached, and ``above``, where enough is.
        below, above, squares = zero, torch.full_like(level, float("inf")), b * b
        work = torch.empty_like(b)
        for index in range(NEWTON):
            drawn = torch.addcmul(delta, b, t, value=-1)
            drawn = drawn.sub_(clip(drawn, lowest, v))
            y = torch.clamp(drawn, self.low, self.high)
            if index == NEWTON - 1:
                break
            slope = torch.ne(drawn, 0, out=work).mul_(drawn.eq_(y)).mul_(squares).sum(1, keepdim=True)
            excess = y.mul_(b).sum(1, keepdim=True) - level
            enough = excess <= 0
            above, below = torch.where(enough, t, above), torch.where(enough, below, t)
            newton = torch.addcdiv(t, excess, slope.clamp_min(TINY), value=1.0001)
            halfway = torch.where(above < float("inf"), (below + above) / 2, torch.add(tenth, t, alpha=2))
            back = newton.clamp_min(0) if index else torch.where(newton <= 0, 0.1 * t, newton)
            good = (newton > below) & (newton < above) & (slope > 0)
            t = torch.where(good, newton, torch.where(enough & (below == 0), back, halfway))
        moved = torch.linalg.vector_norm(y - delta, dim=1, keepdim=True)
        longer = (r / moved.clamp_min(TINY)).clamp(0.25, 4)
        self.known = v * longer, t * longer
        return y


class NearestInf(_Nearest):
    """linf: the corner against b of the smallest ball around the clean image whose corner meets the half-space, by
    bisection over its radius, which may fall by the share that the trust radius is of the distance; no value moves more
    than ``REACH`` times that share of it."""

    REACH, BISECTIONS = 8.0, 10

    def _solve(self, delta: Tensor, b: Tensor, need: Tensor, r: Tensor, fresh: Tensor | None) -> Tensor:
        level = need + _dot(b, delta)
        away = torch.linalg.vector_norm(delta, ord=float("inf"), dim=1, keepdim=True)
        share = r / torch.linalg.vector_norm(delta, dim=1, keepdim=True).clamp_min(TINY)
        reach = self.REACH * share * away
        farthest = torch.clamp(torch.addcmul(delta, b.sign(), -reach), self.low, self.high)
        size, gain, work = farthest.abs(), b * farthest.sign(), torch.empty_like(b)

        def enough(radius: Tensor) -> Tensor:
            """(B, 1) whether the corner of the ball of this radius meets the half-space."""
            return torch.minimum(size, radius, out=work).mul_(gain).sum(1, keepdim=True) <= level

        smallest = near = (away * (1 - share)).clamp_min(0)
        far, fits = away + reach, enough(near)
        for _ in range(self.BISECTIONS):
            middle = (near + far) / 2
            reached = enough(middle)
            near, far = torch.where(reached, near, middle), torch.where(reached, middle, far)
        radius = torch.where(fits, smallest, far)
        return clip(farthest, -radius, radius)


def _water_level(sizes: Tensor, r: Tensor) -> Tensor:
    """(B, 1) the level at which the ``sizes`` (B, n), cut off there, have the l2 length ``r`` (B, 1); large where they
    are shorter anyway."""
    squares, most = sizes * sizes, r * r
    level = r / (sizes > 0).sum(1, keepdim=True).clamp_min(1).sqrt()
    for _ in range(3):
        over = torch.gt(sizes, level, out=torch.empty_like(sizes))
        count = over.sum(1, keepdim=True).clamp_min(1)
        rest = (most - over.eq_(0).mul_(squares).sum(1, keepdim=True)).clamp_min(0)
        level = torch.maximum(level, (rest / count).sqrt())
    return torch.where(squares.sum(1, keepdim=True) <= most, torch.full_like(level, 1 / TINY), level)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(1, keepdim=True)


SOLVERS: dict[float, type[_Nearest]] = {0.0: Nearest1, 1.0: Nearest1, 2.0: Nearest2, float("inf"): NearestInf}
