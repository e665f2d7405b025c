"""Penalty-Lagrangian functions P(y, rho, mu) of Birgin et al. (2005), as in the paper's appendix, with their
derivatives in y.

Each satisfies the four axioms of section 3.1: P' >= 0, P'(0) = mu, and as rho grows P' tends to infinity where y > 0
and to zero where y < 0. All arguments have shape (B,), rho > 0 and mu > 0. The derivative is in closed form, so a step
of an attack needs one backward pass.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


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
        above, below = y.clamp_min(0), y.clamp_max(0)
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
        above, below = y.clamp_min(0), y.clamp_max(0)
        return torch.where(y >= 0, mu * above + mu * rho * above.square(), mu * below / (1 - rho * below))

    def derivative(self, y: Tensor, rho: Tensor, mu: Tensor) -> Tensor:
        above, below = y.clamp_min(0), y.clamp_max(0)
        return torch.where(y >= 0, mu + 2 * mu * rho * above, mu / (1 - rho * below).square())
