"""Steps that several attacks use: the shortest step to the nearest linearised boundary, and a bisection from a success
towards the image."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..core import Problem, Query
from ..tensors import SMALL, per_image
from .projections import bounds, clip, dual_length, length, to_halfspace

# A step reaches the required gain up to rounding; one that gains clearly less was stopped by the box.
SHORT = 1e-3
# A step shorter than this share of the perturbation is not damped.
NEAR = 0.1
FAR = 1e6


def leading_plane(query: Query, rival: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The normal w (R, ...) and the need (R,) of the linearised boundary w.d >= need where the margin of the
    goal, or that of the classes ``rival`` (R,), turns negative.

    Takes one backward pass. The need includes 1.5 times the tolerance, so that a point on the plane is a success. Zeros
    if the logits are not finite.
    """
    if rival is None:
        margin, slope = query.margin, query.margin_gradient(keep=True)
    else:
        value = query.goal.rival_margin(query.logits, rival)
        margin, slope = value.detach(), query.gradient(value, keep=True)
    normal, need = -slope, margin + 1.5 * query.tolerance
    return normal, torch.where(query.valid, need, torch.zeros_like(need))


def nearest_plane(
    query: Query, rivals: Tensor, norm: float, reachable: Callable[[Tensor, Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The nearest of the linearised boundaries w.d = need between the label and each of ``rivals``.

    The distance is |need| / |w|_q, q dual to ``norm``. Takes one backward pass for each rival.

    Args:
        query: the points at which the boundaries are linearised.
        rivals: other classes, shape (R, C).
        norm: 1, 2 or inf.
        reachable: maps w and need of one boundary per row to whether it can be reached, shape (R,). A boundary that
            cannot be reached is chosen only if none of the row's boundaries can be.

    Returns:
        The class (R,), its normal w (R, ...) and need (R,).
    """
    rival, nearest, missed = rivals[:, 0], query.margin, torch.ones_like(query.success)
    normal, need = torch.zeros_like(query.point), torch.zeros_like(query.margin)
    for index, other in enumerate(rivals.unbind(1)):
        w, needed = leading_plane(query, other)
        away = _distance(w, needed, norm)
        misses = torch.zeros_like(missed) if reachable is None else ~reachable(w, needed)
        better = (missed & ~misses) | ((missed == misses) & (away < nearest))
        closer = better if index else torch.ones_like(missed)
        rival, need = torch.where(closer, other, rival), torch.where(closer, needed, need)
        normal = torch.where(per_image(closer, w), w, normal)
        nearest, missed = torch.where(closer, away, nearest), torch.where(closer, misses, missed)
    return rival, normal, need


def deepfool_step(
    problem: Problem,
    query: Query,
    point: Tensor,
    candidates: int,
    damping: float | Tensor,
    overshoot: float,
    known: tuple[Tensor, Tensor] | None = None,
    boxed: bool = True,
) -> Tensor:
    """The points of ``query`` after the shortest step to a linearised boundary, or a point half way back from ``point``
    if the logits are not finite. Moosavi-Dezfooli et al., CVPR 2016, Algorithm 2.

    Args:
        problem: the problem, whose distance is the norm of the step.
        query: a query at R points, of the images ``query.images``.
        point: the iterates of all images, shape (B, ...).
        candidates: the boundaries to ``candidates`` - 1 of the largest logits besides the label are tried, with one
            backward pass each; for a target, only the margin's boundary.
        damping: factor of a step longer than a tenth of the perturbation, whose linearisation is unreliable; a number
            or shape (R,); 1: no damping.
        overshoot: factor by which a step passes the boundary.
        known: normal and need of the first boundary from an earlier pass.
        boxed: whether the step is the shortest inside the box; if no boundary can be reached, it goes as far as
            possible towards the first.

    Returns:
        The points (R, ...), not yet projected onto the box.
    """
    norm = problem.norm
    images = torch.arange(len(problem), device=point.device) if query.images is None else query.images
    low, high = bounds(problem.box.take(images, problem.x.shape[1:]), query.point)
    if not boxed:
        low, high = torch.full_like(low, -FAR), torch.full_like(high, FAR)
    normal, need = leading_plane(query) if known is None else known
    # With a zero gradient there is no linearised boundary; a random direction is used.
    spread = torch.zeros_like(problem.x).index_copy(0, images, normal)
    others = torch.ones_like(problem.found).index_fill(0, images, False)
    best = to_halfspace(problem.replace_zero_gradients(spread, others)[images], need, low, high, norm)
    shortest, ways = _reach(best, normal, need, norm), query.goal.rivals(query.values)
    for rival in () if ways is None else ways[:, 1 : candidates - 1].unbind(1):
        normal, need = leading_plane(query, rival)
        step = to_halfspace(normal, need, low, high, norm)
        reach = _reach(step, normal, need, norm)
        closer = reach < shortest
        shortest = torch.where(closer, reach, shortest)
        best = torch.where(per_image(closer, best), step, best)
    far = (length(best, norm) > NEAR * length(query.point - problem.x[images], norm)) & (damping < 1)
    moved = query.point + per_image(torch.where(far, damping, 1 + overshoot), best) * best
    return torch.where(per_image(query.valid, moved), moved, problem.midway(point)[images])


def _distance(normal: Tensor, need: Tensor, norm: float) -> Tensor:
    """(R,) the distance of the planes normal.d = need without a box; infinite for a zero ``normal`` (R, ...)."""
    # Scaled first: the squares of a saturated model's slopes overflow.
    largest = normal.flatten(1).abs().amax(1)
    scale = torch.where(largest > 0, largest, torch.ones_like(largest))
    away = need.abs() / scale / dual_length(normal / per_image(scale, normal), norm).clamp_min(SMALL)
    return torch.where(largest > 0, away, torch.inf)


def _reach(step: Tensor, normal: Tensor, need: Tensor, norm: float) -> Tensor:
    """(R,) the length of the steps (R, ...), infinite if they do not reach the need or the gradient is zero."""
    gain = (step * normal).flatten(1).sum(1)
    flat = (normal.flatten(1) == 0).all(1)
    return torch.where((gain < (1 - SHORT) * need) | flat, torch.full_like(gain, float("inf")), length(step, norm))


def pull_back(problem: Problem, forwards: int, left: Tensor | None = None, cut: bool = False) -> None:
    """Bisect the segment from the clean image to the best point, without backward passes.

    Args:
        problem: the problem; images without a best point are left out.
        forwards: number of bisections.
        left: remaining forwards of each image, shape (B,), if they may be fewer.
        cut: whether the perturbation is clipped to a level (linf) instead of scaled.
    """
    delta = problem.best_point - problem.x
    largest = delta.flatten(1).abs().amax(1)
    near, far = torch.zeros_like(largest), torch.ones_like(largest)
    with problem.round():
        for used in range(forwards):
            problem.release(~problem.found if left is None else ~problem.found | (left <= used))
            middle = (near + far) / 2
            level = per_image(middle * largest, delta)
            part = clip(delta, -level, level) if cut else per_image(middle, delta) * delta
            query = problem.query(problem.x + part, grad=False)
            near, far = torch.where(query.success, near, middle), torch.where(query.success, middle, far)
