"""From an attack, a goal and images to a result: batch by batch, and at the end a fresh look at everything that claims
to be a success."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import BadInput
from ..goals.base import Goal
from ..goals.classes import ClassGoal
from ..goals.resolve import first_margin
from ..tensors import per_image
from .box import Box
from .model import Oracle, check_deterministic, check_outputs, outputs_alone
from .problem import MARKS, Exhausted, Problem, Trace, expected_forwards
from .random import ImageRandom
from .result import Result, Status
from .votes import OUTWARDS as VOTED
from .votes import shares, voted

if TYPE_CHECKING:
    from .attack import Attack

# How far along its perturbation a point found under autocast is moved until it holds in full precision.
OUTWARDS = (1.0, 1.02, 1.05, 1.1, 1.25)
# How far a success that only the rounding of its own batch made is moved until it holds in another.
NUDGES = (1.0001, 1.001, 1.01)
# How far a distance measured again may differ from the one remembered: the rounding of another batch.
SLACK = 1e-4


def solve(
    attack: Attack,
    oracle: Oracle,
    x: Tensor,
    goal: Goal,
    box: Box,
    *,
    size: int,
    seed: int,
    budget: int | None,
    trace: Trace | None,
    check: bool,
    tolerance: float | None = None,
    stop_distance: float | None = None,
) -> Result:
    """What ``attack`` finds for the images ``x`` (B, ...), ``size`` at a time.

    ``check``: before the first batch some of its images are asked about alone, which shows whether the model is
    deterministic, and afterwards every success is asked about again. These passes belong to no image's budget; the
    result counts them as probes.
    ``tolerance``: an image whose best distance falls by less than that share over a quarter of its budget, or of what
    the attack plans, makes no further passes. ``stop_distance``: nor does one with a success within this distance.
    """
    each = 1 if oracle.draws is None else oracle.draws.eot
    if budget is not None and budget < each:
        raise BadInput(f"budget={budget}: with eot={each} a query takes {each} passes, so that none fits in.")
    budget = None if budget is None else budget // each  # in queries from here on
    if stop_distance is not None and attack.minimal:
        # Votes and full precision may move a point outwards; it must not leave the radius then.
        stop_distance /= VOTED[-1] if oracle.draws is not None else OUTWARDS[-1] if oracle.autocast is not None else 1
    parts, plan = [], None if tolerance is None else planned(attack, budget)
    for begin in range(0, len(x), size):
        rows = torch.arange(begin, min(begin + size, len(x)), device=x.device)
        within = box.take(rows, x.shape[1:])
        part, fitted = solve_batch(
            attack,
            oracle,
            x[rows],
            goal.take(rows),
            within,
            seed,
            budget,
            trace,
            rows,
            check and begin == 0,
            plan,
            tolerance or 0.0,
            stop_distance,
        )
        if oracle.draws is not None:
            part = voted(part, attack, oracle, x[rows], fitted, within)
        elif check:
            part = checked(part, attack, oracle, x[rows], fitted, within)
        parts.append(part)
    result = Result.concatenate(parts)
    wrong = int((result.status == Status.ALREADY_WRONG).sum())
    if check and isinstance(goal, ClassGoal) and not goal.targeted and 2 * wrong > len(x):
        warnings.warn(
            f"{wrong} of {len(x)} images are already wrong before the attack and count as distance 0. Check the labels "
            "(classes count from 0, in the model's order) and the images' range and normalisation.",
            stacklevel=4,
        )
    uncounted = oracle.asked - int(result.forwards.sum()) - result.probes
    if oracle.surrogate is not None and result.surrogate_forwards is not None:
        uncounted += oracle.surrogate.rows - int(result.surrogate_forwards.sum())
    if uncounted:
        raise BadInput(
            f"{type(attack).__name__} has asked the model about {uncounted} images past the problem, where they are "
            "not counted: ask with problem.query."
        )
    return result


def solve_batch(
    attack: Attack,
    oracle: Oracle,
    x: Tensor,
    goal: Goal,
    box: Box,
    seed: int,
    budget: int | None,
    trace: Trace | None,
    rows: Tensor,
    check: bool,
    plan: int | None = None,
    share: float = 0.0,
    stop_distance: float | None = None,
) -> tuple[Result, Goal]:
    """One batch: the clean pass that settles what needs no attack, the attack on the rest, the assembled result and the
    goal fitted to the clean pass."""
    slopes, asked = attack.needs_gradients(), oracle.asked
    # Before the clean pass: nothing may come between a forward and its backward.
    alone = outputs_alone(oracle, x) if check else None
    probes = oracle.asked - asked
    leaf = x.detach().requires_grad_(slopes)
    with torch.set_grad_enabled(slopes):
        logits = oracle(leaf)
    values = logits.detach()
    goal = fitted = goal.fit(values, rows)
    if alone is not None:
        if slopes and isinstance(goal, ClassGoal):
            check_outputs(values.movedim(1, -1).reshape(-1, values.shape[1]))
        check_deterministic(oracle, alone, values)
    finite = torch.isfinite(values).flatten(1).all(1)
    margin = first_margin(
        goal, torch.where(per_image(finite, values), values, torch.zeros_like(values)), finite, rows, check
    )
    wrong, each, asked, seen = finite & (margin < 0), 1, oracle.asked, None
    if (draws := oracle.draws) is not None:
        seen, each = shares(oracle, draws, goal, x, "clean"), draws.eot
        wrong = finite & (seen >= draws.share)
    probes += oracle.asked - asked
    status = torch.full((len(x),), int(Status.FAILED), device=x.device)
    status[wrong] = int(Status.ALREADY_WRONG)
    status[~finite] = int(Status.INVALID)
    adversarials, distances = x.clone(), torch.where(wrong, 0.0, float("inf")).to(x.dtype)
    forwards, backwards = torch.full_like(status, each), torch.zeros_like(status)
    lent = None if oracle.surrogate is None else torch.full_like(status, each * slopes)
    reasons: list[str | None] = [None] * len(x)
    course = distances.unsqueeze(1).repeat(1, len(MARKS))
    for row in (~finite).nonzero().flatten().tolist():
        reasons[row] = "the model's logits are not finite on the clean image"
    todo = (finite & ~wrong).nonzero().flatten()
    if len(todo):
        goal, images = goal.take(todo).scaled_by(values[todo]), x[todo]
        seeds = torch.zeros_like(todo) if goal.classes is None else goal.classes
        low = oracle.autocast is not None
        problem = Problem(
            oracle,
            images,
            goal,
            (attack.ranking or attack.measure).bind(images),
            box.take(todo, x.shape[1:]),
            ImageRandom(seed, images, seeds),
            budget,
            trace,
            rows[todo].cpu(),
            reserve=low,
            plan=plan,
            share=share,
            stop_distance=stop_distance,
            measure=None if attack.ranking is None else attack.measure.bind(images),
        )
        problem.begin(leaf, logits, todo)
        del leaf, logits
        with suppress(Exhausted):
            attack.run(problem)
        if low:
            # An attack inside a given radius must not be moved out of it.
            problem.recheck_full_precision(OUTWARDS if attack.minimal else OUTWARDS[:1])
        found, distance = problem.found, problem.best_distance
        status[todo[found]] = int(Status.SUCCESS)
        adversarials[todo] = problem.best_point
        distances[todo] = (
            distance
            if attack.ranking is None
            else torch.where(found, attack.measure(x[todo], adversarials[todo]), distance)
        )
        forwards[todo], backwards[todo] = problem.forwards * each, problem.backwards * each
        if lent is not None:
            lent[todo] = problem.attached * each
        course[todo] = problem.course
        broken = problem.broken
        for index in (~found).nonzero().flatten().tolist():
            row = int(todo[index])
            reasons[row] = problem.why(index)
            if bool(broken[index]):
                status[row] = int(Status.INVALID)
    kept = course if attack.ranking is None else None
    result = Result(adversarials, distances, status, forwards, backwards, reasons, probes, course=kept, shares=seen)
    result = replace(result, surrogate_forwards=lent)
    return result, fitted


def planned(attack: Attack, budget: int | None) -> int:
    """The forwards that a quarter is taken of: the budget's, or what the settings say."""
    plan = budget if budget is not None else expected_forwards(attack)
    if plan is None:
        raise BadInput(
            f"tolerance is about a quarter of the budget, and {type(attack).__name__}'s settings do not say how much "
            "it spends: give budget=."
        )
    return plan


