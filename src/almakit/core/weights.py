"""The outer loop of penalty attacks: a search on the weight c of the penalty, and a stop for images that no longer
progress, each per image."""

from __future__ import annotations

import torch
from torch import Tensor

from .query import Query


def hinge_of(query: Query) -> Tensor:
    """(B,) max(0, margin), from twice the tolerance below zero on, so that it vanishes only where the problem counts a
    success."""
    margin = torch.where(query.valid, query.margin, torch.ones_like(query.margin))
    return (margin + 2 * query.tolerance).clamp_min(0)


class WeightSearch:
    """The weight c of each image: times ``factor`` while nothing is found, then the middle of the bracket (Carlini and
    Wagner 2017, section V).

    With ``repeat_best`` the next round tries the smallest successful weight once more, as the original does in the last
    of ten or more.
    """

    def __init__(self, x: Tensor, first: float, factor: float = 10.0):
        """``x`` (B, ...) are the images."""
        self.weight = x.new_full((len(x),), first)
        self.lower, self.upper = torch.zeros_like(self.weight), torch.full_like(self.weight, float("inf"))
        self.factor = factor

    def update(self, found: Tensor, repeat_best: bool = False) -> None:
        """Takes in whether the last round found something, ``found`` (B,), and sets the weights of the next."""
        self.upper = torch.where(found, torch.minimum(self.upper, self.weight), self.upper)
        self.lower = torch.where(found, self.lower, torch.maximum(self.lower, self.weight))
        bracketed = torch.isfinite(self.upper)
        # Far above any useful weight the products would overflow float32.
        grown = (self.weight * self.factor).clamp_max(1e10)
        top = torch.where(bracketed, self.upper, self.lower)
        self.weight = torch.where(bracketed, self.upper if repeat_best else (self.lower + top) / 2, grown)


class Progress:
    """Says which images have stopped improving: compares the best loss of each since the last check with the best one
    before it."""

    def __init__(self, x: Tensor, every: int, improvement: float = 0.9999):
        """``x`` (B, ...) are the images; a check is due every ``every`` steps."""
        self.every, self.improvement = max(every, 1), improvement
        self.best = x.new_full((len(x),), float("inf"))
        self.at_check = self.best.clone()

    def stalled(self, step: int, loss: Tensor) -> Tensor | None:
        """Takes in the losses ``loss`` (B,) of a step; at a check (B,) which images have not improved since the last,
        else None."""
        self.best = torch.minimum(self.best, loss)
        if step % self.every:
            return None
        stuck = ~(self.best <= self.improvement * self.at_check)
        self.at_check = self.best
        return stuck
