"""The problem an attack works on, and the only way to the model: it counts, projects, decides and remembers for every
image.

It is sealed: what it knows can be read, as copies, and not be written. A point becomes known by a query, a pass is
counted when it is made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import torch
from torch import Tensor

from ...distances.base import Bound
from ...tensors import largest_entry, per_image, unit
from ..model import Pass, in_calls
from .best import Best
from .counts import Exhausted
from .query import Query
from .state import Sealed


class Problem(Sealed):
    """Images still to be attacked, their goal, distance and domain, and the best verified point of each."""

    __slots__ = ()

    # Who takes part, and what counts.

    def release(self, finished: Tensor) -> None:
        """Takes the images marked in ``finished`` (B,) out of all further model passes."""
        self._take_part(self._active & ~finished)

    def recall(self, images: Tensor) -> None:
        """Makes exactly the images marked in ``images`` (B,) go through the model again, as far as the budget
        allows."""
        self._take_part(images.clone())
        self._counts.begin_anew()

    def _take_part(self, images: Tensor) -> None:
        self._active, self._all_active, self._sub_bound = images, bool(images.all()), None

    @contextmanager
    def round(self) -> Iterator[None]:
        """One round of an attack with several: it ends early when all are finished, and images released inside it take
        part in the next."""
        before = self._active
        try:
            yield
        except Exhausted:
            spent = torch.zeros_like(before) if self.budget is None else self._counts.forwards >= self.budget
            spent = spent if self._counts.stopped is None else spent | self._counts.stopped
            if not bool((before & ~spent).any()):
                raise
        finally:
            self._take_part(before)

    @contextmanager
    def isolated(self) -> Iterator[None]:
        """An attack of its own inside: it finds nothing known and the random numbers it would have alone; afterwards
        the better of both is kept."""
        best, random, noise, floor = self._best, self._random, self._noise, self._course.floor
        self._course.floor = best.distance if floor is None else torch.minimum(best.distance, floor)
        self._best, self._random, self._noise = Best.nothing(self._x, self._cheap_sync), random.again(), None
        try:
            yield
        finally:
            self._course.floor = floor
            self._best = self._best.nearer(best)
            self._random, self._noise = random, noise

    @contextmanager
    def limited_to(self, limit: Tensor) -> Iterator[None]:
        """What is found inside counts where its distance is at most ``limit`` (B,); elsewhere what was known before is
        kept."""
        before, stop = self._best, self._stop_distance
        self._stop_distance = None if stop is None else limit.clamp(max=stop)
        try:
            yield
        finally:
            self._stop_distance = stop
            self._best = self._best.within(limit, before)

    def recheck_full_precision(self, outwards: tuple[float, ...]) -> None:
        """Judges points found under autocast again without it, within the whole budget; one that fails is moved
        ``outwards``, else given up."""
        oracle, self._oracle = self._oracle, self._oracle.exact
        self._counts.budget = self._budget
        self._counts.stopped = None  # who stopped is asked about once more as well
        delta = self._best.point - self._x
        self.recall(self.found)
        self._best = Best.nothing(self._x, self._cheap_sync)
        with suppress(Exhausted):
            for reach in outwards:
                self.query(self._x + reach * delta, grad=False)
                self.release(self.found)
        self._oracle = oracle

    # Questions to the model.

    def start(self, distance_grad: bool = False, gradients: int = 1) -> Query:
        """The query at the clean images, from the pass that was already made and counted; its gradient is at hand
        once."""
        if self._start is None:
            return self.query(self._x, distance_grad=distance_grad, gradients=gradients)
        query, self._start = self._start, None
        if distance_grad:
            query.distance_gradient = self._bound.value_and_grad(self._x)[1]
        return query

    def begin(self, leaf: Tensor, logits: Tensor, rows: Tensor) -> None:
        """Takes over the clean pass of a whole batch: ``leaf`` (A, ...) and ``logits`` (A, K), of which ``rows`` (B,)
        are attacked here."""
        self._start = self._answered(self._x, logits[rows], Pass(leaf, places=rows, attached=logits.requires_grad))
        self._clean_logits = self._last_logits = self._start.logits.detach()
        self._counts.count_forward(None, leaf.requires_grad)
        self._course.passed(True, self._counts.forwards, self._best.distance)

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
        """Asks the model about ``candidate`` (B, ...), one per image, or (R, ...) for the images ``images`` (R,), which
        may repeat.

        Finished images and those whose budget is spent are not sent. Raises ``Exhausted`` when none is left.
        ``gradients``: how many gradients may be asked of the answer; a backward pass goes through every row of its
        graph, so images whose budget ends before that get a call of their own. ``aside``: for gradients at points that
        are not offered as results; successes are not remembered.
        """
        self._start = None
        box = self._box if images is None else self._box.take(images, self._x.shape[1:])
        point = box.project(candidate.detach(), self._x if images is None else self._x[images])
        send = self._sendable(images)
        leaf = point.detach() if send is None else point[send]
        owners = images if send is None else send if images is None else images[send]
        groups = self._counts.groups(owners, gradients, len(leaf)) if grad and len(leaf) else None
        answer: Tensor | None
        with torch.set_grad_enabled(grad):
            if groups is not None:
                answer, calls = in_calls(leaf, groups, self._oracle)
                made = Pass(leaf, images, send, outputs=answer, calls=calls)
            else:
                answer = self._oracle(leaf.requires_grad_(grad)) if len(leaf) else None
                made = Pass(leaf if grad else None, images, send, attached=answer is not None and answer.requires_grad)
            query = self._answered(
                point, answer if send is None and answer is not None else self._complete(answer, send, images), made
            )
        self._counts.count_forward(owners, grad)
        bound = self._bound if images is None else self._taken(images)
        if distance_grad:
            query.distance, query.distance_gradient = bound.value_and_grad(point)
        else:
            with torch.no_grad():
                query.distance = bound(point)
        if images is None:
            self._last_logits = query.logits.detach()
        if not query.all_valid:
            self._broken = (
                self._broken | ~query.valid
                if images is None
                else self._broken.index_fill(0, images[~query.valid], True)
            )
        stops = self._course.passed(owners is None, self._counts.forwards, self._best.distance)
        if not aside:
            self._best = self._best.with_query(query, images)
        if stops is not None:
            self._counts.stop(stops)
        if self._stop_distance is not None and not aside and bool(query.success.any()):
            within = self._measured_best() <= self._stop_distance
            if bool(within.any()):
                self._counts.stop(within)
        return query

    def midway(self, candidate: Tensor) -> Tensor:
        """Halfway from ``candidate`` (B, ...) to the best point known (or the clean image): where to go on after
        non-finite logits."""
        return (candidate + self._best.point) / 2

    def step_or_backtrack(self, query: Query, moved: Tensor, candidate: Tensor) -> Tensor:
        """``moved`` (B, ...) where the logits of ``query`` were finite, and midway back from ``candidate`` (B, ...)
        where they were not."""
        if query.all_valid:
            return moved
        return torch.where(per_image(query.valid, moved), moved, self.midway(candidate))

    def replace_zero_gradients(self, gradient: Tensor, stuck: Tensor | None = None) -> Tensor:
        """``gradient`` (B, ...) with a random unit direction in rows that are zero (and, if given, marked in ``stuck``
        (B,))."""
        known, self._steepest = self._steepest, None
        if known is not None and known[0] is gradient and known[2]:
            return gradient
        steepest = known[1] if known is not None and known[0] is gradient else largest_entry(gradient)
        zero = (steepest == 0) & self._active
        zero = zero if stuck is None else zero & stuck
        if not self._cheap_sync:
            return torch.where(per_image(zero, gradient), self._direction(), gradient)
        rows = zero.nonzero().flatten().tolist()
        if not rows:
            return gradient
        noise = self._box.free(self._random.normal(rows))
        norm = torch.linalg.vector_norm(noise.flatten(1), dim=1).clamp_min(1e-12)
        return torch.where(per_image(zero, gradient), noise / per_image(norm, noise), gradient)

    def record(self, step: int, **values: Tensor) -> None:
        """Hands per-image values (B,) of a step to the caller's trace, with the rows of the caller's batch they belong
        to."""
        if self._trace is not None:
            self._trace(
                {"step": step, "image": self._rows, **{name: value.detach().clone() for name, value in values.items()}}
            )

    # How the promises are kept.

    def _direction(self) -> Tensor:
        """(B, ...) a unit direction of its own for each image, another after each of its backward passes, so that its
        company does not matter; drawn once and turned, so that no call waits for the CPU."""
        if self._noise is None:
            self._noise = self._random.normal()
        flat = self._noise.flatten(1)
        places = (torch.arange(flat.shape[1], device=flat.device) + self._counts.backwards.unsqueeze(1)) % flat.shape[1]
        return unit(self._box.free(flat.gather(1, places).view_as(self._noise)))

    def _sendable(self, images: Tensor | None) -> Tensor | None:
        """Indices of the rows that may go to the model; None when all may."""
        allowed = self._counts.may_forward(images)
        if not self._all_active:
            active = self._active if images is None else self._active[images]
            allowed = active if allowed is None else allowed & active
        if allowed is None:
            return None
        if not bool((self._active & ~self._counts.spent).any()):
            raise Exhausted
        return None if bool(allowed.all()) else allowed.nonzero().flatten()

    def _measured_best(self) -> Tensor:
        """(B,) the distance that counts of the best points, infinite where none is known."""
        if self._measure is None:
            return self._best.distance
        with torch.no_grad():
            measured = self._measure(self._best.point)
        return torch.where(self._best.found, measured, self._best.distance)

    def _answered(self, point: Tensor, logits: Tensor, made: Pass) -> Query:
        """The query at ``point`` (R, ...), whose gradients go back through ``made``."""
        goal = self._goal if made.images is None else self._goal.take(made.images)
        return Query(
            point,
            logits,
            goal,
            self._oracle.precision,
            self._cheap_sync,
            partial(self._gradient, made, point),
            made.sent,
        )

    def _complete(self, answer: Tensor | None, send: Tensor | None, images: Tensor | None) -> Tensor:
        """Logits of all rows: the new ones where they were sent, the last seen ones elsewhere."""
        if self._last_logits is None:
            assert answer is not None, "the first query asks about at least one image"
            self._last_logits = torch.zeros(len(self._x), *answer.shape[1:], dtype=answer.dtype, device=answer.device)
        old = self._last_logits if images is None else self._last_logits[images]
        return old if answer is None or send is None else old.index_copy(0, send, answer)

    def _taken(self, images: Tensor) -> Bound:
        """The bound distance of the images ``images`` (R,), kept while the same ones are asked about."""
        if (
            self._sub_bound is None
            or self._sub_bound[0].shape != images.shape
            or not torch.equal(self._sub_bound[0], images)
        ):
            self._sub_bound = (images.clone(), self._bound.take(images))
        return self._sub_bound[1]

    def _gradient(self, made: Pass, point: Tensor, value: Tensor, slope: Tensor | None, keep: bool) -> Tensor:
        """The gradient of ``value`` (R,) at the points (R, ...) of a pass, or of ``value`` (R, K) weighted with
        ``slope`` (R, K); counted."""
        assert made.leaf is not None, "the query was made with grad=False"
        allowed = self._counts.may_backward(made.owners)
        if not len(made.leaf) or (allowed is not None and not bool(allowed.any())):
            return torch.zeros_like(point)
        gradient = made.pull(made.weigh(value, slope, allowed), allowed, keep)
        self._counts.count_backward(made.owners, allowed)
        gradient = gradient if allowed is None else gradient * per_image(allowed, gradient)
        return self._finished(made, point, gradient)

    def _finished(self, made: Pass, point: Tensor, gradient: Tensor) -> Tensor:
        """``gradient`` (S, ...) without what is not finite, for all rows and where the mask lets them change; whether
        it has a slope is noted."""
        steepest = largest_entry(gradient)
        if not (self._cheap_sync and math.isfinite(float(steepest.sum()))):  # none is negative
            gradient = torch.nan_to_num(gradient, nan=0.0, posinf=0.0, neginf=0.0)
            steepest = largest_entry(gradient)
        if made.sent is not None:
            gradient = torch.zeros_like(point).index_copy(0, made.sent, gradient)
            steepest = steepest.new_zeros(len(point)).index_copy(0, made.sent, steepest)
        images = made.images
        if self._box.mask is not None:
            gradient = (self._box if images is None else self._box.take(images, self._x.shape[1:])).free(gradient)
            steepest = largest_entry(gradient)
        steep = self._cheap_sync and float(steepest.amin()) > 0
        self._steepest = (gradient, steepest, steep)
        sloping = steepest > 0
        self._had_slope = (
            self._had_slope | sloping if images is None else self._had_slope.index_fill(0, images[sloping], True)
        )
        return gradient
