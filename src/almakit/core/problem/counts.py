"""How many passes of the model each image has had, forward and backward, and which images may have another."""

from __future__ import annotations

import torch
from torch import Tensor


class Exhausted(Exception):
    """Every image is finished or has spent its budget; ends ``attack.run`` and is caught by the caller."""


class Counts:
    """``forwards`` and ``backwards`` (B,) of each image, neither above ``budget``, and ``attached`` (B,): the forwards
    made for a gradient.

    ``owners`` (R,) are the images of the rows of a pass, which may repeat; None: each image once, in order. An image
    that asks for more than its budget is spent, alone or in company: so its result does not depend on the others.
    """

    def __init__(self, size: int, device: torch.device, budget: int | None):
        self.forwards = torch.zeros(size, dtype=torch.long, device=device)
        self.backwards = torch.zeros(size, dtype=torch.long, device=device)
        self.attached = torch.zeros(size, dtype=torch.long, device=device)
        self.budget = budget
        self.spent, self._any_spent = torch.zeros(size, dtype=torch.bool, device=device), False
        self.stopped: Tensor | None = None  # (B,) who was stopped before the budget was spent
        self._stopped_anew = False  # since the last forward, whose backward they still belong to
        # Upper bounds of the counts of any image, so that no tensor is read back in the loop until a budget may be
        # reached.
        self._forwards_at_most = self._backwards_at_most = 0

    def begin_anew(self) -> None:
        """Forgets who asked for too much; the counts stay, and so does who was stopped."""
        self.spent = torch.zeros_like(self.spent) if self.stopped is None else self.stopped.clone()
        self._any_spent = self.stopped is not None

    def stop(self, images: Tensor) -> None:
        """Lets the ``images`` (B,) make no further forward, as if their budget were spent."""
        self.stopped = images if self.stopped is None else self.stopped | images
        self._stopped_anew = True

    def may_forward(self, owners: Tensor | None) -> Tensor | None:
        """(R,) which rows may go forward once more; None when all may. Raises ``Exhausted`` when every image is
        spent."""
        if self._stopped_anew and self.stopped is not None:
            self.spent, self._any_spent, self._stopped_anew = self.spent | self.stopped, True, False
        self._forwards_at_most += 0 if self.budget is None else most(owners)
        return self._within(self.forwards, self._forwards_at_most, owners)

    def may_backward(self, owners: Tensor | None) -> Tensor | None:
        """The same for a backward pass."""
        self._backwards_at_most += 0 if self.budget is None else most(owners)
        return self._within(self.backwards, self._backwards_at_most, owners)

    def count_forward(self, owners: Tensor | None, attached: bool) -> None:
        """Counts one forward for each row, ``attached`` where it was made for a gradient."""
        self.forwards = _added(self.forwards, owners, None)
        if attached:
            self.attached = _added(self.attached, owners, None)
        self._forwards_at_most = max(self._forwards_at_most, 1)

    def count_backward(self, owners: Tensor | None, allowed: Tensor | None) -> None:
        """Counts one backward for each row that was ``allowed`` (R,)."""
        self.backwards = _added(self.backwards, owners, allowed)

    def groups(self, owners: Tensor | None, gradients: int, rows: int) -> list[Tensor] | None:
        """The ``rows`` of a pass in groups that run out of backward passes together; None: none does within so many
        ``gradients``."""
        if self.budget is None or self._backwards_at_most + gradients * most(owners) <= self.budget:
            return None
        owners = torch.arange(rows, device=self.backwards.device) if owners is None else owners
        left, times = self.budget - self.backwards[owners], torch.bincount(owners)[owners]
        state = torch.stack([left, times, occurrence(owners)], 1)
        group = torch.unique(
            torch.where((left >= gradients * times).unsqueeze(1), -1, state), dim=0, return_inverse=True
        )[1]
        count = int(group.max()) + 1
        return None if count == 1 else [(group == each).nonzero().flatten() for each in range(count)]

    def _within(self, counts: Tensor, at_most: int, owners: Tensor | None) -> Tensor | None:
        if not self._any_spent and (self.budget is None or at_most <= self.budget):
            return None
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


def _added(counts: Tensor, owners: Tensor | None, allowed: Tensor | None) -> Tensor:
    if owners is None:
        return counts + (1 if allowed is None else allowed.long())
    return counts.index_add(0, owners, torch.ones_like(owners) if allowed is None else allowed.long())


def most(owners: Tensor | None) -> int:
    """How many rows one image has at most in ``owners`` (R,); None: each image has one."""
    if owners is None:
        return 1
    return int(torch.bincount(owners).max()) if len(owners) else 0


def occurrence(images: Tensor) -> Tensor:
    """(R,) how often each entry's image occurred before it in ``images`` (R,)."""
    order = torch.argsort(images, stable=True)
    grouped = images[order]
    position = torch.arange(len(images), device=images.device)
    starts = torch.ones_like(grouped, dtype=torch.bool)
    starts[1:] = grouped[1:] != grouped[:-1]
    first = torch.cummax(torch.where(starts, position, torch.zeros_like(position)), 0).values
    return torch.empty_like(images).index_copy(0, order, position - first)
