"""The problem that an attack solves, and its only access to the model. It counts queries, projects candidates, decides
success and remembers the best point of each image."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..distances.base import Bound
from ..errors import BadInput, BadModel
from ..goals.base import Goal
from ..tensors import cheap_sync, choose, largest_entry, per_image, unit
from .box import Box, grid_of
from .oracle import NO_GRADIENT, Oracle
from .random import ImageRandom

Trace = Callable[[dict[str, Any]], None]
MARKS = (10, 30, 100, 300, 1000)
"""Numbers of forwards after which the best distance is stored."""
SYNC_EVERY = 10
"""If reading from the device is expensive, finished images are removed from the batch once per this many queries."""
PENDING, SMALL = 8, 2**22
"""In this case, the best points are updated once per this many queries, for batches of at most this many values, whose
points are kept until then."""


class Exhausted(Exception):
    """Every image is finished or has spent its budget. Ends ``attack.run`` and is caught by its caller."""


@dataclass(frozen=True)
class Limits:
    """Conditions under which an image makes no further queries.

    Args:
        budget: largest number of forwards, and of backwards, per image.
        reserve: of these, forwards kept for ``recheck_full_precision``.
        plan: planned number of forwards, whose quarters ``improvement`` uses; None: it stops no image.
        improvement: an image stops if it improves by less than this share over a quarter of ``plan``.
        stop_distance: an image stops if it has a success within this distance.
        measure: the distance for ``stop_distance``, if the attack ranks points by another one.
    """

    budget: int | None = None
    reserve: int = 0
    plan: int | None = None
    improvement: float = 0.0
    stop_distance: float | None = None
    measure: Bound | None = None


class Query:
    """What the model returned for a set of candidates: one row per candidate.

    ``point`` (R, ...) are the candidates inside the box; ``logits`` (R, K), or whatever outputs (R, ...) the goal
    reads, are attached to the graph when the query was made with ``grad=True``. ``values`` are the detached logits with
    zeros in rows that are not finite, ``largest`` (R,) their largest absolute entries. ``margin``, ``tolerance``,
    ``distance`` (R,), ``success`` and ``valid`` (R,) are detached; ``all_valid`` is true where all rows are known to be
    finite. ``goal`` is that of the rows' images. Rows that were not ``sent`` (indices; None: all were) have the last
    values of their finished images and zero gradients.
    """

    distance: Tensor
    distance_gradient: Tensor = None  # type: ignore[assignment]  # set with distance_grad=True

    def __init__(self, problem: Problem, point: Tensor, logits: Tensor, images: Tensor | None, sent: Tensor | None):
        """``images`` (R,) are the images of the rows; None: row i is image i."""
        self._problem, self.point, self.logits, self.images, self.sent = problem, point, logits, images, sent
        # Set by the problem for gradients: the model's inputs (S, ...) of the rows sent; if the rows of a larger leaf
        # are the clean pass of a whole batch, their places in it; the calls (rows, leaf, outputs) where images run out
        # of backward passes at different times, with the outputs put together and cut off from their graphs.
        self._leaf: Tensor | None = None
        self._places: Tensor | None = None
        self._calls: list[tuple[Tensor, Tensor, Tensor]] = []
        self._outputs: Tensor | None = None
        self.goal = goal = problem.goal if images is None else problem.goal.take(images)
        values = logits.detach()
        self.largest = largest_entry(values)
        self.valid = self.largest < float("inf")
        self.all_valid = problem.cheap_sync and bool(self.valid.all())
        if not self.all_valid:
            values = torch.where(per_image(self.valid, values), values, problem.zero)
        self.values = values
        self.tolerance = goal.tolerance(values, problem.oracle.precision)
        margin = goal.margin(values)
        if not goal.finite:
            self.valid = self.valid & torch.isfinite(margin)
            self.all_valid = problem.cheap_sync and bool(self.valid.all())
        self.margin = margin if self.all_valid else torch.where(self.valid, margin, problem.infinity)
        self.success = self.margin < -self.tolerance
        if sent is not None:
            self.success = self.success & torch.zeros_like(self.success).index_fill(0, sent, True)

    def gradient(self, value: Tensor, keep: bool = False) -> Tensor:
        """Gradient of a function of the logits in the candidates; counts one backward for each image that was sent.

        Args:
            value: function of ``logits``, shape (R,).
            keep: keep the graph for another gradient.

        Returns:
            The gradient at ``point``, shape (R, ...), with zeros for entries that are not finite.
        """
        return self._problem.gradient(self, value, None, keep)

    def pull_back(self, slope: Tensor, keep: bool = False) -> Tensor:
        """Gradient of a function of the logits with respect to the candidates, by the chain rule from its gradient with
        respect to the logits.

        Args:
            slope: gradient with respect to the logits, shape (R, K).
            keep: keep the graph for another gradient.

        Returns:
            The gradient at ``point``, shape (R, ...).
        """
        return self._problem.gradient(self, self.logits, slope, keep)

    def margin_gradient(self, temperature: Tensor | None = None, keep: bool = False) -> Tensor:
        """Gradient of the goal's margin, or of its soft margin, in the candidates.

        Args:
            temperature: temperature of the soft margin, shape (R,); None for the margin.
            keep: keep the graph for another gradient.

        Returns:
            The gradient at ``point``, shape (R, ...).
        """
        slope = self.goal.margin_slope(self.values, temperature)
        if slope is not None:
            return self.pull_back(slope, keep)
        margin = self.goal.margin
        value = margin(self.logits) if temperature is None else self.goal.soft_margin(self.logits, temperature)
        return self.gradient(value, keep)

    @property
    def owners(self) -> Tensor | None:
        """The images that were sent, one per row of the leaf; None: each image once."""
        if self.sent is None:
            return self.images
        return self.sent if self.images is None else self.images[self.sent]

    def backward(self, value: Tensor, slope: Tensor | None, allowed: Tensor | None, keep: bool) -> Tensor:
        """The gradient (S, ...) of ``value`` (R,), or of ``value`` (R, ...) weighted with ``slope``, at the rows sent,
        without those that are not ``allowed`` (S,)."""
        assert self._leaf is not None
        if not value.requires_grad:
            if self._calls or self.logits.requires_grad:
                raise BadInput(
                    "the goal's margin carries no gradient, and this attack needs one: leave out detach(), item() and "
                    "conversions to numpy in it. In an attack of your own, take query.margin_gradient(): query.margin "
                    "is detached."
                )
            raise BadModel(NO_GRADIENT)
        if allowed is not None:
            # An image past its budget gets no gradient: its row is left out of the pass.
            kept = (
                allowed if self.sent is None else allowed.new_ones(len(value)).index_copy(0, self.sent, allowed)
            ).to(value.dtype)
            slope = per_image(kept, value) * (1.0 if slope is None else slope)
        if not self._calls:
            gradient = _gradient_of(value, slope, self._leaf, keep)
            return gradient if self._places is None else gradient[self._places]
        assert self._outputs is not None
        inner, gradient = _gradient_of(value, slope, self._outputs, keep), torch.zeros_like(self._leaf.detach())
        for rows, leaf, outputs in self._calls:
            if allowed is None or bool(allowed[rows].any()):
                gradient[rows] = _gradient_of(outputs, inner[rows], leaf, keep)
        return gradient


def _gradient_of(value: Tensor, slope: Tensor | None, leaf: Tensor, keep: bool) -> Tensor:
    """The gradient of the sum of ``value``, weighted with ``slope``, in ``leaf``; zero where it does not depend on
    it."""
    if cheap_sync(leaf.device):
        # Weights passed as grad_outputs would make torch import 40 MB of symbolic algebra.
        value, slope = (value.sum() if slope is None else (value * slope).sum()), None
    elif slope is None:
        slope = torch.ones_like(value)
    (gradient,) = torch.autograd.grad(value, leaf, slope, retain_graph=keep, allow_unused=True)
    return torch.zeros_like(leaf.detach()) if gradient is None else gradient.detach()


class Problem:
    """The images to attack, their goal, distance and box, and the best verified point of each.

    ``x`` (B, ...) are the clean images; those that already reach the goal were removed after the clean pass.
    ``cheap_sync``: whether reading values back from the device is cheap. On a CPU it costs nothing and saves work. On
    another device it would wait for pending operations, so masks are used there, and several queries are handled at a
    time.
    """

    def __init__(
        self,
        oracle: Oracle,
        x: Tensor,
        goal: Goal,
        bound: Bound,
        box: Box,
        random: ImageRandom,
        limits: Limits | None = None,
        trace: Trace | None = None,
    ):
        self.oracle, self.x, self.goal, self.bound, self.box, self.random = oracle, x, goal, bound, box, random
        self.limits, self.trace = limits or Limits(), trace
        self.grid = grid_of(repr(bound.distance), box, x)
        self.cheap_sync = cheap_sync(x.device)
        self.zero, self.infinity = x.new_zeros(()), x.new_full((), float("inf"))
        self.clean_logits: Tensor | None = None  # (B, K), detached; None before the clean pass
        self.active = torch.ones(len(x), dtype=torch.bool, device=x.device)
        """(B,) the images that the attack has not released."""
        budget = self.limits.budget
        self.counts = Counts(len(x), x.device, budget if budget is None else max(budget - self.limits.reserve, 1))
        self._history = History(x, self.limits)
        self._stopped: Tensor | None = None  # (B,) images that make no further query, even if the attack recalls them
        self._stop_distance: float | Tensor | None = self.limits.stop_distance
        self._send: Tensor | None = None  # rows of the images that are sent to the model; None: all
        self._send_known = True  # whether that is up to date with ``active`` and ``_stopped``
        self._queries = 0
        self._point, self._distance = self._nothing_found()
        self._broken, self._had_slope = torch.zeros_like(self.active), torch.zeros_like(self.active)
        self._most_pending = PENDING if x.numel() <= SMALL else 1
        self._pending: list[Query] = []  # queries that are not yet included in best points and ``_broken``
        self._steepest_pending: list[Tensor] = []  # largest entries (B,) of gradients, not yet in ``_had_slope``
        self.notes: dict[int, str] = {}  # by image, the reason that a result gives for a success
        self._start: Query | None = None
        self._last_logits: Tensor | None = None
        self._taken: tuple[Tensor, Bound] | None = None
        self._last_gradient: tuple[Tensor, Tensor, bool] | None = None  # its largest entries; whether none is zero
        self._noise: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x)

    # What is known.

    @property
    def budget(self) -> int | None:
        """The largest number of forwards, and of backwards, of an image."""
        return self.counts.budget

    @property
    def norm(self) -> float:
        """p of the l_p norm that is minimised, for attacks that support only norms."""
        assert self.bound.distance.norm is not None
        return self.bound.distance.norm

    @property
    def best_point(self) -> Tensor:
        """(B, ...) the nearest verified point of each image, the clean image if none is known. A copy that the attack
        may overwrite."""
        self._settle()
        return self._point.clone()

    @property
    def best_distance(self) -> Tensor:
        """(B,) the distance of the best point, infinite if none is known."""
        self._settle()
        return self._distance

    @property
    def found(self) -> Tensor:
        """(B,) whether an adversarial point is known."""
        return torch.isfinite(self.best_distance)

    @property
    def forwards(self) -> Tensor:
        """(B,) forward passes of each image."""
        return self.counts.of(self.counts.forwards)

    @property
    def backwards(self) -> Tensor:
        """(B,) backward passes of each image."""
        return self.counts.of(self.counts.backwards)

    @property
    def history(self) -> Tensor:
        """(B, 5) the best distance of each image after 10, 30, 100, 300 and 1000 forwards; the last one if it has had
        fewer."""
        return self._history.at_marks(self.best_distance)

    @property
    def broken(self) -> Tensor:
        """(B,) whether the model has returned logits that are not finite."""
        self._settle()
        return self._broken

    def why(self, index: int) -> str:
        """The reason why an image has no success."""
        if bool(self.broken[index]):
            return (
                "the model's logits were not finite for some candidates and no adversarial point was found among "
                "the others"
            )
        if int(self.backwards[index]) and not bool(self._had_slope[index]):
            return "the gradient was zero at every query, and random directions found nothing"
        return "no adversarial point was found within the budget"

    # Active images, and which successes count.

    def release(self, finished: Tensor) -> None:
        """Exclude the images marked in ``finished`` (B,) from all further model passes."""
        self._take_part(self.active & ~finished)

    def recall(self, images: Tensor) -> None:
        """Make exactly the images marked in ``images`` (B,) active again, as far as the budget allows."""
        self._take_part(images.clone())
        self._queries = 0  # the next query updates the rows
        self.counts.begin_anew()

    @contextmanager
    def round(self) -> Iterator[None]:
        """One of several rounds of an attack. It ends early when all images are finished; images released in it take
        part in the next."""
        before = self.active
        try:
            yield
        except Exhausted:
            spent = torch.zeros_like(before) if self.budget is None else self.forwards >= self.budget
            spent = spent if self._stopped is None else spent | self._stopped
            if not bool((before & ~spent).any()):
                raise
        finally:
            if before is not self.active:
                self._take_part(before)
                self._queries = 0

    @contextmanager
    def isolated(self) -> Iterator[None]:
        """Run another attack inside the block as if it ran alone, with its own random numbers and no known points.
        Afterwards the better point of both is kept."""
        self._settle()
        point, distance, random, noise = self._point, self._distance, self.random, self._noise
        floor = self._history.floor
        self._history.floor = distance if floor is None else torch.minimum(distance, floor)
        self._point, self._distance = self._nothing_found()
        self.random, self._noise = random.again(), None
        try:
            yield
        finally:
            self._settle()
            self._history.floor = floor
            self._keep(point, distance, distance <= self._distance)
            self.random, self._noise = random, noise

    @contextmanager
    def limited_to(self, limit: Tensor) -> Iterator[None]:
        """Discards points found in this block whose distance exceeds ``limit`` (B,)."""
        self._settle()
        point, distance, stop = self._point, self._distance, self._stop_distance
        self._stop_distance = None if stop is None else limit.clamp(max=stop)
        try:
            yield
        finally:
            self._settle()
            self._stop_distance = stop
            self._keep(point, distance, self._distance > limit)

    def recheck_full_precision(self, outwards: tuple[float, ...]) -> None:
        """Judge points found under autocast again without it, within the total budget. A point that fails is moved
        ``outwards``; if that fails too, it is discarded."""
        self._settle()
        oracle, self.oracle = self.oracle, self.oracle.exact
        self.counts.budget = self.limits.budget
        self._stopped = self._stop_distance = None
        delta = self._point - self.x
        self.recall(self.found)
        self._point, self._distance = self._nothing_found()
        with suppress(Exhausted):
            for reach in outwards:
                self.query(self.x + reach * delta, grad=False)
                self.release(self.found)
        self.oracle = oracle

    # Queries.

    def start(self, distance_grad: bool = False, gradients: int = 1) -> Query:
        """The query at the clean images, whose pass was already made and counted.

        Args:
            distance_grad: also compute the gradient of the distance.
            gradients: number of gradients of the outputs that are needed; the clean pass provides one.

        Returns:
            The query.
        """
        if self._start is None:
            return self.query(self.x, distance_grad=distance_grad, gradients=gradients)
        query, self._start = self._start, None
        if distance_grad:
            query.distance_gradient = self.bound.value_and_grad(self.x)[1]
            self.count_distance_gradients(query)
        return query

    def begin(self, leaf: Tensor, logits: Tensor, rows: Tensor) -> None:
        """Use the clean pass of a batch: ``leaf`` (A, ...) and ``logits`` (A, K), of which ``rows`` (B,) are
        attacked."""
        self._start = Query(self, self.x, logits[rows], None, None)
        self._start._leaf, self._start._places = leaf, rows
        self._start.distance = torch.zeros_like(self._start.margin)
        self.clean_logits = self._last_logits = self._start.logits.detach()
        self.counts.count_forward(None, leaf.requires_grad)
        self._history.passed(self.counts, self._distance)

    def query(
        self,
        candidate: Tensor,
        *,
        grad: bool = True,
        distance_grad: bool = False,
        images: Tensor | None = None,
        gradients: int = 1,
        aside: bool = False,
    ) -> Query:
        """Query the model, and remember every success that is nearer than the best known point.

        Args:
            candidate: points, shape (B, ...), or (R, ...) with ``images``. They are projected into the box.
            grad: whether a gradient of the outputs is needed.
            distance_grad: also compute the gradient of the distance.
            images: the image of each candidate, shape (R,), which may repeat; None: one candidate per image.
            gradients: largest number of gradients of the outputs. A backward pass includes every row of its graph, so
                images whose budget ends earlier get a separate call.
            aside: do not remember successes, for gradients at points that are not candidates for the result.

        Returns:
            The answers, one row per candidate. Images that are finished or have spent their budget are not sent.

        Raises:
            Exhausted: no image is left.
        """
        self._start = None
        box = self.box if images is None else self.box.take(images, self.x.shape[1:])
        point = box.project(candidate.detach(), self.x if images is None else self.x[images])
        sent = self._rows_to_send(images)
        leaf = point.detach() if sent is None else point[sent]
        owners = images if sent is None else sent if images is None else images[sent]
        groups = self.counts.groups(owners, gradients, len(leaf)) if grad and len(leaf) else None
        calls: list[tuple[Tensor, Tensor, Tensor]] = []
        outputs: Tensor | None = None
        with torch.set_grad_enabled(grad):
            if groups is not None:
                leaves = [leaf[rows].requires_grad_(True) for rows in groups]
                calls = [(rows, part, self.oracle(part)) for rows, part in zip(groups, leaves, strict=True)]
                order = torch.cat(groups).argsort()
                outputs = torch.cat([part.detach() for _, _, part in calls])[order].requires_grad_(True)
            elif len(leaf):
                outputs = self.oracle(leaf.requires_grad_(grad))
            query = Query(self, point, self._all_rows(outputs, sent, images), images, sent)
        query._calls, query._outputs, query._leaf = calls, outputs, leaf if grad else None
        self.counts.count_forward(owners, grad)
        bound = self.bound if images is None else self._bound_of(images)
        if distance_grad:
            query.distance, query.distance_gradient = bound.value_and_grad(point)
            self.count_distance_gradients(query)
        else:
            with torch.no_grad():
                query.distance = bound(point)
        if images is None:
            self._last_logits = query.logits.detach()
        if not self._send_known:
            going = self._going()
            query.success = query.success & (going if images is None else going[images])
        self._remember(query, aside)
        return query

    def gradient(self, query: Query, value: Tensor, slope: Tensor | None, keep: bool) -> Tensor:
        """The gradient of ``value`` (R,) at the points (R, ...) of a query, or of ``value`` (R, K) weighted with
        ``slope`` (R, K); counted."""
        assert query._leaf is not None, "the query was made with grad=False"
        allowed = self.counts.may_backward(query.owners)
        if not len(query._leaf) or (allowed is not None and not bool(allowed.any())):
            return torch.zeros_like(query.point)
        gradient = query.backward(value, slope, allowed, keep)
        self.counts.count_backward(query.owners, allowed)
        # Always a copy, because the model's backward may return a tensor that it keeps, a saved input or a buffer that
        # the next pass overwrites.
        if self.cheap_sync and math.isfinite(float((steepest := largest_entry(gradient)).sum())):  # none is negative
            gradient = gradient.clone(memory_format=torch.contiguous_format)
        else:
            gradient = torch.nan_to_num(gradient, nan=0.0, posinf=0.0, neginf=0.0).contiguous()
            steepest = largest_entry(gradient)
        if allowed is not None:
            gradient, steepest = gradient * per_image(allowed, gradient), steepest * allowed
        if query.sent is not None:
            gradient = torch.zeros_like(query.point).index_copy(0, query.sent, gradient)
            steepest = steepest.new_zeros(len(query.point)).index_copy(0, query.sent, steepest)
        if self.box.mask is not None:
            box = self.box if query.images is None else self.box.take(query.images, self.x.shape[1:])
            gradient = box.free(gradient)
            steepest = largest_entry(gradient)
        self._last_gradient = (gradient, steepest, self.cheap_sync and float(steepest.amin()) > 0)
        if query.images is not None:
            self._had_slope = self._had_slope | self._of_images(query.images, steepest > 0)
        elif self.cheap_sync:
            self._had_slope = self._had_slope | (steepest > 0)
        else:
            self._steepest_pending.append(steepest)
        return gradient

    def count_distance_gradients(self, query: Query, times: int | Tensor = 1) -> None:
        """Count ``times`` (a number or (R,)) gradients of the distance for each row of ``query`` that was sent, in
        addition to those of the query itself."""
        if self.bound.distance.norm is None:
            if isinstance(times, Tensor) and query.sent is not None:
                times = times[query.sent]
            self.counts.count_distance_gradients(query.owners, times)

    def midway(self, candidate: Tensor) -> Tensor:
        """The midpoint of ``candidate`` (B, ...) and the best known point (or the clean image), from which an attack
        continues after non-finite logits. Pending queries are not included in the best point."""
        return torch.lerp(candidate, self._point, 0.5)

    def step_or_backtrack(self, query: Query, moved: Tensor, candidate: Tensor) -> Tensor:
        """The next point, or a point half way back after logits that are not finite.

        Args:
            query: the last query.
            moved: next points, shape (B, ...).
            candidate: the queried points, shape (B, ...).

        Returns:
            ``moved`` if the logits were finite, otherwise the ``midway`` point of ``candidate``, shape (B, ...).
        """
        if query.all_valid:
            return moved
        return torch.where(per_image(query.valid, moved), moved, self.midway(candidate))

    def delta_or_backtrack(self, query: Query, moved: Tensor, delta: Tensor) -> Tensor:
        """The same for perturbations: ``moved`` (B, ...), or a perturbation half way back from ``delta`` (B, ...)."""
        if query.all_valid:
            return moved
        return torch.where(per_image(query.valid, moved), moved, self.midway(self.x + delta) - self.x)

    def replace_zero_gradients(self, gradient: Tensor, stuck: Tensor | None = None) -> Tensor:
        """Replace zero gradients by random unit directions.

        Args:
            gradient: gradients, shape (B, ...).
            stuck: images to which this is restricted, shape (B,); None for all.

        Returns:
            The gradients, shape (B, ...).
        """
        known, self._last_gradient = self._last_gradient, None
        same = known is not None and known[0] is gradient
        if known is not None and same and known[2]:
            return gradient
        steepest = known[1] if known is not None and same else largest_entry(gradient)
        zero = steepest == 0
        zero = zero if self._send is None and self._send_known else zero & self.active
        zero = zero if stuck is None else zero & stuck
        if not self.cheap_sync:
            return torch.where(per_image(zero, gradient), self._direction(), gradient)
        rows = zero.nonzero().flatten().tolist()
        if not rows:
            return gradient
        noise = self.box.free(self.random.normal(rows))
        norm = torch.linalg.vector_norm(noise.flatten(1), dim=1).clamp_min(1e-12)
        return torch.where(per_image(zero, gradient), noise / per_image(norm, noise), gradient)

    def record(self, step: int, **values: Tensor) -> None:
        """Send values of a step to the caller's trace.

        Args:
            step: number of the step.
            values: per-image values by name, shape (B,).
        """
        if self.trace is not None:
            self.trace({"step": step, **{name: value.detach().clone() for name, value in values.items()}})

    # Internal methods.

    def _nothing_found(self) -> tuple[Tensor, Tensor]:
        return self.x.clone(), self.x.new_full((len(self.x),), float("inf"))

    def _keep(self, point: Tensor, distance: Tensor, rows: Tensor) -> None:
        """Replace the best points in the marked ``rows`` (B,)."""
        self._point = choose(rows, point, self._point, self.cheap_sync)
        self._distance = torch.where(rows, distance, self._distance)

    def _direction(self) -> Tensor:
        """(B, ...) a unit direction for each image that depends on its number of backward passes, not on the batch. It
        is drawn once and then rotated, so that no call waits for the CPU."""
        if self._noise is None:
            self._noise = unit(self.random.normal()).flatten(1)
        noise, turns = self._noise, self.counts.backwards
        if isinstance(turns, int):
            turned = noise.roll(-turns, 1)
        else:
            places = torch.arange(noise.shape[1], device=noise.device) + turns.unsqueeze(1)
            turned = noise.gather(1, places % noise.shape[1])
        turned = turned.view_as(self.x)
        return turned if self.box.mask is None else unit(self.box.free(turned))

    def _take_part(self, images: Tensor) -> None:
        self.active, self._taken, self._send_known = images, None, False

    def _stop(self, images: Tensor) -> None:
        self._stopped, self._send_known = images if self._stopped is None else self._stopped | images, False

    def _going(self) -> Tensor:
        """(B,) the active images whose budget is not spent."""
        return self.active if self._stopped is None else self.active & ~self._stopped

    def _rows_to_send(self, images: Tensor | None) -> Tensor | None:
        """Indices of the rows to send to the model; None for all."""
        due = not self._send_known and (self.cheap_sync or self._queries % SYNC_EVERY == 0)
        self._queries += 1
        if due:
            rows = self._going().nonzero().flatten()
            if not len(rows):
                raise Exhausted
            self._send, self._send_known = None if len(rows) == len(self) else rows, True
        allowed = self.counts.may_forward(images)
        if allowed is None and (self._send is None or images is None):
            return self._send
        if self._send is not None:
            going = torch.zeros_like(self.active).index_fill(0, self._send, True)
            if not bool((going & ~self.counts.spent).any()):
                raise Exhausted
            going = going if images is None else going[images]
            allowed = going if allowed is None else allowed & going
        assert allowed is not None
        return None if bool(allowed.all()) else allowed.nonzero().flatten()

    def _all_rows(self, outputs: Tensor | None, sent: Tensor | None, images: Tensor | None) -> Tensor:
        """Logits of all rows: new ones for rows that were sent, the last known ones for others."""
        if sent is None and outputs is not None:
            return outputs
        if self._last_logits is None:
            assert outputs is not None, "the first query is about at least one image"
            self._last_logits = outputs.new_zeros(len(self), *outputs.shape[1:])
        old = self._last_logits if images is None else self._last_logits[images]
        return old if outputs is None or sent is None else old.index_copy(0, sent, outputs)

    def _bound_of(self, images: Tensor) -> Bound:
        """The bound distance of the images ``images`` (R,), cached for queries with the same images."""
        if self._taken is None or self._taken[0].shape != images.shape or not torch.equal(self._taken[0], images):
            self._taken = (images.clone(), self.bound.take(images))
        return self._taken[1]

    def _remember(self, query: Query, aside: bool) -> None:
        """Include the results of a query, and stop images that need no other query."""
        if self._history.due(self.counts):
            self._settle()
            stops = self._history.passed(self.counts, self._distance)
        else:
            stops = None
        if aside:
            self._note_broken(query)
        else:
            self._pending.append(query)
        if self.cheap_sync or query.images is not None or len(self._pending) == self._most_pending:
            self._settle()
        if stops is not None:
            self._stop(stops)
        if self._stop_distance is not None and not aside and bool(query.success.any()):
            distance = self.best_distance
            if self.limits.measure is not None:
                with torch.no_grad():
                    distance = torch.where(self.found, self.limits.measure(self._point), distance)
            within = distance <= self._stop_distance
            if bool(within.any()):
                self._stop(within)

    def _settle(self) -> None:
        """Update the best points, and which images were broken and had a gradient, with all pending queries."""
        if self._steepest_pending:
            self._had_slope = self._had_slope | (torch.stack(self._steepest_pending).amax(0) > 0)
            self._steepest_pending = []
        queries, self._pending = self._pending, []
        if not queries:
            return
        if len(queries) == 1 or any(query.images is not None for query in queries):
            for query in queries:
                self._take_in(query)
            return
        distances = torch.stack([query.distance for query in queries])
        success = torch.stack([query.success for query in queries]) & (distances.abs() < float("inf"))
        distances = torch.cat([self._distance.unsqueeze(0), torch.where(success, distances, self.infinity)])
        # Of equal distances the first is kept.
        self._distance, first = distances.min(0)
        points = torch.stack([self._point, *(query.point for query in queries)])
        self._point = points[first, torch.arange(len(self), device=first.device)]
        self._broken = self._broken | ~torch.stack([query.valid for query in queries]).all(0)

    def _note_broken(self, query: Query) -> None:
        if not query.all_valid:
            broken = ~query.valid
            self._broken = self._broken | (broken if query.images is None else self._of_images(query.images, broken))

    def _of_images(self, images: Tensor, rows: Tensor) -> Tensor:
        """(B,) the images that have a marked row in ``rows`` (R,); ``images`` (R,) are the images of the rows."""
        return images.new_zeros(len(self)).index_add(0, images, rows.long()) > 0

    def _take_in(self, query: Query) -> None:
        self._note_broken(query)
        success = query.success & (query.distance.abs() < float("inf"))
        images = query.images
        if images is None:
            self._keep(query.point, query.distance, success & (query.distance < self._distance))
            return
        if not len(images):
            return
        distance = torch.where(success, query.distance, self.infinity)
        smallest = self._distance.scatter_reduce(0, images, distance, "amin")
        # Of several candidates of an image with equal distance, the first is kept, independent of the device's scatter
        # order.
        order = torch.arange(len(images), device=images.device)
        wins = success & (distance == smallest[images]) & (distance < self._distance[images])
        none = torch.full((len(self),), len(images), device=images.device)
        first = none.scatter_reduce(0, images, torch.where(wins, order, len(images)), "amin")
        improved, self._distance = first < len(images), smallest
        if self.cheap_sync:
            rows = improved.nonzero().flatten()
            self._point = self._point.index_copy(0, rows, query.point[first[rows]])
        else:
            chosen = query.point[first.clamp(max=len(images) - 1)]
            self._point = torch.where(per_image(improved, chosen), chosen, self._point)


class Counts:
    """Counts of the passes of each image: ``forwards``, ``backwards`` and ``attached`` (forwards made for a gradient),
    at most ``budget`` each, and ``distance_gradients`` (not counted for lp norms,
    whose gradient is a formula). A count is a number while it is equal for all images, otherwise
    a tensor (B,).

    ``owners`` (R,) are the images of the rows of a pass, which may repeat; None: each image once, in order. An image
    that would exceed its budget is excluded independently of the rest of the batch.
    """

    def __init__(self, size: int, device: torch.device, budget: int | None):
        self.size, self.device, self.budget = size, device, budget
        self.forwards: int | Tensor = 0
        self.backwards: int | Tensor = 0
        self.attached: int | Tensor = 0
        self.distance_gradients: int | Tensor = 0
        self.begin_anew()
        # Upper bounds of all images' counts, so that no tensor is read in the loop until a budget may be reached.
        self._forwards_at_most = self._backwards_at_most = 0

    def of(self, counts: int | Tensor) -> Tensor:
        """``counts`` as a tensor (B,)."""
        return torch.full((self.size,), counts, device=self.device) if isinstance(counts, int) else counts

    def begin_anew(self) -> None:
        """Clear the marks of images that would have exceeded the budget. The counts stay."""
        self.spent, self._any_spent = torch.zeros(self.size, dtype=torch.bool, device=self.device), False

    def may_forward(self, owners: Tensor | None) -> Tensor | None:
        """(R,) the rows with budget for another forward; None for all. Raises ``Exhausted`` if every image has spent
        its budget."""
        self._forwards_at_most += 0 if self.budget is None else most(owners)
        return self._within(self.forwards, self._forwards_at_most, owners)

    def may_backward(self, owners: Tensor | None) -> Tensor | None:
        """The same for a backward pass."""
        self._backwards_at_most += 0 if self.budget is None else most(owners)
        return self._within(self.backwards, self._backwards_at_most, owners)

    def count_forward(self, owners: Tensor | None, attached: bool) -> None:
        """Count one forward for each row, ``attached`` if it is made for a gradient."""
        self.forwards = self._added(self.forwards, owners, None)
        if attached:
            self.attached = self._added(self.attached, owners, None)
        self._forwards_at_most = max(self._forwards_at_most, 1)

    def count_backward(self, owners: Tensor | None, allowed: Tensor | None) -> None:
        """Count one backward for each row that was ``allowed`` (R,)."""
        self.backwards = self._added(self.backwards, owners, allowed)

    def count_distance_gradients(self, owners: Tensor | None, times: int | Tensor) -> None:
        """Count ``times`` (a number or (R,)) gradients of the distance for each row."""
        if owners is None:
            self.distance_gradients = self.distance_gradients + times
        else:
            added = torch.zeros_like(owners) + times
            self.distance_gradients = self.of(self.distance_gradients).index_add(0, owners, added)

    def groups(self, owners: Tensor | None, gradients: int, rows: int) -> list[Tensor] | None:
        """Split a forward pass of ``rows`` rows into calls, because a backward pass goes through every row of its call.

        Rows whose images exhaust the budget of backward passes at the same time share a call.

        Args:
            owners: image of each row, shape (R,); None: row i is image i.
            gradients: number of backward passes planned for each row.
            rows: number of rows R.

        Returns:
            Row indices of each call, or None if one call suffices, as when the budget covers all ``gradients``.
        """
        if self.budget is None or self._backwards_at_most + gradients * most(owners) <= self.budget:
            return None
        owners = torch.arange(rows, device=self.device) if owners is None else owners
        left, times = self.budget - self.of(self.backwards)[owners], torch.bincount(owners)[owners]
        state = torch.stack([left, times, occurrence(owners)], 1)
        group = torch.unique(
            torch.where((left >= gradients * times).unsqueeze(1), -1, state), dim=0, return_inverse=True
        )[1]
        count = int(group.max()) + 1
        return None if count == 1 else [(group == each).nonzero().flatten() for each in range(count)]

    def _within(self, counts: int | Tensor, at_most: int, owners: Tensor | None) -> Tensor | None:
        if not self._any_spent and (self.budget is None or at_most <= self.budget):
            return None
        counts = self.of(counts)
        if self.budget is not None:
            over = counts >= self.budget
            self.spent = self.spent | (
                over if owners is None else over & torch.zeros_like(over).index_fill(0, owners, True)
            )
        self._any_spent = bool(self.spent.any())
        if bool(self.spent.all()):
            raise Exhausted
        if owners is None:
            return ~self.spent if self._any_spent else None
        allowed = ~self.spent[owners]
        if self.budget is not None:
            allowed = allowed & (counts[owners] + occurrence(owners) < self.budget)
        return None if bool(allowed.all()) else allowed

    def _added(self, counts: int | Tensor, owners: Tensor | None, allowed: Tensor | None) -> int | Tensor:
        if owners is None:
            return counts + (1 if allowed is None else allowed.long())
        return self.of(counts).index_add(0, owners, torch.ones_like(owners) if allowed is None else allowed.long())


def most(owners: Tensor | None) -> int:
    """The largest number of rows of one image in ``owners`` (R,); None: each image has one."""
    if owners is None:
        return 1
    return int(torch.bincount(owners).max()) if len(owners) else 0


def occurrence(images: Tensor) -> Tensor:
    """(R,) the number of earlier entries in ``images`` (R,) with the same image."""
    order = torch.argsort(images, stable=True)
    grouped = images[order]
    position = torch.arange(len(images), device=images.device)
    starts = torch.ones_like(grouped, dtype=torch.bool)
    starts[1:] = grouped[1:] != grouped[:-1]
    first = torch.cummax(torch.where(starts, position, torch.zeros_like(position)), 0).values
    return torch.empty_like(images).index_copy(0, order, position - first)


class History:
    """``values`` (B, M): the best distance of each image after the numbers of forwards in ``MARKS`` and after each
    quarter of a plan; NaN if it has not passed them.

    While all images take part in every pass, their counts are a single number and nothing is computed between two
    marks.
    """

    def __init__(self, x: Tensor, limits: Limits):
        quarter = 0 if limits.plan is None else max(1, limits.plan // 4)
        self._improvement = limits.improvement
        self._quarters = () if limits.plan is None else (quarter, 2 * quarter, 3 * quarter)
        self._all_marks = MARKS + self._quarters
        self._marks = torch.tensor(self._all_marks, device=x.device)
        self.values = torch.full((len(x), len(self._all_marks)), float("nan"), dtype=x.dtype, device=x.device)
        self.floor: Tensor | None = None  # (B,) best distance before a nested attack began

    def due(self, counts: Counts) -> bool:
        """Whether an image may have passed a mark in the last forward."""
        return not isinstance(counts.forwards, int) or counts.forwards - 1 in self._all_marks

    def passed(self, counts: Counts, best: Tensor) -> Tensor | None:
        """Update after a pass, with the ``best`` distances (B,) before it. Returns the images (B,) that stop because
        they have a success and improved by less than the share over the last quarter; None for none."""
        crossed = (counts.of(counts.forwards).unsqueeze(1) > self._marks) & self.values.isnan()
        if cheap_sync(best.device) and not bool(crossed.any()):
            return None
        known = best if self.floor is None else torch.minimum(best, self.floor)
        self.values = torch.where(crossed, known.unsqueeze(1), self.values)
        if not self._quarters:
            return None
        first, second, third = self.values[:, len(MARKS) :].unbind(1)
        still = crossed[:, len(MARKS) :]
        stops = (still[:, 1] & self._stale(first, second)) | (still[:, 2] & self._stale(second, third))
        return stops if bool(stops.any()) else None

    def at_marks(self, final: Tensor) -> Tensor:
        """(B, 5) the best distance at each of ``MARKS``, and the ``final`` one (B,) if an image had fewer passes; never
        below the final one."""
        values = self.values[:, : len(MARKS)]
        return torch.maximum(torch.where(values.isnan(), final.unsqueeze(1), values), final.unsqueeze(1))

    def _stale(self, then: Tensor, now: Tensor) -> Tensor:
        """(B,) the images with a success at the mark that improved by less than the share since then."""
        return torch.isfinite(then) & (now > (1 - self._improvement) * then)


def expected_forwards(attack: Any) -> int | None:
    """The approximate number of forwards that an attack makes per image, from its settings; None if unknown."""
    parts, inner = getattr(attack, "attacks", None), getattr(attack, "attack", None)
    if parts:
        counts = [expected_forwards(part) for part in parts]
        return None if None in counts else sum(count for count in counts if count is not None)
    if inner is not None:
        each = expected_forwards(inner)
        return None if each is None else each * int(getattr(attack, "halvings", 1))
    if isinstance(outer := getattr(attack, "outer", None), int):
        return outer * int(attack.inner)
    # Few images continue after a trial.
    steps = getattr(attack, "trial", None) or getattr(attack, "steps", None)
    return (
        steps * int(getattr(attack, "searches", 1)) * int(getattr(attack, "restarts", 1))
        if isinstance(steps, int)
        else None
    )
