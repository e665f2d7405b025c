"""Projections onto balls and half-spaces and proximal maps of norms, exact with the box.

A change d of an image is bounded by ``low`` <= d <= ``high``, both of shape (B, ...), which ``bounds`` computes from
the box and its mask. All functions work image by image and return the shape of their argument. Each solves its problem
by sorting the points at which a piecewise function of one multiplier changes its form.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.box import Box
from ..tensors import TINY, ranks


def bounds(box: Box, x: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds (low, high) (B, ...) of a change of ``x`` (B, ...) in the box; zero where the mask forbids change."""
    return box.free(box.lo - x), box.free(box.hi - x)


def to_levels(box: Box, point: Tensor, levels: int) -> Tensor:
    """``point`` (B, ...) with each value rounded to the nearest of ``levels`` evenly spaced levels of the box."""
    count = levels - 1
    return box.lo + box.sides * (((point - box.lo) * (count / box.sides)).round() / count)


def length(d: Tensor, norm: float) -> Tensor:
    """(B,) the l0, l1, l2 or linf length of ``d`` (B, ...)."""
    lengths: Tensor = torch.linalg.vector_norm(d.flatten(1), ord=norm, dim=1)
    return lengths


def dual_length(w: Tensor, norm: float) -> Tensor:
    """(B,) the length of ``w`` (B, ...) in the norm dual to ``norm``: linf for l1, l2 for l2, l1 for linf."""
    return length(w, {1.0: float("inf"), 2.0: 2.0, float("inf"): 1.0}[norm])


