"""Runs an attack batch by batch and checks every success at the end with an additional pass."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import BadInput
from ..goals.base import Goal
from ..goals.classes import ClassGoal
from ..goals.resolve import first_margin
from ..tensors import per_image
from ..wilson import wilson
from .box import Box
from .counts import MARKS, Exhausted
from .oracle import EOT, Oracle, check_deterministic, check_outputs, outputs_alone
from .problem import Limits, Problem, Trace
from .random import ImageRandom
from .result import Result, Status

if TYPE_CHECKING:
    from .attack import Attack

# Factors by which a point found under autocast is moved outwards until it is a success in full precision.
OUTWARDS = (1.0, 1.02, 1.05, 1.1, 1.25)
# The same for a random model, until the votes confirm it.
VOTED_OUTWARDS = (1.0, 1.02, 1.05, 1.1, 1.2, 1.35, 1.6, 2.0)
# Factors for a success that depends on the rounding of its batch, until it is a success in another batch.
NUDGES = (1.0001, 1.001, 1.01)
# Tolerance of a distance that is measured again in another batch.
SLACK = 1e-4


@dataclass(frozen=True)
class Options:
    """Options of ``Attack.__call__``; ``stop_distance`` is the largest distance that is within ``stop_within``."""

    batch_size: int
    seed: int
    budget: int | None
    check: bool
    trace: Trace | None
    stop_distance: float | None

    def limits(self, attack: Attack, oracle: Oracle) -> Limits:
        """The conditions under which images stop."""
        passes, stop = 1 if oracle.eot is None else oracle.eot.passes, self.stop_distance
        if self.budget is not None and self.budget < passes:
            raise BadInput(
                f"budget={self.budget}: with eot={passes} a query takes {passes} passes, so that none fits in."
            )
        budget = None if self.budget is None else self.budget // passes
        if stop is not None and attack.minimal:
            # Votes and full precision may move a point outwards, but not out of the radius.
            stop /= VOTED_OUTWARDS[-1] if oracle.eot is not None else OUTWARDS[-1] if oracle.autocast is not None else 1
        return Limits(budget, int(oracle.autocast is not None), stop)


def solve(attack: Attack, oracle: Oracle, x: Tensor, goal: Goal, box: Box, options: Options) -> Result:
    """Run ``attack`` on the images ``x`` (B, ...), ``options.batch_size`` at a time.

    With ``options.check``, some images of the first batch are first queried alone to test whether the model is
    deterministic, and every success is queried again at the end. These passes are not part of any image's budget; the
    result counts them as probes.
    """
    limits, parts = options.limits(attack, oracle), []
    for rows in torch.arange(len(x), device=x.device).split(options.batch_size):
        batch = Batch(attack, oracle, x[rows], goal.take(rows), box.take(rows, x.shape[1:]), rows, options)
        if (problem := batch.problem(limits)) is not None:
            with suppress(Exhausted):
                attack.run(problem)
        part = batch.result()
        if oracle.eot is not None:
            part = voted(part, attack, oracle, batch.x, batch.goal, batch.box)
        elif options.check:
            part = checked(part, attack, oracle, batch.x, batch.goal, batch.box)
        parts.append(part)
    result = Result.concatenate(parts)
    wrong = int((result.status == Status.ALREADY_WRONG).sum())
    if options.check and isinstance(goal, ClassGoal) and not goal.targeted and 2 * wrong > len(x):
        warnings.warn(
            f"{wrong} of {len(x)} images are already wrong before the attack and count as distance 0. Check the labels "
            "(classes count from 0, in the model's order) and the images' range and normalisation.",
            stacklevel=3,
        )
    uncounted = oracle.queried - int(result.forwards.sum()) - result.probes
    if oracle.surrogate is not None and result.surrogate_forwards is not None:
        uncounted += oracle.surrogate.rows - int(result.surrogate_forwards.sum())
    if uncounted:
        raise BadInput(
            f"{type(attack).__name__} has asked the model about {uncounted} images past the problem, where they are "
            "not counted: ask with problem.query."
        )
    return result


class Batch:
    """One batch: the clean pass, the problem of the images that need an attack, and the result."""

    def __init__(self, attack: Attack, oracle: Oracle, x: Tensor, goal: Goal, box: Box, rows: Tensor, options: Options):
        """Make the clean pass of the images ``x`` (B, ...), which are the ``rows`` (B,) of the call."""
        self.attack, self.oracle, self.x, self.box, self.rows, self.options = attack, oracle, x, box, rows, options
        slopes, before = attack.needs_gradients(), oracle.queried
        check = options.check and not int(rows[0])
        # Before the clean pass, because no call may come between a forward and its backward.
        alone = outputs_alone(oracle, x) if check else None
        self.probes = oracle.queried - before
        self._leaf = x.detach().requires_grad_(slopes)
        with torch.set_grad_enabled(slopes):
            self._logits = oracle(self._leaf)
        values = self._logits.detach()
        self.goal = goal.fit(values, rows)
        if alone is not None:
            if slopes and isinstance(self.goal, ClassGoal):
                check_outputs(values.movedim(1, -1).reshape(-1, values.shape[1]))
            check_deterministic(oracle, alone, values)
        self.finite = torch.isfinite(values).flatten(1).all(1)
        margin = first_margin(
            self.goal, torch.where(per_image(self.finite, values), values, 0.0), self.finite, rows, check
        )
        self.wrong, self.shares, before = self.finite & (margin < 0), None, oracle.queried
        if (eot := oracle.eot) is not None:
            self.shares = shares(oracle, eot, self.goal, x, "clean")
            self.wrong = self.finite & (self.shares >= eot.share)
        self.probes += oracle.queried - before
        self.todo = (self.finite & ~self.wrong).nonzero().flatten()
        self._problem: Problem | None = None

    def problem(self, limits: Limits) -> Problem | None:
        """The problem of the images to attack; None if there are none."""
        if not len(self.todo):
            return None
        attack, x, options = self.attack, self.x[self.todo], self.options
        goal = self.goal.take(self.todo).scaled_by(self._logits.detach()[self.todo])
        seeds = torch.zeros_like(self.todo) if goal.classes is None else goal.classes
        places = self.rows[self.todo].cpu()

        def trace(event: dict[str, Any]) -> None:
            assert options.trace is not None
            options.trace({**event, "image": places})

        if attack.ranking is not None and limits.stop_distance is not None:
            limits = replace(limits, measure=attack.measure.bind(x))
        self._problem = Problem(
            self.oracle,
            x,
            goal,
            (attack.ranking or attack.measure).bind(x),
            self.box.take(self.todo, x.shape[1:]),
            ImageRandom(options.seed, x, seeds),
            limits,
            None if options.trace is None else trace,
        )
        self._problem.begin(self._leaf, self._logits, self.todo)
        del self._leaf, self._logits
        return self._problem

    def result(self) -> Result:
        """The result of the clean pass and the attack. Points found under autocast are judged in full precision
        first."""
        x, attack, problem, todo = self.x, self.attack, self._problem, self.todo
        passes = 1 if self.oracle.eot is None else self.oracle.eot.passes
        status = torch.full((len(x),), int(Status.FAILED), device=x.device)
        status[self.wrong] = int(Status.ALREADY_WRONG)
        status[~self.finite] = int(Status.INVALID)
        adversarials, distances = x.clone(), torch.where(self.wrong, 0.0, float("inf")).to(x.dtype)
        forwards, backwards = torch.full_like(status, passes), torch.zeros_like(status)
        surrogate = torch.full_like(status, passes * attack.needs_gradients())
        gradients = torch.zeros_like(status) if (attack.ranking or attack.measure).norm is None else None
        course = distances.unsqueeze(1).repeat(1, len(MARKS))
        reasons: list[str | None] = [None] * len(x)
        for row in (~self.finite).nonzero().flatten().tolist():
            reasons[row] = "the model's logits are not finite on the clean image"
        if problem is not None:
            if self.oracle.autocast is not None:
                # A success at a fixed radius must not be moved out of it.
                problem.recheck_full_precision(OUTWARDS if attack.minimal else OUTWARDS[:1])
            found, distance = problem.found, problem.best_distance
            status[todo[found]] = int(Status.SUCCESS)
            adversarials[todo] = problem.best_point
            if attack.ranking is not None:
                distance = torch.where(found, attack.measure(x[todo], adversarials[todo]), distance)
            distances[todo], course[todo] = distance, problem.history
            forwards[todo], backwards[todo] = problem.forwards * passes, problem.backwards * passes
            surrogate[todo] = problem.counts.of(problem.counts.attached) * passes
            if gradients is not None:
                gradients[todo] = problem.counts.of(problem.counts.distance_gradients)
            broken = problem.broken
            for index, note in problem.notes.items():
                reasons[int(todo[index])] = note
            for index in (~found).nonzero().flatten().tolist():
                row = int(todo[index])
                reasons[row] = problem.why(index)
                if bool(broken[index]):
                    status[row] = int(Status.INVALID)
        return Result(
            adversarials,
            distances,
            status,
            forwards,
            backwards,
            reasons,
            self.probes,
            course=course if attack.ranking is None else None,
            shares=self.shares,
            surrogate_forwards=None if self.oracle.surrogate is None else surrogate,
            distance_gradients=gradients,
        )


@torch.no_grad()
def checked(result: Result, attack: Attack, oracle: Oracle, x: Tensor, goal: Goal, box: Box) -> Result:
    """Verify the successes of ``result`` (also misclassified clean images) and return the corrected result.

    Each success is queried again, without autocast and in a batch of another composition, and its distance to the
    caller's image in ``x`` (B, ...) is measured again. A success that depends on the rounding of its batch is moved
    slightly outwards, unless its radius is fixed. A success that is not confirmed becomes a failure with a reason.
    """
    rows = result.success.nonzero().flatten()
    if not len(rows):
        return result
    before, goal, box = oracle.queried, goal.take(rows), box.take(rows, x.shape[1:])
    found, clean, claimed = result.adversarials[rows], x[rows], result.distances[rows]
    points, unchanged = found, result.status[rows] == Status.ALREADY_WRONG
    reached = _reaches_elsewhere(oracle, goal, points)
    for reach in NUDGES if attack.minimal and attack.ranking is None else ():
        if bool((reached | unchanged).all()):
            break
        moved = box.project(clean + reach * (found - clean), clean)
        points = torch.where(per_image(reached | unchanged, points), points, moved)
        claimed = torch.where(reached | unchanged, claimed, attack.measure(clean, points))
        # All of them again, because a model that depends on its batch may decide differently in a smaller one.
        reached = _reaches_elsewhere(oracle, goal, points)
    result.adversarials[rows], result.distances[rows] = points, claimed
    if result.course is not None:
        result.course[rows] = torch.maximum(result.course[rows], claimed.unsqueeze(1))
    measured = attack.measure(clean, points)
    findings = (
        (reached, "a fresh pass of the point that was found does not reach the goal"),
        (
            unchanged | box.contains(points, clean),
            "the point that was found lies outside the box, its grid or its mask",
        ),
        (
            unchanged | ((measured - claimed).abs() <= SLACK * claimed.abs()),
            "the point that was found has another distance than was claimed",
        ),
    )
    for holds, reason in findings:
        for row in rows[~holds].tolist():
            _fail(result, row, x, reason)
    return replace(result, probes=result.probes + oracle.queried - before)


def _fail(result: Result, row: int, x: Tensor, reason: str) -> None:
    """Change a success of ``result`` into a failure."""
    result.adversarials[row], result.distances[row], result.status[row] = x[row], float("inf"), int(Status.FAILED)
    if result.course is not None:
        result.course[row] = float("inf")
    result.reasons[row] = result.reasons[row] or reason


def _reaches_elsewhere(oracle: Oracle, goal: Goal, points: Tensor) -> Tensor:
    """(R,) whether the ``points`` (R, ...) reach the goal in batches of another composition than they were found in.

    The order is reversed and the batch is halved. A second pass shifts all points by one row, so that each is judged
    once in a row of even index, as a single image is.
    """
    order, reached = torch.arange(len(points), device=points.device).flip(0), points.new_ones(len(points)) > 0
    for rows in (order, order.roll(1))[: 1 if len(points) < 3 else 2]:
        for part in rows.split((len(points) + 1) // 2):
            reached[part] &= _reaches(goal.take(part), oracle.exact(points[part]))
    return reached


def _reaches(goal: Goal, outputs: Tensor) -> Tensor:
    """(R,) whether ``outputs`` (R, ...) are finite and reach the goal."""
    finite = torch.isfinite(outputs).flatten(1).all(1)
    return finite & (goal.margin(torch.where(per_image(finite, outputs), outputs, 0.0)) < 0)


# Random models: a success must reach the goal in a required share of additional passes.


@torch.no_grad()
def shares(oracle: Oracle, eot: EOT, goal: Goal, points: Tensor, purpose: str) -> Tensor:
    """(R,) the share of additional passes in which each of the ``points`` (R, ...) reaches the ``goal`` of its row,
    float64."""
    found = []
    for row, point in enumerate(points):
        outputs = oracle.passes(point, eot.votes, purpose)
        own = goal.take(torch.full((len(outputs),), row, device=points.device))
        found.append(_reaches(own, outputs).double().mean())
    return torch.stack(found) if found else torch.zeros(0, dtype=torch.float64)


def _held(oracle: Oracle, eot: EOT, goal: Goal, points: Tensor) -> tuple[Tensor, Tensor]:
    """Vote shares (R,) of the ``points`` (R, ...), and whether they are confirmed (R,): the lower end of the interval
    reaches the required share in two votes, because with several attempts a single vote can pass by chance."""
    votes, holds = _surely(oracle, eot, goal, points, "hold")
    rows = holds.nonzero().flatten()
    if len(rows):
        again, still = _surely(oracle, eot, goal.take(rows), points[rows], "hold again")
        votes[rows], holds[rows] = torch.minimum(votes[rows], again), still
    return votes, holds


def _surely(oracle: Oracle, eot: EOT, goal: Goal, points: Tensor, purpose: str) -> tuple[Tensor, Tensor]:
    """Vote shares (R,), and whether the lower end of the interval reaches the required share (R,)."""
    votes = shares(oracle, eot, goal, points, purpose)
    lower = torch.tensor([wilson(share, eot.votes)[0] for share in votes.tolist()])
    return votes, (lower.to(votes) >= eot.share) | (votes == 1)


@torch.no_grad()
def voted(result: Result, attack: Attack, oracle: Oracle, x: Tensor, goal: Goal, box: Box) -> Result:
    """``result`` with the successes that the votes confirm: a success is moved outwards (not at a fixed radius) until
    the lower end of the interval of its votes reaches the required share twice; otherwise it becomes a failure.

    ``x`` (B, ...) are the clean images. The passes belong to no image's budget; they are counted as probes.
    """
    eot, votes = oracle.eot, result.shares
    assert eot is not None and votes is not None
    before, found = oracle.queried, result.adversarials.clone()
    open_rows = (result.status == Status.SUCCESS).nonzero().flatten()
    for reach in VOTED_OUTWARDS if attack.minimal else VOTED_OUTWARDS[:1]:
        if not len(open_rows):
            break
        clean, points = x[open_rows], found[open_rows]
        if reach != 1.0:
            points = box.take(open_rows, x.shape[1:]).project(clean + reach * (points - clean), clean)
        votes[open_rows], holds = _held(oracle, eot, goal.take(open_rows), points)
        taken = open_rows[holds]
        result.adversarials[taken], result.distances[taken] = points[holds], attack.measure(clean, points)[holds]
        open_rows = open_rows[~holds]
    for row in open_rows.tolist():
        _fail(
            result,
            row,
            x,
            f"the point that was found reaches the goal in {float(votes[row]):.0%} of {eot.votes} fresh passes, fewer "
            f"than {eot.share:.0%} for sure",
        )
    return replace(result, probes=result.probes + oracle.queried - before, course=None)
