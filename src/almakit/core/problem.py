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
from ..goals.base import Goal
from ..tensors import cheap_sync, choose, largest_entry, per_image, unit
from .box import Box, grid_of
from .counts import Counts, Exhausted, History
from .oracle import Oracle
from .query import Query, Rows
from .random import ImageRandom

Trace = Callable[[dict[str, Any]], None]
SYNC_EVERY = 10
"""If reading from the device is expensive, finished images are removed from the batch and the best points are updated
once per this many queries."""
SMALL = 2**22
"""Batches of more values update their best points after every query, because points are kept until then."""


@dataclass(frozen=True)
class Limits:
    """Conditions under which an image makes no further queries.

    Args:
        budget: largest number of forwards, and of backwards, per image.
        reserve: of these, forwards kept for ``recheck_full_precision``.
        stop_distance: an image stops if it has a success within this distance.
        measure: the distance for ``stop_distance``, if the attack ranks points by another one.
    """

    budget: int | None = None
    reserve: int = 0
    stop_distance: float | None = None
    measure: Bound | None = None


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
        self._history = History(x)
        self._stopped: Tensor | None = None  # (B,) images that make no further query, even if the attack recalls them
        self._stop_distance: float | Tensor | None = self.limits.stop_distance
        self._send: Rows | None = None  # the images that are sent to the model; None: all
        self._send_known = True  # whether that is up to date with ``active`` and ``_stopped``
        self._queries = 0
        self._point, self._distance = self._nothing_found()
        self._all_finite = torch.ones_like(self.active)  # (B,) whether all logits were finite
        self._steepest = [x.new_zeros(len(x))]  # largest entries (B,) of gradients
        self._most_pending = SYNC_EVERY if x.numel() <= SMALL else 1
        self._pending: list[Query] = []  # queries that are not yet included in best points and ``_all_finite``
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
        return ~self._all_finite

    def why(self, index: int) -> str:
        """The reason why an image has no success."""
        if bool(self.broken[index]):
            return (
                "the model's logits were not finite for some candidates and no adversarial point was found among "
                "the others"
            )
        self._steepest = [torch.stack(self._steepest).amax(0)]
        if int(self.backwards[index]) and not float(self._steepest[0][index]):
            return "the gradient was zero at every query, and random directions found nothing"
        return "no adversarial point was found within the budget"

    # Active images, and which successes count.

    def release(self, finished: Tensor) -> None:
        """Exclude the images marked in ``finished`` (B,) from all further model passes."""
        self._take_part(self.active > finished)  # active and not finished, in one operator

    def recall(self, images: Tensor) -> None:
        """Make exactly the images marked in ``images`` (B,) active again, as far as the budget allows."""
        self._take_part(images.clone())
        self._return()
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
                self._return()

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
        self.counts.count_forward(None, None, leaf.requires_grad and self.oracle.surrogate is not None)
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
        leaf = point.detach() if sent is None else point[sent[0]]
        owners = images if sent is None else sent[0] if images is None else images[sent[0]]
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
        self.counts.count_forward(
            owners, query.mask if images is None else None, grad and self.oracle.surrogate is not None
        )
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
        self.counts.count_backward(query.owners, query.mask if query.images is None else None, allowed)
        # Always a copy, because the model's backward may return a tensor that it keeps, a saved input or a buffer that
        # the next pass overwrites.
        if self.cheap_sync and math.isfinite(float((steepest := largest_entry(gradient)).sum())):  # none is negative
            gradient = gradient.clone(memory_format=torch.contiguous_format)
        else:
            gradient = torch.nan_to_num(gradient, nan=0.0, posinf=0.0, neginf=0.0).contiguous()
            steepest = None
        if allowed is not None:
            gradient, steepest = gradient * per_image(allowed, gradient), None
        if query.sent is not None:
            gradient, steepest = torch.zeros_like(query.point).index_copy(0, query.sent, gradient), None
        if self.box.mask is not None:
            box = self.box if query.images is None else self.box.take(query.images, self.x.shape[1:])
            gradient, steepest = box.free(gradient), None
        steepest = largest_entry(gradient) if steepest is None else steepest
        self._last_gradient = (gradient, steepest, self.cheap_sync and float(steepest.amin()) > 0)
        images = query.images
        self._steepest.append(
            steepest if images is None else self.zero.expand(len(self)).scatter_reduce(0, images, steepest, "amax")
        )
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

    def replace_zero_gradients(self, gradient: Tensor, unless: Tensor | None = None) -> Tensor:
        """Replace zero gradients by random unit directions.

        Args:
            gradient: gradients, shape (B, ...).
            unless: images that keep a zero gradient, such as those that reach the goal, shape (B,); None for none.

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
        zero = zero if unless is None else zero > unless  # zero and not one of them, in one operator
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
            # Twice in a row, so that a rotation is a view.
            self._noise = unit(self.random.normal()).flatten(1).repeat(1, 2)
        size = self._noise.shape[1] // 2
        if self.counts.level:
            begin = self.counts.most_backwards % size
            turned = self._noise[:, begin : begin + size]
        else:
            places = torch.arange(size, device=self._noise.device) + self.backwards.unsqueeze(1)
            turned = self._noise.gather(1, places % size)
        turned = turned.view_as(self.x)
        return turned if self.box.mask is None else unit(self.box.free(turned))

    def _take_part(self, images: Tensor) -> None:
        self.active, self._taken, self._send_known = images, None, False

    def _return(self) -> None:
        """Images that were released are active again."""
        self._queries = 0  # the next query updates the rows
        self.counts.images_return()

    def _going(self) -> Tensor:
        """(B,) the active images whose budget is not spent."""
        return self.active if self._stopped is None else self.active & ~self._stopped

    def _rows_to_send(self, images: Tensor | None) -> Rows | None:
        """The rows to send to the model; None for all."""
        due = not self._send_known and (self.cheap_sync or self._queries % SYNC_EVERY == 0)
        self._queries += 1
        if due:
            going = self._going()
            rows = going.nonzero().flatten()
            if not len(rows):
                raise Exhausted
            self._send, self._send_known = None if len(rows) == len(self) else (rows, going), True
        mask = self.counts.may_forward(images)
        if mask is None and (self._send is None or images is None):
            return self._send
        if self._send is not None:
            going = self._send[1]
            if not bool((going & ~self.counts.spent).any()):
                raise Exhausted
            going = going if images is None else going[images]
            mask = going if mask is None else mask & going
        assert mask is not None
        return None if bool(mask.all()) else (mask.nonzero().flatten(), mask)

    def _all_rows(self, outputs: Tensor | None, sent: Rows | None, images: Tensor | None) -> Tensor:
        """Logits of all rows: new ones for rows that were sent, the last known ones for others."""
        if sent is None and outputs is not None:
            return outputs
        if self._last_logits is None:
            assert outputs is not None, "the first query is about at least one image"
            self._last_logits = outputs.new_zeros(len(self), *outputs.shape[1:])
        old = self._last_logits if images is None else self._last_logits[images]
        return old if outputs is None or sent is None else old.index_copy(0, sent[0], outputs)

    def _bound_of(self, images: Tensor) -> Bound:
        """The bound distance of the images ``images`` (R,), cached for queries with the same images."""
        if self._taken is None or self._taken[0].shape != images.shape or not torch.equal(self._taken[0], images):
            self._taken = (images.clone(), self.bound.take(images))
        return self._taken[1]

    def _remember(self, query: Query, aside: bool) -> None:
        """Include the results of a query, and stop images that need no other query."""
        if self._history.due(self.counts):
            self._settle()
            self._history.passed(self.counts, self._distance)
        if aside:
            self._note_not_finite(query)
        else:
            self._pending.append(query)
        if self.cheap_sync or query.images is not None or len(self._pending) == self._most_pending:
            self._settle()
        if self._stop_distance is not None and not aside and bool(query.success.any()):
            distance = self.best_distance
            if self.limits.measure is not None:
                with torch.no_grad():
                    distance = torch.where(self.found, self.limits.measure(self._point), distance)
            within = distance <= self._stop_distance
            if bool(within.any()):
                self._stopped = within if self._stopped is None else self._stopped | within
                self._send_known = False

    def _settle(self) -> None:
        """Update the best points, and which images had finite logits only, with all pending queries."""
        queries, self._pending = self._pending, []
        if not queries:
            return
        if len(queries) == 1 or any(query.images is not None for query in queries):
            for query in queries:
                self._take_in(query)
            return
        distances = torch.stack([query.distance for query in queries])
        success = torch.stack([query.success for query in queries]) & (distances < float("inf"))
        distances = torch.cat([self._distance.unsqueeze(0), torch.where(success, distances, self.infinity)])
        # Of equal distances the first is kept.
        self._distance, first = distances.min(0)
        points = torch.stack([self._point, *(query.point for query in queries)])
        self._point = points[first, torch.arange(len(self), device=first.device)]
        self._all_finite = torch.stack([self._all_finite, *(query.valid for query in queries)]).all(0)

    def _note_not_finite(self, query: Query) -> None:
        if query.all_valid:
            return
        if query.images is None:
            self._all_finite = self._all_finite & query.valid
        else:
            broken = query.images.new_zeros(len(self)).index_add(0, query.images, (~query.valid).long())
            self._all_finite = self._all_finite & (broken == 0)

    def _take_in(self, query: Query) -> None:
        self._note_not_finite(query)
        images = query.images
        if images is None:
            self._keep(query.point, query.distance, query.success & (query.distance < self._distance))
            return
        if not len(images):
            return
        success = query.success & (query.distance < float("inf"))
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
