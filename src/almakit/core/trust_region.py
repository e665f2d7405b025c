"""The inner problem of boundary-following attacks, solved for all images at once: the step that comes nearest to the clean image.

    min |x + d - x0|_p   subject to   b.d <= c,  |d|_2 <= r,  low <= d <= high

For each p the solutions lie on a path d(v, t) of closed form: t >= 0 is the multiplier of the half-space, v how much the distance counts
against the length of the step. b.d falls in t and |d|_2 changes monotonically with v, so two nested one-dimensional searches suffice, and
none of them needs the model.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .projections import clip

TINY = 1e-30
OCTAVES = 24.0


def nearest_step(home: Tensor, b: Tensor, c: Tensor, radius: Tensor, low: Tensor, high: Tensor, norm: float,
                 rounds: int | None = None, newton: int = 5) -> Tensor:
    """The step d (B, ...) above; ``home`` (B, ...) is x0 - x, ``b`` (B, ...), ``c`` and ``radius`` (B,), the box's ``low`` and ``high`` (B, ...).

    Where the half-space is out of reach within the radius, the step of that length which comes nearest to it.
    """
    shape = home.shape
    home, b, low, high = home.flatten(1), b.flatten(1), low.flatten(1), high.flatten(1)
    steepness = torch.linalg.vector_norm(b, dim=1, keepdim=True)
    scale = torch.where(steepness > 0, steepness, torch.ones_like(steepness))
    b, c, radius = b / scale, c.unsqueeze(1) / scale, radius.unsqueeze(1)
    path = _Path(home, b, low, high, radius, norm)

    def fits(d: Tensor) -> Tensor:
        return (_length(d) <= radius) & ((b * d).sum(1, keepdim=True) <= c + 1e-5 * c.abs())

    multiplier = path.reach(path.unhindered, c, torch.zeros_like(c), newton + 5)
    free = path.step(path.unhindered, multiplier)
    small, large = torch.zeros_like(c), torch.ones_like(c)
    # In linf the search is on an absolute scale, which wants finer steps than a relative one.
    for _ in range(rounds or (16 if norm == float("inf") else 12)):
        middle = (small + large) / 2
        value = path.value(middle)
        multiplier = path.reach(value, c, multiplier, newton)
        good = fits(path.step(value, multiplier))
        small, large = torch.where(good, middle, small), torch.where(good, large, middle)
    value = path.value(small)
    held = path.step(value, path.reach(value, c, multiplier, newton + 5))
    held = torch.where(_length(held) <= 1.001 * radius, held, _farthest(b, radius, low, high))
    return torch.where(fits(free), free, held).reshape(shape)


def _length(d: Tensor) -> Tensor:
    return torch.linalg.vector_norm(d, dim=1, keepdim=True)


class _Path:
    """d(v, t) of one norm; all tensors (B, n), v and t (B, 1).

    l2: clip(v home - t b), v in [0, 1]. l1: home, cut off at v on both sides of -t b, then clipped. linf: -t b, cut off at v on both
    sides of home, then clipped; v is the linf distance that is left.
    """

    def __init__(self, home: Tensor, b: Tensor, low: Tensor, high: Tensor, radius: Tensor, norm: float):
        self.home, self.b, self.low, self.high, self.radius, self.norm = home, b, low, high, radius, norm
        self.away = home.abs().amax(1, keepdim=True)
        self.widest = (high - low).amax(1, keepdim=True) + self.away

    @property
    def unhindered(self) -> Tensor:
        """(B, 1) the v at which the radius plays no part."""
        return torch.zeros_like(self.away) if self.norm == float("inf") else torch.ones_like(self.away) if self.norm == 2 else self.widest

    def value(self, part: Tensor) -> Tensor:
        """(B, 1) v for a ``part`` in [0, 1], from the shortest step that reaches the half-space to the longest that can matter."""
        if self.norm == float("inf"):
            # No entry moves farther than the radius, so the distance left is within that of the present one.
            return (self.away + self.radius * (1 - 2 * part)).clamp_min(0)
        # In double precision, since the last bit of a float32 power depends on the place in the batch.
        return self.unhindered * torch.exp2(OCTAVES * (part.double() - 1)).to(part.dtype)

    def _window(self, v: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The step before it is clipped, and the bounds it is clipped to."""
        down = -t * self.b
        if self.norm == 2:
            return v * self.home + down, self.low, self.high
        if self.norm == 1:
            return torch.minimum(torch.maximum(self.home, down - v), down + v), self.low, self.high
        return down, torch.maximum(self.low, self.home - v), torch.minimum(self.high, self.home + v)

    def step(self, v: Tensor, t: Tensor) -> Tensor:
        raw, low, high = self._window(v, t)
        return clip(raw, low, high)

    def reach(self, v: Tensor, c: Tensor, first: Tensor, steps: int) -> Tensor:
        """(B, 1) the smallest multiplier t >= 0 with b.d(v, t) <= c, by Newton's method kept inside a bracket; ``first`` is a guess."""
        below, above = torch.zeros_like(c), torch.full_like(c, float("inf"))
        t = first
        for index in range(steps):
            raw, low, high = self._window(v, t)
            excess = (self.b * clip(raw, low, high)).sum(1, keepdim=True) - c
            enough = excess <= 0
            above = torch.where(enough, torch.minimum(above, t), above)
            below = torch.where(enough, below, torch.maximum(below, t))
            if index == steps - 1:
                break
            moving = (raw > low) & (raw < high)
            if self.norm == 1:
                moving &= raw != self.home
            slope = (self.b.square() * moving).sum(1, keepdim=True)
            # A hair more than Newton's step keeps to the side where the half-space is reached.
            newton = t + excess / slope.clamp_min(TINY)
            newton = newton + 1e-6 * newton.abs()
            halfway = torch.where(torch.isfinite(above), (below + above) / 2, 2 * t + 1e-3 * self.widest)
            good = (newton > below) & (newton < above) & (slope > 0)
            # Where t = 0 already reaches it, the half-space does not bind.
            t = torch.where(enough & (t == 0), t, torch.where(good, newton, torch.where(enough & (newton <= 0), below, halfway)))
        return torch.where(torch.isfinite(above), above, t)


def _farthest(b: Tensor, radius: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """(B, n) the step of length ``radius`` (B, 1) against ``b`` inside the box that lowers b.d most: clip(-t b), t by doubling and bisection."""
    below, above = torch.zeros_like(radius), radius.clone()
    for _ in range(12):
        short = torch.linalg.vector_norm(clip(-above * b, low, high), dim=1, keepdim=True) < radius
        below, above = torch.where(short, above, below), torch.where(short, 2 * above, above)
    for _ in range(12):
        middle = (below + above) / 2
        short = torch.linalg.vector_norm(clip(-middle * b, low, high), dim=1, keepdim=True) < radius
        below, above = torch.where(short, middle, below), torch.where(short, above, middle)
    return clip(-below * b, low, high)
