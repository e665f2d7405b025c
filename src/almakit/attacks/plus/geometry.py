"""Geometry of one linearised constraint inside a box: none of it calls the model."""

from __future__ import annotations

import torch
from torch import Tensor

from ...core import Box
from ...core.steps import per_image

TINY = 1e-30


def dot(a: Tensor, b: Tensor) -> Tensor:
    """(B,) inner products of images (B, ...)."""
    return (a * b).flatten(1).sum(1)


def room(x: Tensor, g: Tensor, box: Box) -> Tensor:
    """(B, ...) how far each value of ``x`` (B, ...) may go against the gradient ``g`` (B, ...) before the box stops it."""
    free = torch.where(g < 0, box.hi - x, x - box.lo) * (g != 0)
    return box.free(free)


def strided(x: Tensor, delta: Tensor, g: Tensor, box: Box, steps: int) -> Tensor:
    """(B, ...) ``delta`` (B, ...) one stride further against the gradient's signs: a sixth of the box, or as much as crosses it in ``steps`` - 1."""
    return box.project_continuous(x + delta - box.width / max(1, min(6, steps - 1)) * g.sign(), x) - x


def to_boundary(x: Tensor, g: Tensor, need: Tensor, box: Box, norm: float) -> tuple[Tensor, Tensor]:
    """The smallest d (B, ...) with g.d <= -need and x + d in the box, exactly, and its norm (B,), for norm 1, 2 or inf.

    ``x``, ``g`` (B, ...), ``need`` (B,) > 0. Where the box does not allow that much, it goes to 99.9 % of what it allows.
    """
    space, gain = room(x, g, box).flatten(1), g.abs().flatten(1)
    need = torch.minimum(need, 0.999 * (space * gain).sum(1)).clamp_min(TINY)
    if norm == 1:
        # Greedy: the steepest values first, each to its bound, the last one in part.
        order = gain.argsort(dim=1, descending=True, stable=True)
        worth = (gain * space).gather(1, order)
        before = worth.cumsum(1) - worth
        share = ((need.unsqueeze(1) - before) / worth.clamp_min(TINY)).clamp(0, 1)
        size = space * torch.zeros_like(space).scatter(1, order, share)
    else:
        rate = gain if norm == 2 else (gain > 0).to(gain.dtype)
        level = need / (gain * rate).sum(1).clamp_min(TINY)
        for _ in range(12):
            # Newton on a concave piecewise-linear function from below: monotone, exact once the set of stopped values is right.
            size = torch.minimum(level.unsqueeze(1) * rate, space)
            slope = (gain * rate * (level.unsqueeze(1) * rate < space)).sum(1).clamp_min(TINY)
            level = level + ((need - (gain * size).sum(1)) / slope).clamp_min(0)
        size = torch.minimum(level.unsqueeze(1) * rate, space)
    return -g.sign() * size.view_as(g), torch.linalg.vector_norm(size, ord=norm, dim=1)


def onto_halfspace(point: Tensor, x: Tensor, g: Tensor, level: Tensor, box: Box, metric: Tensor | None = None) -> Tensor:
    """The projection of the perturbations ``point`` (B, ...) onto {d: g.d <= level, x + d in the box}, in a diagonal ``metric`` (B, ...) > 0.

    u(nu) = clip(point - nu g/H) with nu >= 0 and g.u <= level (B,), by Newton steps on the values the box leaves free.
    """
    direction = g if metric is None else g / metric
    nu = torch.zeros_like(level)
    for _ in range(6):
        wanted = x + point - per_image(nu, x) * direction
        allowed = box.project_continuous(wanted, x)
        slope = (g * direction * (allowed == wanted)).flatten(1).sum(1)
        clipped = allowed - x
        nu = (nu + (dot(g, clipped) - level) / slope.clamp_min(TINY)).clamp(0, 1e30)
    return box.project_continuous(x + point - per_image(nu, x) * direction, x) - x


def shrink(delta: Tensor, amount: Tensor) -> Tensor:
    """Soft thresholding: every value of ``delta`` (B, ...) moved towards zero by ``amount`` (broadcast), stopping there."""
    return delta.sign() * (delta.abs() - amount).clamp_min(0)
