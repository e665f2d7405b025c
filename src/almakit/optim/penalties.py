"""Penalties: the functions of the augmented Lagrangian, the search for a penalty's weight, and a stop without progress.

Penalty-Lagrangian functions P(y, rho, mu) of Birgin et al. (2005), as in the paper's appendix, with their
derivatives in y.

Each satisfies the four axioms of section 3.1: P' >= 0, P'(0) = mu, and as rho grows P' tends to infinity where y > 0
and to zero where y < 0. All arguments have shape (B,), rho > 0 and mu > 0. The derivative is in closed form, so a step
of an attack needs one backward pass.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from ..core.problem import Query


class Penalty(Protocol):
    name: str

    def value(self, y: Tensor, rho: Tensor, mu: Tensor) -> Tensor:
        """P(y, rho, mu), shape (B,)."""

    def derivative(self, y: Tensor, rho: Tensor, mu: Tensor) -> Tensor:
        """dP/dy, shape (B,)."""


class PHR:
    """Powell-Hestenes-Rockafellar: (max(0, mu + rho y)^2 - mu^2) / (2 rho)."""

    name = "phr"

    def value(self, y: Tensor, rho: Tensor, mu: Tensor) -> Tensor:
        # The same as the formula, without the difference of two large squares; flat below -mu/rho.
        inside = y.clamp_min(-mu / rho)
        return mu * inside + rho * inside.square() / 2

    def derivative(self, y: Tensor, rho: Tensor, mu: Tensor) -> Tensor:
        return (mu + rho * y).clamp_min(0)


class P1:
    """Quadratic below zero (flat under -mu/rho), plus a cubic above: mu y + rho y^2/2 + rho^2 y^3."""

    name = "p1"

    def value(self, y: Tensor, rho: Tensor, mu: Tensor) -> Tensor:
        inside = y.clamp_min(-mu / rho)
        return mu * inside + rho * inside.square() / 2 + rho.square() * y.clamp_min(0) ** 3

    def derivative(self, y: Tensor, rho: Tensor, mu: Tensor) -> Tensor:
        return (mu + rho * y).clamp_min(0) + 3 * rho.square() * y.clamp_min(0).square()


class P2:
    """The paper's choice: mu y + mu rho y^2 + rho^2 y^3/6 above zero, mu y/(1 - rho y) below."""

    name = "p2"

    def value(self, y: Tensor, rho: Tensor, mu: Tensor) -> Tensor:
        above, below = _parts(y)
        return torch.where(
            y >= 0, mu * above + mu * rho * above.square() + rho.square() * above**3 / 6, mu * below / (1 - rho * below)
        )

    def derivative(self, y: Tensor, rho: Tensor, mu: Tensor) -> Tensor:
        # (mu + 2 mu rho y)/1 + (rho y)^2/2 above zero, mu/(1 - rho y)^2 + 0 below: one expression, because each step of
        # an attack computes it twice.
        above, below = (scaled := rho * y).clamp_min(0), 1 - scaled.clamp_max(0)
        return torch.addcmul(torch.addcmul(mu, mu, above, value=2) / (below * below), above, above, value=0.5)


class P3:
    """P2 without the cubic term: mu y + mu rho y^2 above zero, mu y/(1 - rho y) below."""

    name = "p3"

    def value(self, y: Tensor, rho: Tensor, mu: Tensor) -> Tensor:
        above, below = _parts(y)
        return torch.where(y >= 0, mu * above + mu * rho * above.square(), mu * below / (1 - rho * below))

    def derivative(self, y: Tensor, rho: Tensor, mu: Tensor) -> Tensor:
        above, below = y.clamp_min(0), y.clamp_max(0)
        return torch.where(y >= 0, mu + 2 * mu * rho * above, mu / (1 - rho * below).square())


def _parts(y: Tensor) -> tuple[Tensor, Tensor]:
    """max(0, y) and min(0, y) with the slope 1 at zero that ``clamp`` has until torch 2.13 and no longer in 2.15."""
    none = torch.zeros_like(y)
    return torch.where(y >= 0, y, none), torch.where(y <= 0, y, none)


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
