"""Counts of the passes of each image, and its best distance after some numbers of them."""

from __future__ import annotations

import torch
from torch import Tensor

from ..tensors import cheap_sync

MARKS = (10, 30, 100, 300, 1000)
"""Numbers of forwards after which the best distance is stored."""


class Exhausted(Exception):
    """Every image is finished or has spent its budget. Ends ``attack.run`` and is caught by its caller."""


class Counts:
    """Counts of the passes of each image: ``forwards``, ``backwards`` and ``attached`` (forwards of a surrogate), at
    most ``budget`` each, and ``distance_gradients`` (not counted for lp norms, whose gradient is a formula). A count
    is a number while it is equal for all images, otherwise a tensor (B,).

    ``owners`` (R,) are the images of the rows of a pass, which may repeat; None: each image once, in order. ``mask``
    (B,) marks them if each is there once. An image that would exceed its budget is excluded independently of the rest
    of the batch.
    """

    def __init__(self, size: int, device: torch.device, budget: int | None):
        self.size, self.device, self.budget = size, device, budget
        self.forwards: int | Tensor = 0
        self.backwards: int | Tensor = 0
        self.attached: int | Tensor = 0
        self.distance_gradients: int | Tensor = 0
        self.begin_anew()
        self.most_forwards = self.most_backwards = 0
        """Upper bounds of all images' counts, so that no tensor is read until a budget may be reached."""
        self.level = True
        """Whether the images that make further queries have had equally many passes, these bounds."""

    def of(self, counts: int | Tensor) -> Tensor:
        """``counts`` as a tensor (B,)."""
        return torch.full((self.size,), counts, device=self.device) if isinstance(counts, int) else counts

    def images_return(self) -> None:
        """Images that made no queries for a while make further ones."""
        self.level = self.level and isinstance(self.forwards, int) and isinstance(self.backwards, int)

    def begin_anew(self) -> None:
        """Clear the marks of images that would have exceeded the budget. The counts stay."""
        self.spent, self._any_spent = torch.zeros(self.size, dtype=torch.bool, device=self.device), False

    def may_forward(self, owners: Tensor | None) -> Tensor | None:
        """(R,) the rows with budget for another forward; None for all. Raises ``Exhausted`` if every image has spent
        its budget."""
        self.most_forwards += 1 if self.budget is None else most(owners)
        return self._within(self.forwards, self.most_forwards, owners)

    def may_backward(self, owners: Tensor | None) -> Tensor | None:
        """The same for a backward pass."""
        self.most_backwards += 1 if self.budget is None else most(owners)
        return self._within(self.backwards, self.most_backwards, owners)

    def count_forward(self, owners: Tensor | None, mask: Tensor | None, attached: bool) -> None:
        """Count one forward for each row, ``attached`` if a surrogate makes it too."""
        self.level = self.level and (owners is None or mask is not None)
        self.most_forwards = max(self.most_forwards, 1)
        self.forwards = self._added(self.forwards, owners, mask, None)
        if attached:
            self.attached = self._added(self.attached, owners, mask, None)

    def count_backward(self, owners: Tensor | None, mask: Tensor | None, allowed: Tensor | None) -> None:
        """Count one backward for each row that was ``allowed`` (R,)."""
        self.backwards = self._added(self.backwards, owners, mask, allowed)

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
        if self.budget is None or self.most_backwards + gradients * most(owners) <= self.budget:
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

    def _added(
        self, counts: int | Tensor, owners: Tensor | None, mask: Tensor | None, allowed: Tensor | None
    ) -> int | Tensor:
        if owners is None:
            return counts + (1 if allowed is None else allowed.long())
        if allowed is None and mask is not None:
            return counts + mask
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
    """``values`` (B, 5): the best distance of each image after the numbers of forwards in ``MARKS``; NaN before."""

    def __init__(self, x: Tensor):
        self._marks = torch.tensor(MARKS, device=x.device)
        self.values = torch.full((len(x), len(MARKS)), float("nan"), dtype=x.dtype, device=x.device)
        self.floor: Tensor | None = None  # (B,) best distance before a nested attack began

    def due(self, counts: Counts) -> bool:
        """Whether an image may have passed a mark in the last forward."""
        return not counts.level or counts.most_forwards - 1 in MARKS

    def passed(self, counts: Counts, best: Tensor) -> None:
        """Update after a pass, with the ``best`` distances (B,) before it."""
        crossed = (counts.of(counts.forwards).unsqueeze(1) > self._marks) & self.values.isnan()
        if not cheap_sync(best.device) or bool(crossed.any()):
            known = best if self.floor is None else torch.minimum(best, self.floor)
            self.values = torch.where(crossed, known.unsqueeze(1), self.values)

    def at_marks(self, final: Tensor) -> Tensor:
        """(B, 5) the best distance at each of ``MARKS``, and the ``final`` one (B,) if an image had fewer passes; never
        below the final one."""
        return torch.maximum(torch.where(self.values.isnan(), final.unsqueeze(1), self.values), final.unsqueeze(1))
