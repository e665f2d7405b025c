"""The answer to a question asked of the model: logits, margins and distances of a set of candidates, and their gradients on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .steps import largest_entry, per_image

if TYPE_CHECKING:
    from .problem import Parts, Problem


class Query:
    """What the model said about a set of candidates: one row per candidate.

    ``values`` are the detached logits with zeros in rows that are not finite, ``all_valid`` is true where it is known that there are none;
    ``largest`` (R,) are the largest absolute logits.
    ``point`` (R, ...) is where it was asked (inside the domain), ``logits`` (R, K), or (R, K, H, W) with a goal on pixels, are attached to the
    graph when the query was made with ``grad=True``; ``margin``, ``tolerance``, ``distance`` (R,), ``success`` and ``valid`` (R,) are detached.
    Rows of finished images hold what was last seen of them and get zero gradients.
    """

    def __init__(self, problem: Problem, point: Tensor, logits: Tensor, leaf: Tensor | None, images: Tensor | None = None,
                 sent: Tensor | None = None, from_leaf: Tensor | None = None, parts: tuple[Tensor, Parts] | None = None):
        # ``images``: the image of each row (None: row i is image i). ``sent``: the rows the leaf holds (None: all of them, in order).
        # ``from_leaf``: where a leaf larger than this query holds its rows (the clean pass of a whole batch).
        # ``parts``: the logits of the leaf's rows and the groups they came in, where there was more than one.
        self._problem, self._leaf, self._images, self._sent, self._from_leaf, self._parts = problem, leaf, images, sent, from_leaf, parts
        self.point, self.logits = point, logits
        goal = problem.goal if images is None else problem.goal.take(images)
        values = logits.detach()
        self.largest = largest_entry(values)
        self.valid = self.largest < float("inf")
        self.all_valid = problem.looks and bool(self.valid.all())
        if not self.all_valid:
            values = torch.where(per_image(self.valid, values), values, torch.zeros_like(values))
        self.values = values
        self.tolerance = goal.tolerance(values, problem.oracle.precision)
        margin = goal.margin(values)
        self.margin = margin if self.all_valid else torch.where(self.valid, margin, torch.full_like(margin, float("inf")))
        self.success = self.margin < -self.tolerance
        self.distance = torch.zeros_like(self.margin)
        self.distance_gradient: Tensor | None = None

    @property
    def _owners(self) -> Tensor | None:
        """The images that were sent, one per row of the leaf; None: each image once."""
        if self._sent is None:
            return self._images
        return self._sent if self._images is None else self._images[self._sent]

    def gradient(self, value: Tensor, keep: bool = False) -> Tensor:
        """Gradient (R, ...) of ``value`` (R,), a function of ``logits``, at ``point``; non-finite entries become zero.

        One backward pass is counted for each image sent through. ``keep`` leaves the graph for another call.
        """
        return self._problem._gradient(self, value, None, keep)

    def pull_back(self, slope: Tensor, keep: bool = False) -> Tensor:
        """The same for a function of the logits whose gradient in them is known: ``slope`` (R, K)."""
        return self._problem._gradient(self, self.logits, slope, keep)