def _cap(z: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The largest change of each value in the direction of ``z`` inside the box."""
    return torch.where(z > 0, high, -low)


def clip(d: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """``d`` between ``low`` and ``high``, all (B, ...)."""
    return torch.clamp(d, low, high)


def to_halfspace(w: Tensor, need: Tensor, low: Tensor, high: Tensor, norm: float) -> Tensor:
    """argmin |d|_norm subject to <w, d> >= need and low <= d <= high.

    With the span s of each value in the direction of w: l1 fills the values with the largest |w| first; l2 has
    |d| = min(nu |w|, s), linf |d| = min(tau, s), with the multiplier at which the gain, piecewise linear in it, meets
    the need.

    Args:
        w: normal of the half-space, shape (B, ...).
        need: gain to reach, shape (B,); d = 0 where it is not positive.
        low: lower bounds of d, shape (B, ...).
        high: upper bounds of d, shape (B, ...).
        norm: 1, 2 or inf.

    Returns:
        The changes d, shape (B, ...); if the box does not allow the need, those with the largest gain.
    """
    shape, flat = w.shape, w.flatten(1)
    scale = flat.abs().amax(1).clamp_min(TINY)
    gain = flat.abs() / scale.unsqueeze(1)
    span = torch.where(gain > 0, _cap(flat, low.flatten(1), high.flatten(1)), torch.zeros_like(gain))
    required = (need / scale).clamp_min(0).double().unsqueeze(1)
    move = _fill_steepest(gain, span, required) if norm == 1 else _raise_together(gain, span, required, norm)
    move = torch.where(required > 0, move, torch.zeros_like(move))
    return (move * flat.sign()).reshape(shape)


def l0_distance(w: Tensor, need: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """(B,) the smallest number of non-zero values of a d with <w, d> >= need and low <= d <= high."""
    most = (w * torch.where(w > 0, high, low)).flatten(1)
    reached = most.sort(dim=1, descending=True).values.double().cumsum(1)
    return (reached < need.unsqueeze(1)).sum(1).add(1).clamp_max(most.shape[1]).to(w.dtype) * (need > 0)


def _fill_steepest(gain: Tensor, span: Tensor, required: Tensor) -> Tensor:
    order = gain.argsort(dim=1, descending=True)
    reached = (gain * span).gather(1, order).double().cumsum(1)
    last = (reached < required).sum(1, keepdim=True)
    rank = ranks(order)
    at = last.clamp_max(order.shape[1] - 1)
    before = torch.where(at > 0, reached.gather(1, (at - 1).clamp_min(0)), torch.zeros_like(required))
    part = ((required - before) / gain.gather(1, order).gather(1, at).clamp_min(TINY)).clamp_min(0).to(span.dtype)
    return torch.where(
        rank < last, span, torch.where(rank == last, torch.minimum(part.expand_as(span), span), torch.zeros_like(span))
    )


def _raise_together(gain: Tensor, span: Tensor, required: Tensor, norm: float) -> Tensor:
    rate = (gain > 0).to(gain.dtype) if norm == float("inf") else gain
    stops = (span / rate.clamp_min(TINY)).clamp_max(1 / TINY)
    order = stops.argsort(dim=1)
    stopped = (gain * span).gather(1, order).double()
    moving = (gain * rate).gather(1, order).double()
    fixed = stopped.cumsum(1) - stopped
    slope = moving.flip(1).cumsum(1).flip(1)
    reached = fixed + stops.gather(1, order).double() * slope
    last = (reached < required).sum(1, keepdim=True)
    at = last.clamp_max(order.shape[1] - 1)
    level = (required - fixed.gather(1, at)) / slope.gather(1, at).clamp_min(TINY)
    level = (
        torch.where(last < order.shape[1], level, torch.full_like(level, 1 / TINY)).clamp(0, 1 / TINY).to(span.dtype)
    )
    return torch.minimum(level * rate, span)


def onto_ball(z: Tensor, radius: Tensor, low: Tensor, high: Tensor, norm: float) -> Tensor:
    """argmin |d - z|_2 subject to |d|_norm <= radius and low <= d <= high.

    l1: clip(soft(z, lambda)), Duchi et al., ICML 2008, with the box; l2: clip(s z); linf: clip(z, -r, r); l0: the
    ``radius`` values whose distance from zero is reduced most.

    Args:
        z: points, shape (B, ...).
        radius: radii, shape (B,).
        low: lower bounds of d, shape (B, ...).
        high: upper bounds of d, shape (B, ...).
        norm: 0, 1, 2 or inf.

    Returns:
        Projected points, shape (B, ...).
    """
    shape, z, low, high = z.shape, z.flatten(1), low.flatten(1), high.flatten(1)
    radius = radius.unsqueeze(1)
    if norm == float("inf"):
        d = clip(clip(z, -radius, radius), low, high)
    elif norm == 0:
        inside = clip(z, low, high)
        d = _keep_largest(inside, z.square() - (z - inside).square(), radius)
    elif norm == 1:
        d = _onto_l1(z, radius, low, high)
    else:
        d = _onto_l2(z, radius, low, high)
    return d.reshape(shape)


def _keep_largest(d: Tensor, decrease: Tensor, count: Tensor) -> Tensor:
    rank = ranks(decrease.argsort(dim=1, descending=True))
    return torch.where(rank < count, d, torch.zeros_like(d))


def _onto_l1(z: Tensor, radius: Tensor, low: Tensor, high: Tensor) -> Tensor:
    size = z.abs()
    cap = torch.minimum(size, _cap(z, low, high))  # the box has an effect only if it is nearer than z
    # |d|_1 as lambda falls: slope -1 from |z| on, back to 0 from |z| - cap on.
    breaks = torch.cat([size, size - cap], 1)
    turns = torch.cat([torch.ones_like(size), -torch.ones_like(size)], 1)
    breaks, order = breaks.sort(dim=1, descending=True)
    slope = turns.gather(1, order).cumsum(1)
    grown = ((breaks[:, :-1] - breaks[:, 1:]).double() * slope[:, :-1].double()).cumsum(1)
    grown = torch.cat([torch.zeros_like(grown[:, :1]), grown], 1)
    at = (grown < radius).sum(1, keepdim=True).sub_(1).clamp_(0, breaks.shape[1] - 1)
    short = (radius - grown.gather(1, at)) / slope.gather(1, at).clamp_min(1)
    level = (breaks.gather(1, at) - short.clamp_min(0)).clamp_min(0).to(z.dtype)
    shrunk = torch.minimum((size - level).clamp_min(0), cap)
    return torch.where(cap.sum(1, keepdim=True) <= radius, cap, shrunk) * z.sign()


def _onto_l2(z: Tensor, radius: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """clip(level z) with the level at which its length, piecewise in the level, is the radius; level 1 if that fits."""
    inside, square = clip(z, low, high), radius.double().square()
    # The level from which the box limits a value; the position of zeros does not matter.
    stops, order = (inside / z).nan_to_num_(nan=0.0).sort(dim=1)
    capped, free = torch.stack([inside, z]).gather(2, order.expand(2, -1, -1)).double().square_()
    fixed, moving = capped.cumsum(1) - capped, free.flip(1).cumsum(1).flip(1)
    reached = fixed + stops.double().square_() * moving
    at = (reached < square).sum(1, keepdim=True).clamp_max(order.shape[1] - 1)
    level = (square - fixed.gather(1, at)) / moving.gather(1, at).clamp_min(TINY)
    return clip(level.clamp(0, 1).sqrt().to(z.dtype) * z, low, high)


def proximal(z: Tensor, weight: Tensor, metric: Tensor, low: Tensor, high: Tensor, norm: float) -> Tensor:
    """argmin of weight |d|_norm + sum metric (d - z)^2 / 2 subject to low <= d <= high.

    l1: clip(soft(z, weight / metric)); l0 and l2/3 compare their stationary point with zero, value by value; in l2 and
    linf the multiplier is found by bisection.

    Args:
        z: points, inside the box or not, shape (B, ...).
        weight: weights of the norm, at least 0, shape (B,).
        metric: weights of the squares, positive, shape (B, ...).
        low: lower bounds of d, shape (B, ...).
        high: upper bounds of d, shape (B, ...).
        norm: 0, 2/3, 1, 2 or inf.

    Returns:
        The minimisers, shape (B, ...).
    """
    shape = z.shape
    z, metric, low, high = z.flatten(1), metric.flatten(1), low.flatten(1), high.flatten(1)
    size, cap, weight = z.abs(), _cap(z, low, high), weight.unsqueeze(1)
    inside = torch.minimum(size, cap)
    if norm == 1:
        d = torch.minimum((size - weight / metric).clamp_min(0), cap)
    elif norm == 2:
        d = _proximal_l2(size, cap, inside, weight, metric)
    elif norm == float("inf"):
        d = _proximal_linf(size, inside, weight, metric)
    else:
        candidate = inside if norm == 0 else torch.minimum(_stationary_two_thirds(size, weight / metric), cap)
        cost = (
            weight * (candidate > 0 if norm == 0 else _power(candidate, norm))
            + metric * (candidate - size).square() / 2
        )
        d = torch.where(cost < metric * size.square() / 2, candidate, torch.zeros_like(candidate))
    return (d * z.sign()).reshape(shape)


def _proximal_l2(size: Tensor, cap: Tensor, inside: Tensor, weight: Tensor, metric: Tensor) -> Tensor:
    """d(t) = min(h z / (h + t), cap) with t |d(t)| = weight, which grows with t; zero where weight >= |h z|."""
    longest = torch.linalg.vector_norm(inside, dim=1, keepdim=True).clamp_min(TINY)
    limit = torch.linalg.vector_norm(metric * size, dim=1, keepdim=True)
    below = weight / longest
    # t d(t) >= weight once every value has d(t) >= weight z / |h z| or so; doubling ends because the limit exceeds the
    # weight.
    above = below.clamp_min(TINY)
    for _ in range(60):
        reached = (
            above * torch.linalg.vector_norm(torch.minimum(metric * size / (metric + above), cap), dim=1, keepdim=True)
            >= weight
        )
        if bool((reached | (limit <= weight)).all()):
            break
        above = torch.where(reached, above, 2 * above)
    for _ in range(30):
        middle = (below + above) / 2
        short = (
            middle
            * torch.linalg.vector_norm(torch.minimum(metric * size / (metric + middle), cap), dim=1, keepdim=True)
            < weight
        )
        below, above = torch.where(short, middle, below), torch.where(short, above, middle)
    return torch.where(limit > weight, torch.minimum(metric * size / (metric + below), cap), torch.zeros_like(size))


def _proximal_linf(size: Tensor, inside: Tensor, weight: Tensor, metric: Tensor) -> Tensor:
    """d(tau) = min(inside, tau), with tau such that the sum of h (z - tau) over the values limited by tau equals the
    weight."""
    below, above = torch.zeros_like(weight), inside.amax(1, keepdim=True)
    for _ in range(30):
        middle = (below + above) / 2
        held = inside > middle
        strong = (torch.where(held, metric * (size - middle), torch.zeros_like(size))).sum(1, keepdim=True) > weight
        below, above = torch.where(strong, middle, below), torch.where(strong, above, middle)
    return torch.minimum(inside, above)


def _stationary_two_thirds(size: Tensor, weight: Tensor) -> Tensor:
    """The larger root u of u + (2/3) weight u^(-1/3) = size, by Newton steps from ``size`` downwards; 0 where there is
    none."""
    lowest = _power((2 / 9 * weight).clamp_min(TINY), 0.75)
    has_root = lowest + 2 / 3 * weight * _power(lowest, -1 / 3) <= size
    u = torch.maximum(size, lowest)
    for _ in range(8):
        value = u + 2 / 3 * weight * _power(u, -1 / 3) - size
        slope = 1 - 2 / 9 * weight * _power(u, -4 / 3)
        u = torch.where(slope > 1e-6, torch.maximum(u - value / slope.clamp_min(1e-6), lowest), u)
    return torch.where(has_root, u, torch.zeros_like(u))


def _power(values: Tensor, exponent: float) -> Tensor:
    """``values`` ** ``exponent`` for values >= 0. torch.pow is not used, because its last bit depends on the position
    in the batch."""
    return torch.exp(exponent * torch.log(values))
