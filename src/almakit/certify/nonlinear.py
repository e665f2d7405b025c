"""Nonlinear layers: values, intervals, and linear relaxations, through which rows of coefficients are propagated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .intervals import Interval

Beside = Callable[[Tensor], Tensor]
"""Selects, for rows (P, ...), the values (B, ...) of each row's image."""


@dataclass(frozen=True)
class Lines:
    """below x <= y <= above x + offset, entry by entry (B, ...)."""

    below: Tensor
    above: Tensor
    offset: Tensor

    def back(self, rows: Tensor, beside: Beside, slopes: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Propagate rows a (P, ...) of the outputs to rows of the inputs and a constant (P,).

        ``slopes`` (P, ...): other slopes of the lines below.
        """
        up, down = rows.clamp_min(0), rows.clamp_max(0)
        below = beside(self.below) if slopes is None else slopes
        return up * below + down * beside(self.above), (down * beside(self.offset)).flatten(1).sum(1)


class Relu:
    """max(x, 0)."""

    def value(self, before: Tensor) -> Tensor:
        return before.relu()

    def interval(self, before: Interval) -> Interval:
        return Interval(before.lower.relu(), before.upper.relu())

    def open(self, before: Interval) -> Tensor:
        """The entries (B, ...) that a tighter interval would improve: those that can be positive and negative."""
        return (before.lower < 0) & (before.upper > 0)

    def relax(self, before: Interval) -> Lines:
        """Above the chord u (x - l) / (u - l), below x or 0, whichever leaves the smaller area (Zhang et al. 2018,
        CROWN)."""
        lower, upper = before.lower, before.upper
        unstable = self.open(before)
        gap = torch.where(unstable, upper - lower, 1.0)
        on = (lower >= 0).to(lower.dtype)
        chord = torch.where(unstable, upper / gap, on)
        below = torch.where(unstable, (upper > -lower).to(lower.dtype), on)
        return Lines(below, chord, torch.where(unstable, -lower * chord, 0.0))


@dataclass(frozen=True)
class Choice:
    """A maximum over windows: ``place`` (B, C, h, w) the entry it is at least as large as, ``exact`` where no other can
    exceed that, else ``top`` bounds it."""

    place: Tensor
    exact: Tensor
    top: Tensor
    shape: tuple[int, ...]

    def back(self, rows: Tensor, beside: Beside, slopes: Tensor | None = None) -> tuple[Tensor, Tensor]:
        through, added = self.split(rows, beside)
        flat = rows.new_zeros(len(rows), self.shape[0], self.shape[1] * self.shape[2])
        flat = flat.scatter_add(2, beside(self.place).flatten(2), through.flatten(2))
        return flat.reshape(len(rows), *self.shape), added

    def split(self, rows: Tensor, beside: Beside) -> tuple[Tensor, Tensor]:
        """The part of the rows (P, C, h, w) that is propagated to the entries in ``place``, and a constant (P,)."""
        up, down, exact = rows.clamp_min(0), rows.clamp_max(0), beside(self.exact)
        added = torch.where(exact, 0.0, down * beside(self.top)).flatten(1).sum(1)
        return up + torch.where(exact, down, 0.0), added


@dataclass(frozen=True)
class MaxPool:
    """The largest entry of each window of ``kernel``, at ``stride``, after ``padding`` with minus infinity,
    ``dilation`` apart."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    def value(self, before: Tensor) -> Tensor:
        return F.max_pool2d(before, self.kernel, self.stride, self.padding, self.dilation)

    def interval(self, before: Interval) -> Interval:
        return Interval(self.value(before.lower), self.value(before.upper))

    def _windows(self, x: Tensor) -> Tensor:
        """(B C, window, places): the entries of each window, minus infinity outside the image."""
        high, wide = self.padding
        padded = F.pad(x, (wide, wide, high, high), value=-torch.inf)
        return F.unfold(padded.flatten(0, 1)[:, None], self.kernel, self.dilation, 0, self.stride)

    def open(self, before: Interval) -> Tensor:
        return before.upper > before.lower

    def relax(self, before: Interval) -> Choice:
        largest, place = F.max_pool2d(
            before.lower, self.kernel, self.stride, self.padding, self.dilation, return_indices=True
        )
        shape = before.lower.shape[1:]
        positions = torch.arange(shape[1] * shape[2], dtype=before.lower.dtype, device=before.lower.device).reshape(
            1, 1, *shape[1:]
        )
        mine = self._windows(positions) == place.flatten(0, 1).flatten(1)[:, None]
        others = self._windows(before.upper).masked_fill(mine, -torch.inf).amax(1).reshape(largest.shape)
        return Choice(place, others <= largest, self.value(before.upper), tuple(shape))
