"""The soft walk, the default attack: along the decision boundary towards the image, again and again from other starts;
any distance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import Attack, Problem, Query
from ..core.attack import DistanceLike
from ..optim import SOLVERS, QuasiNewton, Subproblem, bounds, length, subproblem, to_halfspace
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
        usual = queries_per_walk(problem, total - thinning)
        walks = max(1, round((total - thinning) / usual))
        point, spent = probe_clean(problem, total, walks)
        queries = total - thinning - spent
        for number in range(walks):
            share = queries // walks if number < walks - 1 else queries - number * (queries // walks)
            inside = norm not in SOLVERS and number % 2 == 0
            if number:
                point = problem.best_point if inside else random_points(problem, problem.active)
            walk(problem, share, usual, point, inside)
        if thinning:
            thin_out(problem, thinning)


def queries_per_walk(problem: Problem, total: int) -> int:
    """The length of a walk: that of the settings; 1 + log2 of their number as long where several boundaries meet, if
    there are so many queries in ``total``."""
    usual = SETTINGS.queries[problem.bound.distance.norm not in SOLVERS]
    return max(usual, min(total, round(usual * (1 + math.log2(problem.goal.conditions)))))


def probe_clean(problem: Problem, total: int, walks: int) -> tuple[Tensor, int]:
    """Query the clean image and, in a norm whose linearised distances are exact, the nearest linearised boundary.

    Args:
        problem: the images.
        total: the budget in queries.
        walks: how many walks follow; the last query of each needs no backward.

    Returns:
        The start of the first walk (B, ...), and the queries spent, to which backwards beyond the forwards are added.
    """
    norm = problem.bound.distance.norm
    query, goal, x, limits = problem.start(), problem.goal, problem.x, bounds(problem.box, problem.x)
    warm = query.margin.new_full((len(x),), SETTINGS.warm[norm not in SOLVERS])
    if norm not in SOLVERS:
        return x + to_halfspace(
            -soft_gradient(problem, query, warm), SETTINGS.overshoot * (query.margin + 2 * query.tolerance), *limits, 2
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
    slope = soft_gradient(problem, query, warm)
    if rivals:
        problem.query(nearest, grad=False)
    point = problem.box.project_continuous(x - strides(total)[0] * problem.box.sides * slope.sign(), x)
    return point, (2 + max(0, rivals + 1 - 2 - walks) if rivals else 1)


# The phases of a walk: out of the class, back to its boundary, along the boundary towards the clean image.
STRIDING, BISECTING, WALKING = 0, 1, 2


@dataclass
class WalkState:
    """Where the walk of every image is: tensors (B,), or (B, ...) where stated. Fields are replaced, not overwritten
    in place."""

    # Every query.
    point: Tensor
    """(B, ...) the next query."""
    phase: Tensor

    # Striding.
    strides: Tensor
    """Strides taken."""

    # Bisecting, between the clean image and the first point that reached the goal.
    outside: Tensor
    """(B, ...) that point."""
    near: Tensor
    """The share of the way to it that is known not to reach the goal."""
    far: Tensor
    """The share that is known to reach it."""
    bisections: Tensor
    """Bisections left."""

    # Walking.
    started_at: Tensor
    """The query of this walk at which the phase began."""
    max_distance: Tensor
    """The largest l2 distance since then: the scale of the trust region."""
    normal: Tensor
    """(B, ...) the running average of the soft margin's gradients."""


@dataclass(frozen=True)
class Plan:
    """What all images of one walk share."""

    queries: int
    inside: bool
    """Whether it starts in the class; images that half of the queries do not bring out stride."""
    strides: Tensor
    """(S,) their lengths in widths of the box."""
    bisections: int
    halvings: float
    """Of the trust radius, per query."""
    warm: float
    """The first temperature."""

    @property
    def striding_at(self) -> int:
        """The query at which images that are still in their class begin to stride."""
        return self.queries - self.queries // 2 if self.inside else 0


