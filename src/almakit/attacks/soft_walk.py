"""The soft walk, the default attack: walks along the decision boundary towards the clean image, from several starts
with successive halving, in any distance."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..core import Attack, Problem, Query
from ..core.attack import DistanceLike
from ..core.problem import SYNC_EVERY
from ..optim import SOLVERS, QuasiNewton, Subproblem, bounds, length, subproblem, to_halfspace
from ..tensors import per_image, ranks


@dataclass(frozen=True)
class Settings:
    """The constants of the attack, independent of the scale of images, distances and logits. Of two numbers, the first
    is for norms and the second for other distances."""

    queries: int = 100
    """Queries of a block. More queries are further blocks."""
    starts: int = 4
    """Starts of a block in norms; a shorter block has fewer in proportion, at least one."""
    trial: float = 0.4
    """The share of a walk before one of the starts is chosen."""
    strides: int = 5
    """Strides that cross the box together."""
    bisections: int = 3
    """Between the first point outside the class and the clean image."""
    warm: tuple[float, float] = (0.6, 0.2)
    """First temperature of the soft margin, in standard deviations of the logits."""
    cold: float = 0.02
    """Last temperature."""
    momentum: float = 0.8
    """Of the boundary's normal."""
    radius: float = 0.4
    """First trust radius, over the largest l2 distance of the walk."""
    halvings: tuple[float, float] = (12.5, 6.25)
    """Of the trust radius, in ``queries``."""
    overshoot: float = 1.1
    """Share of the margin that a step makes up for outside the goal; inside it gives up 2 minus that."""
    fewer: float = 0.15
    """l0: the share by which the number of changed values changes."""
    kept: float = 2.0
    """l0: factor on the gain of values of the best point, in the second half of thinning."""
    gradients: int = 4
    """Of a distance that is no norm, per query."""
    memory: int = 12
    """Pairs of gradients from which the curvature of such a distance is estimated."""
    smoothing: float = 0.95
    """Of the squared gradients, the first guess of its curvature."""


SETTINGS = Settings()


@dataclass(frozen=True)
class SoftWalk(Attack):
    """Each step goes to the point of smallest distance where the linearised soft margin is met, inside a trust region
    and the box.

    A walk starts inside the class, at the nearest linearised boundary, or outside: signed strides along the gradient,
    from the clean image or a random point, until the goal is reached, and bisections back. Each query then gives the
    hard margin m and the gradient of a soft one, whose running average is b; the next point solves min D(x, x + delta)
    with b.(delta - delta_now) <= -1.1 m (-0.9 m inside the goal) in the box and a trust region that shrinks.

    In norms a block of 100 queries tries four starts for 18 queries each, and every image continues the walk
    that came nearest (successive halving): from inside, from the clean image and from two random points; later blocks
    have random points only. l0 spends half of its budget on walks in l1 and thins the best point out with the rest. In
    any other distance a block is one walk: from inside, at the linearised boundary and later at the best point known,
    and from a random point by turns.

    The walk is Brendel et al.'s (*Accurate, reliable and fast robustness evaluation*, NeurIPS 2019, eq. 1 to 3);
    docs/soft-walk.md says what is different.
    """

    title = "Soft walk"
    cost = "at most 1 forward, 1 backward per step"
    paper = "almakit; after Brendel et al., NeurIPS 2019"

    distance: DistanceLike = "l2"
    steps: int = 100

    def run(self, problem: Problem) -> None:
        total = self.steps if problem.budget is None else min(self.steps, problem.budget)
        thinning = total // 2 if problem.bound.distance.norm == 0 else 0
        usual = queries_per_block(problem, total - thinning)
        blocks = max(1, round((total - thinning) / usual))
        nearest, outwards = probe_clean(problem, total)
        queries = total - thinning - 1
        for number in range(blocks):
            share = queries // blocks if number < blocks - 1 else queries - number * (queries // blocks)
            first = [(nearest, True), (outwards, False)] if number == 0 else []
            starts = block_starts(problem, share, number, first)
            plan, trial = plan_block(problem, share, usual, len(starts))
            # Each start gets a short walk; every image continues the one that came nearest.
            best: WalkState | None = None
            for point, inside in starts:
                state = walk(problem, plan, init(problem, plan, point, inside), 0, trial)
                best = state if best is None else nearer(best, state)
            assert best is not None
            walk(problem, plan, best, trial, plan.queries)
        if thinning:
            thin_out(problem, thinning)


