"""The answer to a question asked of the model: logits, margins and distances of a set of candidates, and their
gradients on demand."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from ...goals.base import Goal
from ...tensors import largest_entry, per_image


class Pull(Protocol):
    """What goes back through the model for a query: the gradient (R, ...) of ``value`` (R,), or of ``value`` (R, ...)
    weighted with ``slope``."""

    def __call__(self, value: Tensor, slope: Tensor | None, keep: bool) -> Tensor: ...


class Query:
    """What the model said about a set of candidates: one row per candidate.

    ``values`` are the detached logits with zeros in rows that are not finite, ``all_valid`` is true where it is known
    that there are none; ``largest`` (R,) are the largest absolute logits.
    ``point`` (R, ...) is where it was asked (inside the domain), ``logits`` (R, K), or whatever outputs (R, ...) the
    goal reads, are attached to the graph when the query was made with ``grad=True``; ``margin``, ``tolerance``,
    ``distance`` (R,), ``success`` and ``valid`` (R,) are detached. Rows that were not ``sent`` (indices; None: all
    were) hold what was last seen of their finished images and get zero gradients.
    """

    def __init__(
        self,
        point: Tensor,
        logits: Tensor,
        goal: Goal,
        precision: torch.dtype,
        look: bool,
        pull: Pull,
        sent: Tensor | None = None,
    ):
        """``goal`` is that of the rows, ``precision`` the model's; ``look`` allows reading values back from the
        device."""
        self._pull = pull
        self.point, self.logits, self.sent = point, logits, sent
        values = logits.detach()
        self.largest = largest_entry(values)
        self.valid = self.largest < float("inf")
        self.all_valid = look and bool(self.valid.all())
        if not self.all_valid:
            values = torch.where(per_image(self.valid, values), values, torch.zeros_like(values))
        self.values = values
        self.tolerance = goal.tolerance(values, precision)
        margin = goal.margin(values)
        if not goal.finite:
            self.valid = self.valid & torch.isfinite(margin)
            self.all_valid = look and bool(self.valid.all())
        self.margin = (
            margin if self.all_valid else torch.where(self.valid, margin, torch.full_like(margin, float("inf")))
        )
        self.success = self.margin < -self.tolerance
        if sent is not None:
            self.success = self.success & torch.zeros_like(self.success).index_fill(0, sent, True)
        self.distance = torch.zeros_like(self.margin)
        self.distance_gradient: Tensor | None = None

    def gradient(self, value: Tensor, keep: bool = False) -> Tensor:
        """Gradient (R, ...) of ``value`` (R,), a function of ``logits``, at ``point``; non-finite entries become zero.

        One backward pass is counted for each image sent through. ``keep`` leaves the graph for another call.
        """
        return self._pull(value, None, keep)

    def pull_back(self, slope: Tensor, keep: bool = False) -> Tensor:
        """The same for a function of the logits whose gradient in them is known: ``slope`` (R, K)."""
        return self._pull(self.logits, slope, keep)