def plan_walk(problem: Problem, queries: int, usual: int, inside: bool) -> Plan:
    """The plan of a walk of ``queries``, where ``usual`` are the length of a walk."""
    s, free = SETTINGS, problem.bound.distance.norm not in SOLVERS
    striding = queries // 2 if inside else queries
    return Plan(
        queries=queries,
        inside=inside,
        strides=problem.x.new_tensor(strides(striding)),
        bisections=min(s.bisections, striding // 8),
        # A longer walk ends in a smaller region, but not by as much.
        halvings=s.halvings / math.sqrt(usual * s.queries[free]),
        warm=s.warm[free],
    )


def walk(problem: Problem, queries: int, usual: int, start: Tensor, inside: bool) -> None:
    """Spend ``queries``, where ``usual`` are the length of a walk, on a walk from ``start`` (B, ...).

    Every image has its own phase; each query is one model call for all of them. A walk from ``inside`` the class
    begins in the phase of walking.
    """
    plan, solver, free = (
        plan_walk(problem, queries, usual, inside),
        solver_for(problem, queries),
        problem.bound.distance.norm not in SOLVERS,
    )
    state = init(problem, plan, start)
    for index in range(queries):
        last = index == queries - 1
        query = problem.query(state.point, grad=not last, distance_grad=free and not last)
        problem.record(index, margin=query.margin, distance=query.distance, success=query.success)
        if not last:
            advance(problem, plan, state, query, index)
            state.point = problem.step_or_backtrack(
                query, next_point(problem, plan, state, query, index, solver), state.point
            )


def init(problem: Problem, plan: Plan, start: Tensor) -> WalkState:
    """The state before the first query, which is ``start`` (B, ...)."""
    x, none = problem.x, torch.zeros_like(problem.forwards)
    zeros = x.new_zeros(len(x))
    return WalkState(
        point=start,
        phase=torch.full_like(none, BISECTING if plan.inside else STRIDING),
        strides=none,
        outside=x,
        near=zeros,
        far=torch.ones_like(zeros),
        bisections=torch.full_like(none, 0 if plan.inside else plan.bisections),
        started_at=zeros,
        max_distance=zeros,
        normal=torch.zeros_like(x),
    )


def advance(problem: Problem, plan: Plan, state: WalkState, query: Query, index: int) -> None:
    """Take in the answer to a query: each image's phase, what is known of the boundary, and its normal."""
    x, success = problem.x, query.success
    if plan.inside and index == plan.striding_at:
        lost = ~problem.found
        state.phase = torch.where(lost, STRIDING, state.phase)
        state.bisections = torch.where(lost, plan.bisections, state.bisections)
    striding, bisecting = state.phase == STRIDING, (state.phase == BISECTING) & (state.bisections > 0)
    arrived = striding & success
    state.strides = state.strides + (striding & ~success).long()
    state.outside = torch.where(per_image(arrived, x), query.point, state.outside)
    middle = (state.near + state.far) / 2
    state.near = torch.where(bisecting & ~success, middle, state.near)
    state.far = torch.where(bisecting & success, middle, state.far)
    state.bisections = state.bisections - bisecting.long()
    begins = (arrived | (state.phase == BISECTING)) & (state.bisections <= 0)
    state.phase = torch.where(begins, WALKING, torch.where(arrived, BISECTING, state.phase))
    walking, distance = state.phase == WALKING, length(query.point - x, 2)
    state.started_at = torch.where(begins, float(index), state.started_at)
    state.max_distance = torch.where(begins, distance, torch.maximum(state.max_distance, distance))
    # In double precision, since the last bit of a float32 power depends on the place in the batch.
    progress = torch.where(walking, (index - state.started_at) / (plan.queries - state.started_at), 0.0).double()
    temperature = plan.warm * torch.exp(progress * math.log(SETTINGS.cold / plan.warm))
    gradient, momentum = soft_gradient(problem, query, temperature.to(x.dtype)), SETTINGS.momentum
    averaged = per_image(walking & ~begins, x)
    state.normal = torch.where(averaged, momentum * state.normal + (1 - momentum) * gradient, gradient)


def next_point(problem: Problem, plan: Plan, state: WalkState, query: Query, index: int, solver: Subproblem) -> Tensor:
    """(B, ...) the next query of each image, by its phase."""
    walking, moved = state.phase == WALKING, query.point
    if not problem.cheap_sync or bool(walking.any()):
        moved = moved + step_along_boundary(problem, plan, state, query, index, solver)
    if problem.cheap_sync and bool(walking.all()):
        return moved
    x, striding = problem.x, state.phase == STRIDING
    middle = x + per_image((state.near + state.far) / 2, x) * (state.outside - x)
    away = torch.where(per_image(striding, x), stride(problem, plan, state, query), middle)
    return torch.where(per_image(walking, x), moved, away)


def step_along_boundary(
    problem: Problem, plan: Plan, state: WalkState, query: Query, index: int, solver: Subproblem
) -> Tensor:
    """(B, ...) argmin_d D(x, x + delta + d) with b.d <= c, |d| <= r and x + delta + d in the box, where b is the
    normal, c = -1.1 m outside the goal and -0.9 m inside it."""
    overshoot, delta, margin = SETTINGS.overshoot, query.point - problem.x, query.margin + 2 * query.tolerance
    c = torch.where(margin > 0, -overshoot * margin, -(2 - overshoot) * margin)
    shrunk = torch.exp2((state.started_at - index).double() * plan.halvings).to(delta.dtype)
    radius = SETTINGS.radius * state.max_distance * shrunk
    fresh = (state.phase != WALKING) | (state.started_at == index)
    return solver.step(delta, state.normal, c, radius, fresh, query.distance_gradient)


def stride(problem: Problem, plan: Plan, state: WalkState, query: Query) -> Tensor:
    """(B, ...) a signed step against the gradient; after a whole round of strides, another start."""
    x, count = problem.x, len(plan.strides)
    step = per_image(plan.strides[(state.strides - 1) % count], x) * problem.box.sides * state.normal.sign()
    point = problem.box.project_continuous(query.point - step, x)
    lost = (state.phase == STRIDING) & (state.strides % count == 0)
    if not problem.cheap_sync or bool(lost.any()):
        point = torch.where(per_image(lost, x), restart_points(problem, lost, state.strides // count), point)
    return point


def strides(queries: int) -> list[float]:
    """The strides, in widths of the box, which they cross together; no more of them than a third of a short walk's
    ``queries``."""
    count = max(1, min(SETTINGS.strides, queries // 3))
    sizes = [SETTINGS.growth**number for number in range(count)]
    return [size / sum(sizes) for size in sizes]


def random_points(problem: Problem, images: Tensor) -> Tensor:
    """(B, ...) random points of the box for the marked ``images`` (B,)."""
    return problem.box.lo + problem.box.sides * problem.random.uniform_where(images)


def restart_points(problem: Problem, images: Tensor, times: Tensor) -> Tensor:
    """(B, ...) where the marked ``images`` (B,), which did not leave their class, start for the ``times``-th (B,) time:
    the box's two ends first, then random points."""
    point = random_points(problem, images)
    for time, end in ((1, problem.box.lo), (2, problem.box.hi)):
        point = torch.where(per_image(times == time, point), end, point)
    return point


def thin_out(problem: Problem, queries: int) -> None:
    """l0, from the best points known: the values with most to gain (smoothed gradient times the room the box leaves) go
    to the end of the box, all others back; fewer after a success, more after a failure, always fewer than the best so
    far."""
    s, x, box = SETTINGS, problem.x, problem.box
    low, high = bounds(box, x)
    average, point = torch.zeros_like(x), problem.best_point
    allowed = problem.best_distance.clamp(1, x[0].numel())
    for index in range(queries):
        query = problem.query(point, grad=index < queries - 1)
        problem.record(index, margin=query.margin, distance=query.distance, success=query.success)
        if index == queries - 1:
            break
        phase = index / max(queries - 2, 1)
        slope = soft_gradient(problem, query, x.new_full((len(x),), s.warm[1] * (s.cold / s.warm[1]) ** phase))
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


def solver_for(problem: Problem, queries: int) -> Subproblem:
    """What solves the steps of a walk of ``queries``."""
    s, norm = SETTINGS, problem.bound.distance.norm
    if norm in SOLVERS:
        return subproblem(problem.x, problem.box, norm)
    # Few queries leave the more for the distance: a walk follows its curvature about as far whatever its length.
    return QuasiNewton(problem.bound, problem.box, round(s.gradients / max(queries, 4)), s.memory, s.smoothing)


def soft_gradient(problem: Problem, query: Query, temperature: Tensor) -> Tensor:
    """The gradient (B, ...) of the margin with its maximum softened over ``temperature`` (B,) standard deviations of
    the logits, which are not differentiated: on saturated logits a differentiated scale hides the margin's own
    gradient."""
    spread = problem.goal.spread(query.values).clamp_min(1e-12)
    return problem.replace_zero_gradients(
        query.gradient(problem.goal.soft_margin(query.logits, temperature * spread)), ~query.success
    )