def queries_per_block(problem: Problem, total: int) -> int:
    """The length of a block: that of the settings; 1 + log2 of their number as long where several boundaries meet, if
    there are so many queries in ``total``."""
    usual = SETTINGS.queries
    return max(usual, min(total, round(usual * (1 + math.log2(problem.goal.conditions)))))


def probe_clean(problem: Problem, total: int) -> tuple[Tensor, Tensor]:
    """Query the clean image: the nearest point (B, ...) of the linearised boundary, and the first stride (B, ...) out
    of the class.

    Two backwards where ``total`` queries allow it: the last query of a block needs none.
    """
    norm, query, x = problem.bound.distance.norm, problem.start(), problem.x
    exact = norm in SOLVERS and total > 1
    # The gradient of the hard margin if its boundary's distance is exact, otherwise that of the soft margin.
    hard = query.gradient(problem.goal.margin(query.logits), keep=True) if exact else None
    slope = soft_gradient(problem, query, query.margin.new_full((len(x),), SETTINGS.warm[norm not in SOLVERS]))
    normal = slope if hard is None else problem.replace_zero_gradients(hard)
    p = 2.0 if norm not in SOLVERS else norm or 1.0  # l0 walks in l1
    tolerance = query.tolerance
    need = query.margin + 3 * tolerance if exact else SETTINGS.overshoot * (query.margin + 2 * tolerance)
    nearest = x + to_halfspace(-normal, need, *bounds(problem.box, x), p)
    outwards = problem.box.project_continuous(x - problem.box.sides * slope.sign() / strides_across(total), x)
    return nearest, outwards


def block_starts(
    problem: Problem, queries: int, number: int, first: list[tuple[Tensor, bool]]
) -> list[tuple[Tensor, bool]]:
    """The starts (B, ...) of block ``number``, and whether each is inside the class; ``first`` are those of the first
    block, in norms as many as its ``queries`` allow, filled up with random points."""
    if problem.bound.distance.norm not in SOLVERS:
        return first[:1] or [
            (problem.best_point, True) if number % 2 == 0 else (random_points(problem, problem.active), False)
        ]
    count = max(1, min(SETTINGS.starts, round(queries * SETTINGS.starts / SETTINGS.queries)))
    chosen = first[-1:] if count == 1 else first[:count]
    return [*chosen, *((random_points(problem, problem.active), False) for _ in range(count - len(chosen)))]


# The phases of a walk: out of the class, back to its boundary, along the boundary towards the clean image.
STRIDING, BISECTING, WALKING = 0, 1, 2


@dataclass
class WalkState:
    """State of the walk of each image: tensors (B,), or (B, ...) where noted. Fields are replaced, not overwritten in
    place."""

    # Every query.
    point: Tensor
    """(B, ...) the next query."""
    phase: Tensor
    distance: Tensor
    """The smallest distance of a success of this walk."""

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
    all_walking: bool = False
    """Whether all images are known to be in this phase."""


@dataclass(frozen=True)
class Plan:
    """Values that all images and starts of a block share."""

    queries: int
    """Of a walk from its start to the end of the block."""
    strides: int
    bisections: int
    halvings: float
    """Of the trust radius, per query."""
    warm: float
    """First temperature."""


