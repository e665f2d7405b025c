"""The subproblem of a walk along the decision boundary in any distance: a few quasi-Newton steps on D itself along the
linearised boundary.

    min D(x, x + delta + d)   subject to   b.d <= c,   |d| about the trust radius at most,   x + delta + d in the box

Only D's gradient is used, and the model is not called. Curvature of D is estimated from gradients over all steps of a
walk (limited-memory BFGS; Nocedal, *Updating quasi-Newton matrices with limited storage*, Math. Comp. 1980). A few
gradients per query are sufficient, because the Hessian of D hardly changes along a walk, while b does.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.box import Box
from ..distances.base import Bound
from ..tensors import per_image

TINY = 1e-30
# Newton steps on the multiplier of the half-space, and additional ones after the last step on D.
NEWTON = 3


class QuasiNewton:
    """``gradients`` of the distance ``bound`` to the clean images (B, ...) in each step; the last ``memory`` of them
    say how D is curved, and so does the clean image, where D has no slope: the inverse Hessian takes the slope here to
    the way from there. Across kinks, too, that one pair holds.

    The first guess of the inverse Hessian is diagonal: how far a value is from the clean one over how steep D is there,
    roots of mean squares that forget at the rate ``smoothing``. In a weighted l2 distance that is the inverse Hessian;
    at a kink as l1's, where gradients of nearby points say nothing about curvature, it is the weight of iteratively
    reweighted least squares (Daubechies et al., CPAM 2010), under which small values stay small. Where D ties values
    together, how far a single one is says little, and slopes then point away from home as often as towards it: the
    mean distance takes the place of its own by that share.
    """

    def __init__(self, bound: Bound, box: Box, gradients: int, memory: int, smoothing: float):
        self.x, self.box, self.bound, self.gradients, self.memory, self.smoothing = (
            bound.x,
            box,
            bound,
            max(1, gradients),
            memory,
            smoothing,
        )
        self.pairs: list[tuple[Tensor, Tensor, Tensor]] = []
        self.last: tuple[Tensor, Tensor] | None = None
        self.whole = torch.zeros_like(bound.x), torch.zeros_like(bound.x), bound.x.new_zeros(len(bound.x))
        self.pace = bound.x.new_ones(len(bound.x))
        self.steep, self.far, self.scale = (
            torch.zeros_like(bound.x),
            torch.zeros_like(bound.x),
            bound.x.new_ones(len(bound.x)),
        )

    def step(
        self, delta: Tensor, b: Tensor, c: Tensor, radius: Tensor, fresh: Tensor | None, slope: Tensor | None = None
    ) -> Tensor:
        """The step d (B, ...) from the perturbations ``delta`` (B, ...), with ``b`` (B, ...) and ``c`` (B,) of the
        linearised goal; images marked in ``fresh`` (B,) begin a walk, of which nothing is remembered. ``slope`` (B,
        ...) is D's gradient there, if it is known."""
        b = self.box.free(b)
        level, moved, down = c, delta, torch.zeros_like(b)
        value = least = torch.full_like(c, float("inf"))
        lowest = moved, down
        for number in range(self.gradients):
            if number or slope is None:
                value, slope = self.bound.value_and_grad(self.x + moved)
            slope = self.box.free(torch.nan_to_num(slope, nan=0.0, posinf=0.0, neginf=0.0))
            guess = self._learn(moved, slope, None if number else fresh)
            if number > 1:
                # A step that increased D was too long, as happens at kinks: undo it and use shorter steps from now on.
                raised = ~(value <= least)
                self.pace = torch.where(raised, self.pace / 2, (1.4 * self.pace).clamp_max(1))
                value, back = torch.where(raised, least, value), per_image(raised, b)
                moved, slope = torch.where(back, lowest[0], moved), torch.where(back, lowest[1], slope)
            if number:
                least, lowest = value, (moved, slope)
            if number == 0:
                home, down = self._precondition(torch.stack([slope, b], 1), guess).unbind(1)
                steep = _dot(b, down).clamp_min(TINY)
                # The step towards the boundary is limited by the radius too.
                level = _dot(b, delta) + torch.maximum(c, -radius * steep / _root(_dot(down, down)))
            else:
                # What the boundary takes up of the slope, by the metric of the first step, is taken out before: b need
                # not be preconditioned again.
                home = self._precondition(
                    (slope - per_image(_dot(down, slope) / steep, b) * b).unsqueeze(1), guess
                ).squeeze(1)
            # Along the boundary only, and at most by the radius; what the box removes is replaced along ``down``.
            home = home - per_image(_dot(b, home) / steep, b) * down
            shorter = self.pace * (radius / _root(_dot(home, home))).clamp_max(1)
            moved = self._onto(
                moved - per_image(shorter, b) * home, b, down, level, NEWTON * (1 + (number == self.gradients - 1))
            )
        return moved - delta

    def _learn(self, moved: Tensor, slope: Tensor, fresh: Tensor | None) -> Tensor:
        """Keeps what the change of the slope (B, ...) since the last place says; the diagonal guess (B, ...) of the
        inverse Hessian. None for ``fresh`` (B,) is no image."""
        if fresh is not None:
            self.pairs = [(s, y, torch.where(fresh, 0.0, inverse)) for s, y, inverse in self.pairs]
            self.pace, self.scale = torch.where(fresh, 1.0, self.pace), torch.where(fresh, 1.0, self.scale)
        self.steep, self.far = self._mean_square(self.steep, slope, fresh), self._mean_square(self.far, moved, fresh)
        pull, far, steep = (moved * slope).flatten(1), self.far.sqrt(), self.steep.sqrt()
        towards = pull.sum(1)
        apart = per_image((towards / pull.abs_().sum(1).clamp_min(TINY)).clamp_min(0), slope)
        even = (1.1 - apart) * _mean(far)
        guess = far.mul_(apart).add_(even).div_(steep.add_(1e-3 * _mean(steep)))
        if self.last is not None:
            s, y = moved - self.last[0], slope - self.last[1]
            along = _dot(s, y)
            kept = along > 1e-6 * _root(_dot(s, s)) * _root(_dot(y, y))
            kept = kept if fresh is None else kept & ~fresh
            self.pairs = [*self.pairs, (s, y, torch.where(kept, 1 / along.clamp_min(TINY), 0.0))][-self.memory :]
            curved = (y * y).mul_(guess).flatten(1).sum(1)
            self.scale = torch.where(kept, along / curved.clamp_min(TINY), self.scale)
        self.last = moved, slope
        self.whole = moved, slope, torch.where(towards > 0, 1 / towards.clamp_min(TINY), 0.0)
        return guess.mul_(per_image(self.scale, slope))

    def _mean_square(self, mean: Tensor, new: Tensor, fresh: Tensor | None) -> Tensor:
        """The running mean (B, ...) of squares, overwritten, with those of ``new`` (B, ...); of images in ``fresh``
        (B,) these alone."""
        square = new.square()
        mean = mean.mul_(self.smoothing).add_((1 - self.smoothing) * square)
        return mean if fresh is None else torch.where(per_image(fresh, new), square, mean)

    def _precondition(self, vectors: Tensor, guess: Tensor) -> Tensor:
        """The inverse Hessian times each of the ``vectors`` (B, 2, ...), which are overwritten, by the two loops of
        limited-memory BFGS from the diagonal ``guess`` (B, ...)."""
        q, parts = vectors.flatten(2), []
        product = torch.empty_like(q)
        flat = [
            (s.flatten(1).unsqueeze(1), y.flatten(1).unsqueeze(1), inverse.view(-1, 1, 1))
            for s, y, inverse in (self.whole, *self.pairs)
        ]
        for s, y, inverse in reversed(flat):
            parts.append(torch.mul(q, s, out=product).sum(2, keepdim=True) * inverse)
            q.addcmul_(parts[-1], y, value=-1)
        q.mul_(guess.flatten(1).unsqueeze(1))
        for s, y, inverse in flat:
            q.addcmul_(parts.pop() - torch.mul(q, y, out=product).sum(2, keepdim=True) * inverse, s)
        return q.view_as(vectors)

    def _onto(self, point: Tensor, b: Tensor, down: Tensor, level: Tensor, steps: int) -> Tensor:
        """The perturbations clip(``point`` - t ``down``) (B, ...) with b.(...) = ``level`` (B,), t by Newton ``steps``
        on the values the box leaves free."""
        wanted, product, work = self.x + point, b * down, torch.empty_like(b)
        t, raw = torch.zeros_like(level), wanted.clone()
        for _ in range(steps):
            inside = self.box.project_continuous(raw, self.x)
            free = torch.mul(product, inside == raw, out=work).flatten(1).sum(1)
            beyond = torch.mul(b, inside.sub_(self.x), out=work).flatten(1).sum(1) - level
            t = torch.where(free > 0, t + beyond / free.clamp_min(TINY), t)
            torch.sub(wanted, torch.mul(down, per_image(t, b), out=work), out=raw)
        return self.box.project_continuous(raw, self.x).sub_(self.x)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """(B,) inner products of images (B, ...)."""
    return (a * b).flatten(1).sum(1)


def _mean(sizes: Tensor) -> Tensor:
    """The mean of each image's ``sizes`` (B, ...), in a shape that broadcasts to them."""
    return per_image(sizes.flatten(1).mean(1).clamp_min(TINY), sizes)


def _root(square: Tensor) -> Tensor:
    return square.clamp_min(TINY).sqrt()
