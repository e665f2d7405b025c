"""Steps that several attacks share: the shortest way to the nearest linearised boundary, and drawing a found point back
to the image."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.problem import Problem, Query
from ..tensors import per_image
from .projections import bounds, length, to_halfspace

# A step gains the need up to the rounding of its sum; one that gains clearly less was stopped by the box.
SHORT = 1e-3
# A step shorter than this part of the way already gone is near enough to be trusted whole.
NEAR = 0.1
FAR = 1e6


def leading_plane(query: Query, rival: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The normal w (R, ...) and the need (R,) of the linearised boundary w.d >= need where the margin of the
    goal, or that of the classes ``rival`` (R,), turns negative.

    One backward pass. Half again the tolerance is needed, so that a point on the plane passes it. Where the logits are
    not finite: zeros.
    """
    if rival is None:
        margin, slope = query.margin, query.margin_gradient(keep=True)
    else:
        value = query.goal.rival_margin(query.logits, rival)
        margin, slope = value.detach(), query.gradient(value, keep=True)
    normal, need = -slope, margin + 1.5 * query.tolerance
    return normal, torch.where(query.valid, need, torch.zeros_like(need))


def to_nearest_plane(
    problem: Problem,
    query: Query,
    images: Tensor,
    candidates: int,
    norm: float,
    known: tuple[Tensor, Tensor] | None = None,
    boxed: bool = True,
) -> Tensor:
    """The shortest step d (R, ...) in ``norm`` and inside the box from the query's points, of the images ``images``
    (R,), to a linearised boundary.

    The boundaries to the ``candidates`` - 1 classes with the largest logits beside the label are tried, one backward
    pass each (``known``: the normal and need of the first from an earlier pass); towards a target there is only the
    margin's own. Where the box stops all of them short: as far as it allows towards the first. ``boxed=False`` forgets
    the box.
    """
    low, high = bounds(problem.box.take(images, problem.x.shape[1:]), query.point)
    if not boxed:
        low, high = torch.full_like(low, -FAR), torch.full_like(high, FAR)
    normal, need = leading_plane(query) if known is None else known
    # A flat spot has no boundary in sight: a random way is tried.
    spread = torch.zeros_like(problem.x).index_copy(0, images, normal)
    stuck = torch.zeros_like(problem.found).index_fill(0, images, True)
    best = to_halfspace(problem.replace_zero_gradients(spread, stuck)[images], need, low, high, norm)
    ways = query.goal.rivals(query.values)
    if ways is None or candidates < 3:
        return best
    shortest = _reach(best, normal, need, norm)
    for rival in ways[:, 1 : candidates - 1].unbind(1):
        normal, need = leading_plane(query, rival)
        step = to_halfspace(normal, need, low, high, norm)
        reach = _reach(step, normal, need, norm)
        closer = reach < shortest
        shortest = torch.where(closer, reach, shortest)
        best = torch.where(per_image(closer, best), step, best)
    return best


def stride(move: Tensor, gone: Tensor, norm: float, damping: float | Tensor, overshoot: float) -> Tensor:
    """(R,) how much of each step ``move`` (R, ...) to take, ``gone`` (R, ...) being the way so far: a little more than
    all of it, but only ``damping`` (one number or (R,)) of one that leads far beyond where its linearisation can be
    trusted; 1: all are trusted."""
    far = (length(move, norm) > NEAR * length(gone, norm)) & (damping < 1)
    return torch.where(far, damping, 1 + overshoot)


def _reach(step: Tensor, normal: Tensor, need: Tensor, norm: float) -> Tensor:
    """(R,) the length of the steps (R, ...), infinite where they fall short of the need or there is no slope."""
    gain = (step * normal).flatten(1).sum(1)
    flat = (normal.flatten(1) == 0).all(1)
    return torch.where((gain < (1 - SHORT) * need) | flat, torch.full_like(gain, float("inf")), length(step, norm))


def pull_back(problem: Problem, forwards: int, left: Tensor) -> None:
    """Bisects the segment from the clean image to the best point with ``forwards`` passes, fewer where ``left`` (B,)
    says so; no backward."""
    delta = problem.best_point - problem.x
    near, far = torch.zeros_like(problem.best_distance), torch.ones_like(problem.best_distance)
    with problem.round():
        for used in range(forwards):
            problem.release(~problem.found | (left <= used))
            middle = (near + far) / 2
            query = problem.query(problem.x + per_image(middle, delta) * delta, grad=False)
            near, far = torch.where(query.success, near, middle), torch.where(query.success, middle, far)