def plan_block(problem: Problem, queries: int, usual: int, starts: int) -> tuple[Plan, int]:
    """The plan of the walks of a block, and the queries of each before one is chosen.

    Args:
        problem: the images.
        queries: of the block.
        usual: the length of a block when the budget is large.
        starts: number of starts.
    """
    s, free, others = SETTINGS, problem.bound.distance.norm not in SOLVERS, starts - 1
    trial = round(queries * s.trial / (1 + others * s.trial)) if others else 0
    walking = queries - others * trial
    plan = Plan(
        queries=walking,
        strides=strides_across(walking),
        bisections=min(s.bisections, walking // 12),
        # A longer walk ends in a smaller region, but not by as much.
        halvings=s.halvings[free] / math.sqrt(usual * s.queries),
        warm=s.warm[free],
    )
    return plan, trial


def walk(problem: Problem, plan: Plan, state: WalkState, begin: int, end: int) -> WalkState:
    """The state after the queries ``begin`` to ``end`` - 1 of the plan. Each query is one model call for all images,
    which may be in different phases."""
    free = problem.bound.distance.norm not in SOLVERS
    solver = solver_for(problem)
    for index in range(begin, end):
        last = index == plan.queries - 1
        query = problem.query(state.point, grad=not last, distance_grad=free and not last)
        problem.record(index, margin=query.margin, distance=query.distance, success=query.success)
        if not last:
            delta, moved = query.point - problem.x, query.point
            begins = advance(problem, plan, state, query, delta, index)
            if state.all_walking or not problem.cheap_sync or bool((state.phase == WALKING).any()):
                moved = moved + step_along_boundary(problem, plan, state, query, delta, begins, index, solver)
            if not state.all_walking:
                moved = torch.where(
                    per_image(state.phase == WALKING, moved), moved, step_away(problem, plan, state, query)
                )
            state.point = problem.step_or_backtrack(query, moved, state.point)
    return state


def nearer(one: WalkState, other: WalkState) -> WalkState:
    """For each image, the state of the walk with the smaller distance; ``one`` if they are equal."""
    rows, found = other.distance < one.distance, replace(one, all_walking=one.all_walking and other.all_walking)
    for name, mine in vars(one).items():
        if isinstance(mine, Tensor):
            setattr(found, name, torch.where(per_image(rows, mine), getattr(other, name), mine))
    return found


def init(problem: Problem, plan: Plan, start: Tensor, inside: bool) -> WalkState:
    """The state before the first query, which is ``start`` (B, ...). A start ``inside`` the class begins in the walking
    phase."""
    x, none = problem.x, torch.zeros_like(problem.forwards)
    zeros = x.new_zeros(len(x))
    return WalkState(
        point=start,
        distance=torch.full_like(zeros, float("inf")),
        phase=torch.full_like(none, BISECTING if inside else STRIDING),
        strides=none,
        outside=x,
        near=zeros,
        far=torch.ones_like(zeros),
        bisections=torch.full_like(none, 0 if inside else plan.bisections),
        started_at=zeros,
        max_distance=zeros,
        normal=torch.zeros_like(x),
    )


def advance(problem: Problem, plan: Plan, state: WalkState, query: Query, delta: Tensor, index: int) -> Tensor | None:
    """Update the state with the answer to a query at the perturbations ``delta`` (B, ...). Returns the images (B,) that
    begin to walk along the boundary; None for none."""
    # l0 walks in l1.
    distance = length(delta, 1) if problem.bound.distance.norm == 0 else query.distance
    state.distance = torch.where(query.success, torch.minimum(state.distance, distance), state.distance)
    if index == plan.queries - plan.queries // 2:
        # no gradient is known yet, for example in a flat region
        lost = ~problem.found
        state.phase = torch.where(lost, STRIDING, state.phase)
        state.bisections = torch.where(lost, plan.bisections, state.bisections)
        state.all_walking = False
    away = length(delta, 2)
    state.max_distance = torch.maximum(state.max_distance, away)
    begins = None if state.all_walking else advance_phase(problem, state, query, away, index)
    # In double precision, since the last bit of a float32 power depends on the place in the batch.
    progress = (index - state.started_at) / (plan.queries - state.started_at)
    if begins is not None:
        progress = torch.where(state.phase == WALKING, progress, 0.0)
    temperature = plan.warm * torch.exp(progress.double() * math.log(SETTINGS.cold / plan.warm))
    gradient, momentum = soft_gradient(problem, query, temperature.to(delta.dtype)), SETTINGS.momentum
    state.normal = momentum * state.normal + (1 - momentum) * gradient
    if begins is not None:
        averaged = (state.phase == WALKING) & ~begins
        state.normal = torch.where(per_image(averaged, gradient), state.normal, gradient)
    return begins


def advance_phase(problem: Problem, state: WalkState, query: Query, away: Tensor, index: int) -> Tensor:
    """Update phase and bracket of the boundary of each image. Returns the images (B,) that begin to walk along it;
    their largest distance is ``away`` (B,)."""
    success, striding = query.success, state.phase == STRIDING
    bisecting = (state.phase == BISECTING) & (state.bisections > 0)
    arrived = striding & success
    state.strides = state.strides + (striding & ~success).long()
    state.outside = torch.where(per_image(arrived, query.point), query.point, state.outside)
    middle = (state.near + state.far) / 2
    state.near = torch.where(bisecting & ~success, middle, state.near)
    state.far = torch.where(bisecting & success, middle, state.far)
    state.bisections = state.bisections - bisecting.long()
    begins = (arrived | (state.phase == BISECTING)) & (state.bisections <= 0)
    state.phase = torch.where(begins, WALKING, torch.where(arrived, BISECTING, state.phase))
    state.started_at = torch.where(begins, float(index), state.started_at)
    state.max_distance = torch.where(begins, away, state.max_distance)
    if problem.cheap_sync or index % SYNC_EVERY == 0:
        state.all_walking = bool((state.phase == WALKING).all())
    return begins


def step_along_boundary(
    problem: Problem,
    plan: Plan,
    state: WalkState,
    query: Query,
    delta: Tensor,
    begins: Tensor | None,
    index: int,
    solver: Subproblem,
) -> Tensor:
    """(B, ...) argmin_d D(x, x + delta + d) with b.d <= -1.1 m (-0.9 m inside the goal), |d| <= r and
    x + delta + d in the box, where b is the normal and m the margin; ``begins`` (B,) begin to walk, None for none."""
    margin = torch.add(query.margin, query.tolerance, alpha=2)
    needed = torch.minimum(-SETTINGS.overshoot * margin, (SETTINGS.overshoot - 2) * margin)
    shrunk = torch.exp2((state.started_at - index).double() * plan.halvings).to(delta.dtype)
    radius = SETTINGS.radius * state.max_distance * shrunk
    if isinstance(solver, QuasiNewton):
        problem.count_distance_gradients(query, (solver.gradients - 1) * (state.phase == WALKING).long())
    return solver.step(delta, state.normal, needed, radius, begins, query.distance_gradient)


def step_away(problem: Problem, plan: Plan, state: WalkState, query: Query) -> Tensor:
    """(B, ...) the next query of images that do not walk along the boundary yet: a stride or a bisection."""
    x, striding = problem.x, state.phase == STRIDING
    middle = x + per_image((state.near + state.far) / 2, x) * (state.outside - x)
    return torch.where(per_image(striding, x), stride(problem, plan, state, query), middle)


def stride(problem: Problem, plan: Plan, state: WalkState, query: Query) -> Tensor:
    """(B, ...) a signed step against the gradient, or another start after strides that crossed the box without
    success."""
    x = problem.x
    point = problem.box.project_continuous(query.point - problem.box.sides * state.normal.sign() / plan.strides, x)
    lost = (state.phase == STRIDING) & (state.strides % plan.strides == 0)
    if not problem.cheap_sync or bool(lost.any()):
        point = torch.where(per_image(lost, x), restart_points(problem, lost, state.strides // plan.strides), point)
    return point


def strides_across(queries: int) -> int:
    """How many strides cross the box; no more than a third of a short walk's ``queries``."""
    return max(1, min(SETTINGS.strides, queries // 3))


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
    """Spend ``queries`` on fewer changed values, from the best points known.

    The values with most to gain (smoothed gradient times what the box leaves) go to the end of the box, all others
    back; fewer after a success, more after a failure, always fewer than the best so far. Values of the best point gain
    ``kept`` times as much in the second half, so that a point is improved rather than replaced.
    """
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
        changed = torch.where(
            query.success | ~query.valid, (allowed * (1 - s.fewer)).floor(), (allowed * (1 + s.fewer)).ceil()
        )
        allowed = torch.minimum(changed, problem.best_distance - 1).clamp(1, x[0].numel())
        move = torch.where(average < 0, high, low)
        gain = -(average * move).flatten(1)
        if phase >= 0.5:
            # In place, the comparison leaves numbers: 1 where the best point differs.
            gain = gain * problem.best_point.ne_(x).flatten(1).mul_(s.kept - 1).add_(1)
        rank = ranks(gain.argsort(dim=1, descending=True, stable=True))
        chosen = ((rank < allowed.unsqueeze(1)) & (gain > 0)).view_as(x)
        point = problem.step_or_backtrack(query, x + chosen.to(x.dtype).mul_(move), point)


def solver_for(problem: Problem) -> Subproblem:
    """The solver for the steps of a walk."""
    s, norm = SETTINGS, problem.bound.distance.norm
    if norm in SOLVERS:
        return subproblem(problem.x, problem.box, norm)
    return QuasiNewton(problem.bound, problem.box, s.gradients, s.memory, s.smoothing)


def soft_gradient(problem: Problem, query: Query, temperature: Tensor) -> Tensor:
    """The gradient (B, ...) of the margin with its maximum softened over ``temperature`` (B,) standard deviations of
    the logits, which are not differentiated: on saturated logits a differentiated scale hides the margin's own
    gradient."""
    goal, values = problem.goal, query.values
    temperature = temperature * goal.spread(values).clamp_min(1e-12)
    slope = goal.soft_margin_slope(values, temperature)
    gradient = query.gradient(goal.soft_margin(query.logits, temperature)) if slope is None else query.pull_back(slope)
    return problem.replace_zero_gradients(gradient, query.success)
