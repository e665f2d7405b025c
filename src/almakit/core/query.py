"""The answers of the model to a set of candidates, and gradients of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import BadInput, BadModel
from ..tensors import cheap_sync, largest_entry, per_image
from .oracle import NO_GRADIENT

if TYPE_CHECKING:
    from .problem import Problem

Rows = tuple[Tensor, Tensor]
"""Some rows of a batch: their indices (S,), and the mask (R,) that is true for them."""


class Query:
    """What the model returned for a set of candidates: one row per candidate.

    ``point`` (R, ...) are the candidates inside the box; ``logits`` (R, K), or whatever outputs (R, ...) the goal
    reads, are attached to the graph when the query was made with ``grad=True``. ``values`` are the detached logits with
    zeros in rows that are not finite, ``largest`` (R,) their largest absolute entries. ``margin``, ``tolerance``,
    ``distance`` (R,), ``success`` and ``valid`` (R,) are detached; ``all_valid`` is true where all rows are known to be
    finite. ``goal`` is that of the rows' images. Rows that were not ``sent`` (indices; None: all were; ``mask`` (R,)
    marks them) have the last values of their finished images and zero gradients.
    """

    distance: Tensor
    distance_gradient: Tensor = None  # type: ignore[assignment]  # set with distance_grad=True

    def __init__(self, problem: Problem, point: Tensor, logits: Tensor, images: Tensor | None, sent: Rows | None):
        """``images`` (R,) are the images of the rows; None: row i is image i."""
        self._problem, self.point, self.logits, self.images = problem, point, logits, images
        self.sent = None if sent is None else sent[0]
        self.mask = None if sent is None else sent[1]
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
        if self.mask is not None:
            self.success = self.success & self.mask

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
