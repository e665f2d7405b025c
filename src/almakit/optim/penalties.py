"""Penalty-Lagrangian functions P(y, rho, mu) with their derivatives, and the search for the weight of a penalty.

The functions are those of Birgin, Castillo and Martinez, *Numerical comparison of augmented Lagrangian algorithms for
nonconvex problems*, 2005, in the selection of the ALMA paper's appendix. Each satisfies the axioms of its section 3.1:
P' >= 0, P'(0) = mu, and as rho grows P' tends to infinity where y > 0 and to zero where y < 0. The derivative is in
closed form, so that a step of an attack needs one backward pass.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from ..core.query import Query

MU_MIN, MU_MAX = 1e-6, 1e12
"""Bounds of the multiplier in Algorithms 1 and 2 of the ALMA paper."""


class Penalty(Protocol):
    """A penalty-Lagrangian function.

    Args of both methods, all of shape (B,):
        y: the constraint, violated where positive.
        rho: the penalty parameter, positive.
        mu: the multiplier, positive.
    """

    name: str

    def value(self, y: Tensor, rho: Tensor, mu: Tensor) -> Tensor:
        """P(y, rho, mu), shape (B,)."""

    def derivative(self, y: Tensor, rho: Tensor, mu: Tensor) -> Tensor:
        """dP/dy, shape (B,)."""


class PHR:
    """Powell-Hestenes-Rockafellar: (max(0, mu + rho y)^2 - mu^2) / (2 rho)."""

    name = "phr"

    def value(self, y: Tensor, rho: Tensor, mu: Tensor) -> Tensor:
        # Equal to the formula, without the difference of two large squares; constant below -mu/rho.
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
        # (mu + 2 mu rho y)/1 + (rho y)^2/2 above zero, mu/(1 - rho y)^2 + 0 below, as one expression, because each step
        # of an attack computes it twice.
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
    """(B,) max(0, margin + 2 tolerance) of a query: zero only for a success, infinite if the logits were not finite."""
    return (query.margin + 2 * query.tolerance).clamp_min(0)


class WeightSearch:
    """Search for the smallest weight c of each image's penalty that succeeds: growth, then bisection.

    Carlini and Wagner, *Towards evaluating the robustness of neural networks*, 2017, section V.

    Args:
        x: images, shape (B, ...).
        first: the first weight.
        factor: growth of the weight while the attack fails.
    """

    def __init__(self, x: Tensor, first: float, factor: float = 10.0):
        self.weight = x.new_full((len(x),), first)
        self.lower, self.upper = torch.zeros_like(self.weight), torch.full_like(self.weight, float("inf"))
        self.factor = factor

    def update(self, found: Tensor, repeat_best: bool = False) -> None:
        """Set the weights of the next round.

        Args:
            found: whether the last round succeeded, shape (B,).
            repeat_best: try the smallest successful weight once more, as the original does in the last of ten rounds.
        """
        self.upper = torch.where(found, torch.minimum(self.upper, self.weight), self.upper)
        self.lower = torch.where(found, self.lower, torch.maximum(self.lower, self.weight))
        bracketed = torch.isfinite(self.upper)
        # Far above any useful weight the products would overflow float32.
        grown = (self.weight * self.factor).clamp_max(1e10)
        top = torch.where(bracketed, self.upper, self.lower)
        self.weight = torch.where(bracketed, self.upper if repeat_best else (self.lower + top) / 2, grown)
