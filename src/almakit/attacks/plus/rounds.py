"""How a budget is spent on l1 and l2: one search and a polish, or from 180 passes on several searches that differ, then the polish."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...core import Problem
from ...core.steps import per_image
from .far import far_start
from .lagrangian import Lagrangian, lagrangian
from .margins import Direction, towards, untargeted
from .others import brendel_bethge, fast_minimum_norm
from .polish import polish
from .scan import Scan

# What one search and its polish are worth spending, and the passes of that polish, where several follow one another.
SLOT, TOUCH = 90, 15
# The budget below which l1 is searched by FMN alone and then walked; how much FMN's radius may change in a step there, and the part that is walked.
BRIEF, HASTE, BRIEF_SHARE = 50, 0.6, 0.25


@dataclass(frozen=True)
class Sizes:
    """The first step in units of the linearised distance to the boundary, the weight of the distance, two caps, a threshold, the polish's share.

    Where the gradient at the clean image is flattened by training, the linearised distance is many times the true one; the caps, in units of
    the square root of the number of values times the box's width, keep the first step and the unit in reach of what is plausible. In the same unit:
    images whose linearised distance is below ``near`` are searched by FMN, which picks few values better.
    """

    first: float
    weight: float
    step_cap: float
    unit_cap: float
    near: float
    polish: float


SIZES = {1.0: Sizes(0.8, 8.0, 0.286, 1.07, 0.2, 0.2), 2.0: Sizes(0.2, 4.5, 0.057, float("inf"), 0.0, 0.1)}
# Where more than this part of the clean margin is left at the linearised boundary, the gradient at the clean image may say little.
MISLED = 0.25
# Passes below which there is no time to look at an image from outside, or to tell a rough one.
OUTSIDE = 60
# The part of a rough image's passes that it walks, and how often the walk's radius is halved: there, after FMN, and after FMN with a short budget.
ROUGH_SHARE, ROUGH_HALVINGS, NEAR_HALVINGS, BRIEF_HALVINGS = 0.35, 4, 6, 3


@dataclass(frozen=True)
class Walk:
    """A walk from outside: the bisections before it, the halvings of its trust radius, and the passes set aside for strides and bisections.

    B&B's default at 100 steps, five halvings, is 8 % worse in l1 on the interval-trained network, which the walk is for.
    """

    bisections: int
    halvings: int
    start: int


# Where the walk has found less than this part of what the search before it did, all later searches of the image are walks.
WORTH = 0.9
# The only search of an image has time for a better start; as one of several it is short and ends sooner.
ALONE, ONE_OF_SEVERAL = Walk(7, 8, 12), Walk(4, 10, 10)


def searches(problem: Problem, passes: int, norm: float, scan: Scan, still: Tensor) -> None:
    """Spends ``passes`` queries in one or more searches and a polish of what they found; ``still`` (B,) is the margin at the linearised boundary."""
    sizes = SIZES[norm]
    typical = problem.x[0].numel() ** 0.5 * problem.box.width
    unit = scan.unit.clamp_max(sizes.unit_cap * typical)
    base = Lagrangian(first=(sizes.first * scan.unit).clamp_max(sizes.step_cap * typical) / unit, weight=sizes.weight)
    near = scan.unit < sizes.near * typical
    slots = max(1, passes // SLOT)
    misled = (still > MISLED * scan.margin) & (passes >= OUTSIDE)
    # A few passes at least: images of which nothing is known yet use them to stride across the box.
    last = 20 if slots > 1 else max(int(sizes.polish * passes), min(8, passes // 5))
    if slots == 1:
        groups = [(~misled, 0)]
        with chosen(problem, misled):
            # The walk ends at the boundary: what it would leave to a polish it takes itself.
            groups += _from_outside(problem, scan, passes, True, ALONE)
        for others, spent in groups:
            with chosen(problem, others & near):
                fast_minimum_norm(problem, passes - last - spent)
                _finish(problem, last, NEAR_HALVINGS, norm)
            with chosen(problem, others & ~near):
                _lagrangian(problem, passes - spent, last, norm, unit, scan, misled, base)
        return
    # The last polish works on the best of all; each Lagrangian search has one of its own before, since which basin is best shows only at its bottom.
    first_takes = 2 if slots > 5 else 1
    share, number, left = (passes - last) // slots, 0, passes - last
    walks = torch.zeros_like(misled)
    while left:
        length = min(left, share * (first_takes if number == 0 else 1))
        length = left if left - length < share else length
        sparse = near & (number == 0)
        from_far = misled | (slots > 5) if number == 1 else walks
        before = problem.best_distance
        with chosen(problem, sparse):
            fast_minimum_norm(problem, length)
        groups = [(~sparse & ~from_far, 0)]
        with chosen(problem, from_far):
            # After the first time the way out begins in a random direction, drawn for these images alone.
            seen = scan if number == 1 else replace(scan, slope=problem.random.normal(walks.nonzero().flatten().tolist()))
            groups += _from_outside(problem, seen, length, slots <= 5 and number == 1, ONE_OF_SEVERAL)
        if number == 1:
            walks = from_far & (problem.best_distance < WORTH * before)
        settings, direction, start = _variant(problem, scan, base, norm, number)
        for others, spent in groups:
            with chosen(problem, others):
                _lagrangian(problem, length - spent, TOUCH, norm, unit, scan, misled, settings, start, direction)
        left, number = left - length, number + 1
    polish(problem, last, norm)


def brief_search(problem: Problem, passes: int) -> None:
    """l1 with few ``passes``: FMN from the clean image, its radius changing fast enough to arrive where the linearised distance is many times too large, then
    the walk. A scan would cost more than it tells, and a Lagrangian search has no time to thin out what it finds."""
    last = int(BRIEF_SHARE * passes)
    fast_minimum_norm(problem, passes - last, gamma=HASTE)
    _finish(problem, last, BRIEF_HALVINGS, 1.0)


def _lagrangian(problem: Problem, passes: int, last: int, norm: float, unit: Tensor, scan: Scan, misled: Tensor, settings: Lagrangian,
                start: Tensor | None = None, direction: Direction = untargeted) -> None:
    """Spends ``passes`` queries on a Lagrangian search and a polish of ``last``, or, for rough images that are not ``misled`` (B,), on a shorter search and a
    walk along the boundary.

    Without a ``start`` (B, ...) it is an image's only search, and what follows begins at the best point known; else at this search's own.
    """
    walk = max(last, int(ROUGH_SHARE * passes))
    # Where the clean gradient misled, the boundary is bent rather than rough, and a shorter search costs more than the walk gains.
    early = (passes - walk, ~misled) if passes >= OUTSIDE else None
    own, rough = lagrangian(problem, passes - last, unit, scan.height, settings, start, direction, early)
    own = problem.best_point if start is None else own
    with chosen(problem, ~rough):
        polish(problem, last, norm, start=own)
    with chosen(problem, rough):
        _finish(problem, walk, ROUGH_HALVINGS, norm, own)


def _finish(problem: Problem, passes: int, halvings: int, norm: float, start: Tensor | None = None) -> None:
    """A walk along the boundary from the best points known, or from ``start`` (B, ...); images of which nothing is known stride across the box."""
    found = problem.found
    with chosen(problem, found):
        brendel_bethge(problem, passes, halvings, start)
    with chosen(problem, ~found):
        polish(problem, passes, norm, start=start)


def _from_outside(problem: Problem, scan: Scan, passes: int, selective: bool, walk: Walk) -> list[tuple[Tensor, int]]:
    """Spends at most ``passes`` queries on a far start and the walk from there along the boundary. Images that did not walk, in groups (B,) with what each
    spent.

    The walk begins where the far start ended, not at a nearer point of an earlier search: from there it would find the same again.
    """
    with problem.afresh():
        reached, others = far_start(problem, scan, selective, walk.bisections)
        with chosen(problem, reached):
            brendel_bethge(problem, passes - walk.start, walk.halvings)
    return others


@contextmanager
def chosen(problem: Problem, images: Tensor) -> Iterator[None]:
    """Inside, only the marked ``images`` (B,) go through the model; without any, the first query ends it."""
    with problem.round():
        problem.release(~images)
        yield


def _variant(problem: Problem, scan: Scan, base: Lagrangian, norm: float, number: int) -> tuple[Lagrangian, Direction, Tensor]:
    """The settings, direction and start of a search: plain; bolder (l1) or more timid (l2); a random start; each likely rival; more random starts."""
    x, rivals = problem.x, scan.classes.shape[1]
    if number == 0:
        return base, untargeted, x
    if number == 1:
        return replace(base, first=2 * base.first, hot=0.02, cold=0.01) if norm == 1 else replace(base, first=base.first / 2), untargeted, x
    # Towards a target, or with one rival, there is no other way to choose.
    if 3 <= number < 3 + rivals and rivals > 1:
        # The nearest rival last: the searches before have mostly gone there.
        return base, towards(scan.classes[:, (number - 2) % rivals]), x
    noise = problem.random.normal()
    length = torch.linalg.vector_norm(noise.flatten(1), dim=1)
    reach = torch.linalg.vector_norm((problem.best_point - x).flatten(1), dim=1)
    start = problem.box.project_continuous(x + per_image(reach / length, x) * noise, x)
    if number == 2:
        return base, untargeted, start
    again = number - rivals
    settings = replace(base, alpha=0.8) if again % 4 == 3 else replace(base, first=base.first * (1.0, 2.0, 0.5)[again % 3])
    return settings, untargeted if again % 2 == 0 else towards(scan.classes[:, again % rivals]), start
