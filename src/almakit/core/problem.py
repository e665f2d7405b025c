"""The problem an attack works on, and the only way to the model: it counts, projects, decides and remembers for every image."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..distances.base import Bound
from ..errors import BadModel
from .domain import Box
from .goals import Goal
from .oracle import Oracle
from .query import Query
from .steps import ImageRandom, choose, largest_entry, per_image, unit

Trace = Callable[[dict[str, Any]], None]
Parts = list[tuple[Tensor, Tensor, Tensor]]
"""Rows of a pass, their leaf and their logits, for each group that had a call of its own."""


class Exhausted(Exception):
    """Every image is finished or has spent its budget; ends ``attack.run`` and is caught by the caller."""


class Problem:
    """Images still to be attacked, their goal, distance and domain, and the best verified point of each.

    ``x`` (B, ...) are the clean images; the ones that reached the goal unattacked were taken out by the caller's clean pass.
    """

    def __init__(self, oracle: Oracle, x: Tensor, goal: Goal, bound: Bound, box: Box, random: ImageRandom, budget: int | None = None,
                 trace: Trace | None = None, rows: Tensor | None = None):
        self.oracle, self.x, self.goal, self.bound, self.box, self.random = oracle, x, goal, bound, box, random
        self.budget, self.trace = budget, trace
        # On the CPU a look at (B,) values costs nothing and saves passes over whole images. On another device it would wait for all that is
        # under way, so there the same is done with masks.
        self.looks = x.device.type == "cpu"
        self.rows = torch.arange(len(x)) if rows is None else rows
        size, device = len(x), x.device
        self.forwards = torch.zeros(size, dtype=torch.long, device=device)
        self.backwards = torch.zeros(size, dtype=torch.long, device=device)
        self.best_point = x.clone()
        self.best_distance = torch.full((size,), float("inf"), dtype=x.dtype, device=device)
        self.broken = torch.zeros(size, dtype=torch.bool, device=device)
        self.had_slope = torch.zeros(size, dtype=torch.bool, device=device)
        self._active = torch.ones(size, dtype=torch.bool, device=device)
        self._all_active = True
        self._spent, self._any_spent = torch.zeros_like(self._active), False
        # Upper bounds of the counts of any image, so that no tensor is read back in the loop until a budget may be reached.
        self._forwards_at_most = self._backwards_at_most = 0
        self._start: Query | None = None
        self.clean_logits: Tensor | None = None
        self._last_logits: Tensor | None = None
        self._sub_bound: tuple[Tensor, Bound] | None = None
        # The last gradient, its largest entries (R,), and whether it is known that none of them is zero.
        self._steepest: tuple[Tensor, Tensor, bool] | None = None
        self._noise: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x)

    @property
    def found(self) -> Tensor:
        """(B,) whether an adversarial point is known."""
        return torch.isfinite(self.best_distance)

    @property
    def active(self) -> Tensor:
        """(B,) which images still go through the model."""
        return self._active

    def release(self, finished: Tensor) -> None:
        """Takes the images marked in ``finished`` (B,) out of all further model passes."""
        self._active = self._active & ~finished
        self._all_active = bool(self._active.all())
        self._sub_bound = None

    @contextmanager
    def round(self) -> Iterator[None]:
        """One round of an attack with several: it ends early when all are finished, and images released inside it take part in the next."""
        before = self._active
        try:
            yield
        except Exhausted:
            spent = torch.zeros_like(before) if self.budget is None else self.forwards >= self.budget
            if not bool((before & ~spent).any()):
                raise
        finally:
            self._active, self._all_active, self._sub_bound = before, bool(before.all()), None

    @contextmanager
    def afresh(self) -> Iterator[None]:
        """An attack of its own inside: it finds nothing known and the random numbers it would have alone; afterwards the better of both is kept."""
        point, distance, random, noise = self.best_point, self.best_distance, self.random, self._noise
        self.best_point, self.best_distance = self.x.clone(), torch.full_like(distance, float("inf"))
        self.random, self._noise = random.again(), None
        try:
            yield
        finally:
            closer = distance <= self.best_distance
            self.best_point = choose(closer, point, self.best_point, self.looks)
            self.best_distance = torch.where(closer, distance, self.best_distance)
            self.random, self._noise = random, noise

    def recall(self, images: Tensor) -> None:
        """Makes exactly the images marked in ``images`` (B,) go through the model again, as far as the budget allows."""
        self._active, self._sub_bound = images.clone(), None
        self._all_active = bool(images.all())
        self._spent, self._any_spent = torch.zeros_like(self._active), False

    def start(self, distance_grad: bool = False, gradients: int = 1) -> Query:
        """The query at the clean images, from the pass that was already made and counted; its gradient is at hand once."""
        if self._start is None:
            return self.query(self.x, distance_grad=distance_grad, gradients=gradients)
        query, self._start = self._start, None
        if distance_grad:
            query.distance_gradient = self.bound.value_and_grad(self.x)[1]
        return query

    def begin(self, leaf: Tensor, logits: Tensor, rows: Tensor) -> None:
        """Takes over the clean pass of a whole batch: ``leaf`` (A, ...) and ``logits`` (A, K), of which ``rows`` (B,) are attacked here."""
        self._start = Query(self, self.x, logits[rows], leaf, from_leaf=rows)
        self.clean_logits = self._last_logits = self._start.logits.detach()
        self.forwards += 1
        self._forwards_at_most = 1

    def query(self, candidate: Tensor, *, grad: bool = True, distance_grad: bool = False, images: Tensor | None = None, gradients: int = 1) -> Query:
        """Asks the model about ``candidate`` (B, ...), one per image, or (R, ...) for the images ``images`` (R,), which may repeat.

        Finished images and those whose budget is spent are not sent. Raises ``Exhausted`` when none is left. ``gradients``: how many gradients may be
        asked of the answer; a backward pass goes through every row of its graph, so images whose budget ends before that get a call of their own.
        """
        self._start = None
        box = self.box if images is None else self.box.take(images, self.x.shape[1:])
        point = box.project(candidate.detach(), self.x if images is None else self.x[images])
        send = self._sendable(images)
        leaf = point.detach() if send is None else point[send]
        with torch.set_grad_enabled(grad):
            parts = self._parts(images if send is None else send if images is None else images[send], gradients, leaf) if grad and len(leaf) else None
            answer = _joined(parts) if parts else self.oracle(leaf.requires_grad_(grad)) if len(leaf) else None
            logits = answer if send is None and answer is not None else self._complete(answer, send, images)
        query = Query(self, point, logits, leaf if grad else None, images, send, parts=(answer, parts) if parts and answer is not None else None)
        self._count(self.forwards, query._owners)
        bound = self.bound if images is None else self._taken(images)
        if distance_grad:
            query.distance, query.distance_gradient = bound.value_and_grad(point)
        else:
            with torch.no_grad():
                query.distance = bound(point)
        self._remember(query)
        return query

    def midway(self, candidate: Tensor) -> Tensor:
        """Halfway from ``candidate`` (B, ...) to the best point known (or the clean image): where to go on after non-finite logits."""
        return (candidate + self.best_point) / 2

    def onward(self, query: Query, moved: Tensor, candidate: Tensor) -> Tensor:
        """``moved`` (B, ...) where the logits of ``query`` were finite, and midway back from ``candidate`` (B, ...) where they were not."""
        if query.all_valid:
            return moved
        return torch.where(per_image(query.valid, moved), moved, self.midway(candidate))

    def escape(self, gradient: Tensor, stuck: Tensor | None = None) -> Tensor:
        """``gradient`` (B, ...) with a random unit direction in rows that are zero (and, if given, marked in ``stuck`` (B,))."""
        known, self._steepest = self._steepest, None
        if known is not None and known[0] is gradient and known[2]:
            return gradient
        steepest = known[1] if known is not None and known[0] is gradient else largest_entry(gradient)
        zero = (steepest == 0) & self._active
        zero = zero if stuck is None else zero & stuck
        if not self.looks:
            return torch.where(per_image(zero, gradient), self._direction(), gradient)
        rows = zero.nonzero().flatten().tolist()
        if not rows:
            return gradient
        noise = self.box.free(self.random.normal(rows))
        norm = torch.linalg.vector_norm(noise.flatten(1), dim=1).clamp_min(1e-12)
        return torch.where(per_image(zero, gradient), noise / per_image(norm, noise), gradient)

    def _direction(self) -> Tensor:
        """(B, ...) a unit direction of its own for each image, another after each of its backward passes, so that its company does not matter; drawn once
        and turned, so that no call waits for the CPU."""
        if self._noise is None:
            self._noise = self.random.normal()
        flat = self._noise.flatten(1)
        places = (torch.arange(flat.shape[1], device=flat.device) + self.backwards.unsqueeze(1)) % flat.shape[1]
        return unit(self.box.free(flat.gather(1, places).view_as(self._noise)))

    def record(self, step: int, **values: Tensor) -> None:
        """Hands per-image values (B,) of a step to the caller's trace, with the rows of the caller's batch they belong to."""
        if self.trace is not None:
            self.trace({"step": step, "image": self.rows, **{name: value.detach().clone() for name, value in values.items()}})

    # How the promises are kept.

    def _sendable(self, images: Tensor | None) -> Tensor | None:
        """Indices of the rows that may go to the model; None when all may."""
        self._forwards_at_most += 0 if self.budget is None else _most(images)
        allowed = self._within_budget(self.forwards, self._forwards_at_most, images)
        if not self._all_active:
            active = self._active if images is None else self._active[images]
            allowed = active if allowed is None else allowed & active
        if allowed is None:
            return None
        if not bool((self._active & ~self._spent).any()):
            raise Exhausted
        return None if bool(allowed.all()) else allowed.nonzero().flatten()

    def _within_budget(self, counts: Tensor, at_most: int, owners: Tensor | None) -> Tensor | None:
        """(R,) which rows, of the images ``owners``, may take one more pass of the kind counted in ``counts`` (B,); None when all may.

        An image that asks for more than its budget is spent, alone or in company: so its result does not depend on the others.
        """
        if self.budget is None or (at_most <= self.budget and not self._any_spent):
            return None
        over = counts >= self.budget
        self._spent = self._spent | (over if owners is None else over & torch.zeros_like(over).index_fill(0, owners, True))
        self._any_spent = bool(self._spent.any())
        if bool(self._spent.all()):
            raise Exhausted
        if owners is None:
            return ~self._spent if self._any_spent else None
        allowed = ~self._spent[owners] & (counts[owners] + _occurrence(owners) < self.budget)
        return None if bool(allowed.all()) else allowed

    def _parts(self, owners: Tensor | None, gradients: int, leaf: Tensor) -> Parts | None:
        """The rows of ``leaf`` (S, ...) in groups that run out of backward passes together; None: none does within so many ``gradients``."""
        if self.budget is None or self._backwards_at_most + gradients * _most(owners) <= self.budget:
            return None
        owners = torch.arange(len(leaf), device=leaf.device) if owners is None else owners
        left, rows = self.budget - self.backwards[owners], torch.bincount(owners)[owners]
        state = torch.stack([left, rows, _occurrence(owners)], 1)
        groups = torch.unique(torch.where((left >= gradients * rows).unsqueeze(1), -1, state), dim=0, return_inverse=True)[1]
        count = int(groups.max()) + 1
        if count == 1:
            return None
        places = [(groups == group).nonzero().flatten() for group in range(count)]
        leaves = [leaf.detach()[rows].requires_grad_(True) for rows in places]
        return [(rows, part, self.oracle(part)) for rows, part in zip(places, leaves, strict=True)]

    def _complete(self, answer: Tensor | None, send: Tensor | None, images: Tensor | None) -> Tensor:
        """Logits of all rows: the new ones where they were sent, the last seen ones elsewhere."""
        if self._last_logits is None:
            assert answer is not None, "the first query asks about at least one image"
            self._last_logits = torch.zeros(len(self.x), answer.shape[1], dtype=answer.dtype, device=answer.device)
        old = self._last_logits if images is None else self._last_logits[images]
        return old if answer is None or send is None else old.index_copy(0, send, answer)

    def _count(self, counter: Tensor, owners: Tensor | None) -> None:
        if owners is None:
            counter += 1
        else:
            counter.index_add_(0, owners, torch.ones_like(owners))

    def _taken(self, images: Tensor) -> Bound:
        """The bound distance of the images ``images`` (R,), kept while the same ones are asked about."""
        if self._sub_bound is None or self._sub_bound[0].shape != images.shape or not torch.equal(self._sub_bound[0], images):
            self._sub_bound = (images.clone(), self.bound.take(images))
        return self._sub_bound[1]

    def _remember(self, query: Query) -> None:
        """Updates the best verified points from a query."""
        images, send = query._images, query._sent
        success = query.success & (query.distance.abs() < float("inf"))
        if send is not None:
            sent = torch.zeros_like(success).index_fill(0, send, True)
            query.success = query.success & sent
            success = success & sent
        if images is None:
            self._last_logits = query.logits.detach()
            if not query.all_valid:
                self.broken |= ~query.valid
            better = success & (query.distance < self.best_distance)
            self.best_distance = torch.where(better, query.distance, self.best_distance)
            self.best_point = choose(better, query.point, self.best_point, self.looks)
            return
        self.broken[images[~query.valid]] = True
        distance = torch.where(success, query.distance, torch.full_like(query.distance, float("inf")))
        smallest = self.best_distance.scatter_reduce(0, images, distance, "amin")
        # Of several candidates of one image with the same distance the first is kept, whatever the device's scatter order.
        order = torch.arange(len(images), device=images.device)
        wins = success & (distance == smallest[images]) & (distance < self.best_distance[images])
        first = torch.full_like(self.forwards, len(images)).scatter_reduce(0, images, torch.where(wins, order, len(images)), "amin")
        improved = (first < len(images)).nonzero().flatten()
        self.best_distance[improved] = smallest[improved]
        self.best_point[improved] = query.point[first[improved]]

    def _gradient(self, query: Query, value: Tensor, slope: Tensor | None, keep: bool) -> Tensor:
        """The gradient of ``value`` (R,) at the query's points, or of ``value`` (R, K) weighted with ``slope`` (R, K)."""
        assert query._leaf is not None, "the query was made with grad=False"
        owners = query._owners
        self._backwards_at_most += 0 if self.budget is None else _most(owners)
        allowed = self._within_budget(self.backwards, self._backwards_at_most, owners)
        if not len(query._leaf) or (allowed is not None and not bool(allowed.any())):
            return torch.zeros_like(query.point)
        if not value.requires_grad:
            raise BadModel(
                "the model's logits carry no gradient, and this attack needs one: leave out torch.no_grad(), detach() and conversions "
                "to numpy inside the model."
            )
        if allowed is not None:
            counted = allowed.long()
            # An image past its budget learns nothing more: its row is kept out of the pass.
            weight = counted if query._sent is None else value.new_ones(len(value), dtype=torch.long).index_copy(0, query._sent, counted)
            if slope is None:
                value = torch.where(weight > 0, value, torch.zeros_like(value))
            else:
                slope = torch.where(per_image(weight > 0, slope), slope, torch.zeros_like(slope))
        # The gradient of the weighted sum: handed over as grad_outputs, the same weights would make torch import 40 MB of symbolic algebra.
        total = value.sum() if slope is None else (value * slope).sum()
        if query._parts is None:
            gradient = _pulled(total, query._leaf, keep)
        else:
            answer, parts = query._parts
            inner, gradient = _pulled(total, answer, keep), torch.zeros_like(query.point if query._sent is None else query.point[query._sent])
            for rows, leaf, logits in parts:
                if allowed is None or bool(allowed[rows].any()):
                    gradient[rows] = _pulled((logits * inner[rows]).sum(), leaf, keep)
        # A copy: a backward of the model's own may return a tensor it keeps, its saved input or a buffer that the next pass overwrites.
        gradient = gradient.clone(memory_format=torch.contiguous_format) if query._from_leaf is None else gradient[query._from_leaf].contiguous()
        gradient, steepest = self._finite(gradient)
        if allowed is not None:
            gradient, steepest = gradient * per_image(counted, gradient), steepest * counted
            self.backwards = self.backwards + counted if owners is None else self.backwards.index_add(0, owners, counted)
        else:
            self._count(self.backwards, owners)
        if query._sent is not None:
            gradient = torch.zeros_like(query.point).index_copy(0, query._sent, gradient)
            steepest = torch.zeros_like(query.margin).index_copy(0, query._sent, steepest)
        images = query._images
        if self.box.mask is not None:
            gradient = (self.box if images is None else self.box.take(images, self.x.shape[1:])).free(gradient)
            steepest = largest_entry(gradient)
        steep = self.looks and float(steepest.amin()) > 0
        self._steepest = (gradient, steepest, steep)
        if steep and images is None:
            self.had_slope.fill_(True)
            return gradient
        slope = steepest > 0
        self.had_slope = self.had_slope | slope if images is None else self.had_slope.index_put((images[slope],), slope.new_tensor(True))
        return gradient

    def _finite(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """``gradient`` (R, ...) with zeros for what is not finite, and its largest absolute entry (R,); the same tensor where nothing is wrong."""
        steepest = largest_entry(gradient)
        if self.looks and math.isfinite(float(steepest.sum())):  # none is negative
            return gradient, steepest
        gradient = torch.nan_to_num(gradient, nan=0.0, posinf=0.0, neginf=0.0)
        return gradient, largest_entry(gradient)


def _pulled(total: Tensor, leaf: Tensor, keep: bool) -> Tensor:
    """The gradient of ``total`` () in ``leaf`` (S, ...), zero where it does not depend on it."""
    (gradient,) = torch.autograd.grad(total, leaf, retain_graph=keep, allow_unused=True)
    return torch.zeros_like(leaf, requires_grad=False) if gradient is None else gradient.detach()


def _joined(parts: Parts) -> Tensor:
    """The logits (S, K) of all groups in the order of their rows, cut off from the groups' graphs: those are gone through one by one."""
    order = torch.cat([rows for rows, _, _ in parts]).argsort()
    return torch.cat([logits.detach() for _, _, logits in parts])[order].requires_grad_(True)


def _most(owners: Tensor | None) -> int:
    """How many rows one image has at most in ``owners`` (R,); None: each image has one."""
    if owners is None:
        return 1
    return int(torch.bincount(owners).max()) if len(owners) else 0


def _occurrence(images: Tensor) -> Tensor:
    """(R,) how often each entry's image occurred before it in ``images`` (R,)."""
    order = torch.argsort(images, stable=True)
    grouped = images[order]
    position = torch.arange(len(images), device=images.device)
    starts = torch.ones_like(grouped, dtype=torch.bool)
    starts[1:] = grouped[1:] != grouped[:-1]
    first = torch.cummax(torch.where(starts, position, torch.zeros_like(position)), 0).values
    return torch.empty_like(images).index_copy(0, order, position - first)