@torch.no_grad()
def checked(result: Result, attack: Attack, oracle: Oracle, x: Tensor, goal: Goal, box: Box) -> Result:
    """``result`` with every success, images that were already wrong included, asked about again: by the model as it
    came, in batches of another composition, against the caller's own images ``x`` (B, ...).

    A point that only the rounding of its batch made a success is moved outwards by a hair, unless its radius is given.
    A success that does not hold becomes a failure with a reason.
    """
    rows = result.success.nonzero().flatten()
    if not len(rows):
        return result
    before, wanted, within = oracle.asked, goal.take(rows), box.take(rows, x.shape[1:])
    found, clean, claimed = result.adversarials[rows], x[rows], result.distances[rows]
    points, unchanged = found, result.status[rows] == Status.ALREADY_WRONG
    reached = _reaches_elsewhere(oracle, wanted, points)
    for reach in NUDGES if attack.minimal and attack.ranking is None else ():
        if bool((reached | unchanged).all()):
            break
        moved = within.project(clean + reach * (found - clean), clean)
        points = torch.where(per_image(reached | unchanged, points), points, moved)
        claimed = torch.where(reached | unchanged, claimed, attack.measure(clean, points))
        # All of them again: in a smaller batch a model that depends on its batch might be of another mind.
        reached = _reaches_elsewhere(oracle, wanted, points)
    adversarials, distances, status, reasons = (
        result.adversarials,
        result.distances,
        result.status,
        list(result.reasons),
    )
    adversarials[rows], distances[rows] = points, claimed
    if result.course is not None:
        result.course[rows] = torch.maximum(result.course[rows], claimed.unsqueeze(1))
    measured = attack.measure(clean, points)
    findings = (
        (reached, "a fresh pass of the point that was found does not reach the goal"),
        (
            unchanged | within.contains(points, clean),
            "the point that was found lies outside the box, its grid or its mask",
        ),
        (
            unchanged | ((measured - claimed).abs() <= SLACK * claimed.abs()),
            "the point that was found has another distance than was claimed",
        ),
    )
    for holds, reason in findings:
        for row in rows[~holds].tolist():
            adversarials[row], distances[row], status[row] = x[row], float("inf"), int(Status.FAILED)
            if result.course is not None:
                result.course[row] = float("inf")
            reasons[row] = reasons[row] or reason
    return replace(result, reasons=reasons, probes=result.probes + oracle.asked - before)


def _reaches_elsewhere(oracle: Oracle, goal: Goal, points: Tensor) -> Tensor:
    """(R,) whether the ``points`` (R, ...) reach the goal in batches of another composition than they were found in.

    The order is reversed and the batch is halved. A second pass moves every point on by one row, so that each is judged
    in a row of even index, as an image alone is.
    """
    order, reached = torch.arange(len(points), device=points.device).flip(0), points.new_ones(len(points)) > 0
    for rows in (order, order.roll(1))[: 1 if len(points) < 3 else 2]:
        for part in rows.split((len(points) + 1) // 2):
            reached[part] &= _reaches(oracle, goal.take(part), points[part])
    return reached


def _reaches(oracle: Oracle, goal: Goal, points: Tensor) -> Tensor:
    """(R,) whether the model as it came says that the ``points`` (R, ...) reach the goal."""
    outputs = oracle.exact(points)
    finite = torch.isfinite(outputs).flatten(1).all(1)
    return finite & (goal.margin(torch.where(per_image(finite, outputs), outputs, torch.zeros_like(outputs))) < 0)
