"""The soft walk, the default attack: along the decision boundary towards the image, again and again from other starts;
any distance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import Attack, Problem, Query
from ..core.attack import DistanceLike
from ..optim import SOLVERS, QuasiNewton, length, room, subproblem, to_halfspace
from ..tensors import per_image


@dataclass(frozen=True)
class Settings:
    """Every number of the attack; all are free of the image's, the distance's and the logits' scale. Of two, the first
    is for norms, the other for any other distance.

    ``queries``: what one walk is worth: a longer one finds little more, another one does. ``strides``: in so many an
    image crosses the box, each ``growth`` times as long as the one before: short ones first, because the class that is
    met first is mostly kept. ``bisections`` between the point found and the image. ``warm`` to ``cold``: temperature of
    the soft margin in standard deviations of the logits: all rivals first, the nearest last. ``momentum``: of the
    gradient. ``radius``: of the trust region, in the largest l2 distance of the walk so far; it is halved ``halvings``
    times in ``queries``. ``overshoot``: how much of the margin is asked for outside the goal; inside it, twice 1 minus
    that is given up. ``rivals``: looked at in the clean image, at most, one for every ``per_rival`` queries. ``fewer``:
    the share by which l0 changes the number of values, first and last. ``gradients`` of a distance that is no norm in a
    walk, of which the last ``memory`` tell its curvature; ``smoothing``: of their squares, the first guess of it.
    """

    queries: tuple[int, int] = (50, 100)
    strides: int = 14
    growth: float = 1.3
    bisections: int = 5
    warm: tuple[float, float] = (0.6, 0.2)
    cold: float = 0.02
    momentum: float = 0.8
    radius: float = 0.4
    halvings: float = 6.25
    overshoot: float = 1.1
    rivals: int = 9
    per_rival: int = 20
    fewer: tuple[float, float] = (0.5, 0.05)
    gradients: int = 400
    memory: int = 12
    smoothing: float = 0.95


SETTINGS = Settings()
EXACT = (1.0, 2.0, float("inf"))


@dataclass(frozen=True)
class SoftWalk(Attack):
    """Each step goes to the point of smallest distance where the linearised soft margin is met, inside a trust region
    and the box.

    A walk begins outside: signed strides along the gradient, from the clean image or a random point, until the goal is
    reached, and bisections back. Each query then gives the hard margin m and the gradient of a soft one, whose running
    average is b; the next point solves min D(x, x + delta) with b.(delta - delta_now) <= -1.1 m (-0.9 m inside the
    goal) in the box and a trust region that shrinks. A budget of N is about N/50 walks, the first from the clean image.
    Before them the linearised boundaries to the likely rivals are measured at the clean image and the nearest is tried:
    on a linear model that is the answer. l0 spends half of its budget on walks in l1 and thins the best point out with
    the rest. In a distance that is no norm every other walk, the first among them, begins inside: at the linearised
    boundary, later at the best point known. The walk is Brendel et al.'s (*Accurate, reliable and fast robustness
    evaluation*, NeurIPS 2019, eq. 1 to 3); docs/alma-plus.md says what is different.
    """

    title = "Soft walk"
    cost = "at most 1 forward, 1 backward per step"
    paper = "almakit; after Brendel et al., NeurIPS 2019"

    distance: DistanceLike = "l2"
    steps: int = 100

    def run(self, problem: Problem) -> None:
        total = self.steps if problem.budget is None else min(self.steps, problem.budget)
        norm = problem.bound.distance.norm
        thinning = total // 2 if norm == 0 else 0
        worth = _worth(problem, total - thinning, norm not in SOLVERS)
        walks = max(1, round((total - thinning) / worth))
        first, spent = look(problem, total, norm, walks)
        queries = total - thinning - spent
        for number in range(walks):
            share = queries // walks if number < walks - 1 else queries - number * (queries // walks)
            inside = norm not in SOLVERS and number % 2 == 0
            point = first if number == 0 else problem.best_point if inside else _somewhere(problem, problem.active)
            walk(problem, share, worth, point, norm, inside)
        if thinning:
            thin_out(problem, thinning)


def look(problem: Problem, total: int, norm: float | None, walks: int) -> tuple[Tensor, int]:
    """Where the first walk begins (B, ...) and the queries spent: the clean one and, in a ``norm`` whose linearised
    distances are exact, one at the nearest linearised boundary. What its backwards exceed the forwards of the last
    queries by is spent as well."""
    query, goal, x, limits = problem.start(), problem.goal, problem.x, room(problem.box, problem.x)
    warm = query.margin.new_full((len(x),), SETTINGS.warm[norm not in SOLVERS])
    if norm not in SOLVERS:
        return x + to_halfspace(
            -_slope(problem, query, warm), SETTINGS.overshoot * (query.margin + 2 * query.tolerance), *limits, 2
        ), 1
    ways = goal.rivals(query.values)
    most = 1 if ways is None else ways.shape[1]
    rivals = 0 if norm not in EXACT or total < 2 else max(1, min(SETTINGS.rivals, total // SETTINGS.per_rival, most))
    nearest, shortest = x, x.new_full((len(x),), float("inf"))
    for rank in range(rivals):
        margin = goal.margin(query.logits) if ways is None else goal.rival_margin(query.logits, ways[:, rank])
        need = margin.detach() + 3 * query.tolerance
        step = to_halfspace(-problem.replace_zero_gradients(query.gradient(margin, keep=True)), need, *limits, norm)
        reach = length(step, norm)
        nearest = torch.where(per_image(reach < shortest, x), x + step, nearest)
        shortest = torch.minimum(shortest, reach)
    slope = _slope(problem, query, warm)
    if rivals:
        problem.query(nearest, grad=False)
    point = problem.box.project_continuous(x - _strides(total)[0] * problem.box.sides * slope.sign(), x)
    return point, (2 + max(0, rivals + 1 - 2 - walks) if rivals else 1)


def walk(problem: Problem, queries: int, worth: int, point: Tensor, norm: float | None, inside: bool) -> None:
    """Spends ``queries`` (one is ``worth`` about so many) on a walk from ``point`` (B, ...): every image strides out,
    bisects and walks in its own time, one model call for all. From ``inside`` it walks at once, and images that half of
    the queries did not bring out stride."""
    s, x, box, free = SETTINGS, problem.x, problem.box, norm not in SOLVERS
    # Few queries leave the more for the distance: a walk follows its curvature about as far whatever its length.
    each = round(s.gradients / max(queries, 4))
    solver = (
        subproblem(x, box, norm) if norm in SOLVERS else QuasiNewton(problem.bound, box, each, s.memory, s.smoothing)
    )
    striding = queries // 2 if inside else queries
    strides, bisections = x.new_tensor(_strides(striding)), min(s.bisections, striding // 8)
    taken, left = torch.zeros_like(problem.forwards), torch.full_like(problem.forwards, 0 if inside else bisections)
    out, walking = torch.full_like(problem.found, not inside), torch.zeros_like(problem.found)
    far, near_part, far_part = x, x.new_zeros(len(x)), x.new_ones(len(x))
    begun, widest, boundary = x.new_zeros(len(x)), x.new_zeros(len(x)), torch.zeros_like(x)
    # A longer walk ends in a smaller region, but not by as much: halvings per query.
    rate = s.halvings / math.sqrt(worth * s.queries[free])
    for index in range(queries):
        query = problem.query(point, grad=index < queries - 1, distance_grad=free and index < queries - 1)
        problem.record(index, margin=query.margin, distance=query.distance, success=query.success)
        if index == queries - 1:
            break
        if inside and index == queries - striding:
            out = ~problem.found
            walking, left = walking & ~out, torch.where(out, bisections, left)
        bisecting, come = ~out & ~walking & (left > 0), out & query.success
        out = out & ~come
        far = torch.where(per_image(come, x), query.point, far)
        middle = (near_part + far_part) / 2
        near_part = torch.where(bisecting & ~query.success, middle, near_part)
        far_part = torch.where(bisecting & query.success, middle, far_part)
        left = left - bisecting.long()
        begins = ~out & ~walking & (left <= 0)
        walking = walking | begins
        delta = query.point - x
        begun, away = torch.where(begins, float(index), begun), length(delta, 2)
        widest = torch.where(begins, away, torch.maximum(widest, away))
        # In double precision, since the last bit of a float32 power depends on the place in the batch.
        phase = torch.where(walking, (index - begun) / (queries - begun), 0.0).double()
        radius = s.radius * widest * torch.exp2((begun - index).double() * rate).to(x.dtype)
        slope = _slope(problem, query, (s.warm[free] * torch.exp(phase * math.log(s.cold / s.warm[free]))).to(x.dtype))
        boundary = torch.where(per_image(walking & ~begins, x), s.momentum * boundary + (1 - s.momentum) * slope, slope)
        margin = query.margin + 2 * query.tolerance
        c = torch.where(margin > 0, -s.overshoot * margin, -(2 - s.overshoot) * margin)
        moved = query.point
        if not problem.cheap_sync or bool(walking.any()):
            moved = moved + solver.step(delta, boundary, c, radius, begins | ~walking, query.distance_gradient)
        if not problem.cheap_sync or not bool(walking.all()):
            ahead = per_image(strides[taken % len(strides)], x) * box.sides * slope.sign()
            stride = box.project_continuous(query.point - ahead, x)
            taken = taken + out.long()
            lost = out & (taken % len(strides) == 0)
            if not problem.cheap_sync or bool(lost.any()):
                stride = torch.where(per_image(lost, x), _elsewhere(problem, lost, taken // len(strides)), stride)
            part = x + per_image((near_part + far_part) / 2, x) * (far - x)
            moved = torch.where(per_image(walking, x), moved, torch.where(per_image(out, x), stride, part))
        point = problem.step_or_backtrack(query, moved, point)


def thin_out(problem: Problem, queries: int) -> None:
    """l0, from the best points known: the values with most to gain (smoothed gradient times the room the box leaves) go
    to the end of the box, all others back; fewer after a success, more after a failure, always fewer than the best so
    far."""
    s, x, box = SETTINGS, problem.x, problem.box
    low, high = room(box, x)
    average, point = torch.zeros_like(x), problem.best_point
    allowed = problem.best_distance.clamp(1, x[0].numel())
    for index in range(queries):
        query = problem.query(point, grad=index < queries - 1)
        problem.record(index, margin=query.margin, distance=query.distance, success=query.success)
        if index == queries - 1:
            break
        phase = index / max(queries - 2, 1)
        slope = _slope(problem, query, x.new_full((len(x),), s.warm[1] * (s.cold / s.warm[1]) ** phase))
        average = s.momentum * average + (1 - s.momentum) * slope / per_image(length(slope, 2).clamp_min(1e-30), x)
        share = s.fewer[0] * (s.fewer[1] / s.fewer[0]) ** phase
        wanted = torch.where(
            query.success | ~query.valid, (allowed * (1 - share)).floor(), (allowed * (1 + share)).ceil()
        )
        allowed = torch.minimum(wanted, problem.best_distance - 1).clamp(1, x[0].numel())
        move = torch.where(average < 0, high, low)
        gain = -(average * move).flatten(1)
        rank = gain.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        chosen = ((rank < allowed.unsqueeze(1)) & (gain > 0)).view_as(x)
        point = problem.step_or_backtrack(query, torch.where(chosen, x + move, x), point)


def _slope(problem: Problem, query: Query, temperature: Tensor) -> Tensor:
    """The gradient (B, ...) of the margin with its maximum softened over ``temperature`` (B,) standard deviations of
    the logits, which are not differentiated: on saturated logits a differentiated scale hides the margin's own
    gradient."""
    spread = problem.goal.spread(query.values).clamp_min(1e-12)
    return problem.replace_zero_gradients(
        query.gradient(problem.goal.soft_margin(query.logits, temperature * spread)), ~query.success
    )


def _worth(problem: Problem, total: int, free: bool) -> int:
    """The queries a walk is worth: those of the settings, where several boundaries meet 1 + log2 of their number as
    many, if there are so many in ``total``."""
    least = SETTINGS.queries[free]
    return max(least, min(total, round(least * (1 + math.log2(problem.goal.conditions)))))


def _strides(queries: int) -> list[float]:
    """The strides, in widths of the box, which they cross together; no more of them than a third of a short walk's
    ``queries``."""
    count = max(1, min(SETTINGS.strides, queries // 3))
    sizes = [SETTINGS.growth**number for number in range(count)]
    return [size / sum(sizes) for size in sizes]


def _somewhere(problem: Problem, images: Tensor) -> Tensor:
    """(B, ...) random points of the box for the marked ``images`` (B,)."""
    return problem.box.lo + problem.box.sides * problem.random.uniform(images.nonzero().flatten().tolist())


def _elsewhere(problem: Problem, lost: Tensor, times: Tensor) -> Tensor:
    """(B, ...) where images that strides did not bring out begin again: the box's two ends first, then random
    points."""
    point = _somewhere(problem, lost)
    for time, end in ((1, problem.box.lo), (2, problem.box.hi)):
        point = torch.where(per_image(times == time, point), end, point)
    return point
