"""Certified training with CROWN-IBP: interval bounds mixed with one backward pass of linear bounds."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..certify.backward import margins
from ..models.classifier import Classifier
from . import ibp
from .loop import Objective, Recipe
from .schedule import ramp

RECIPES: dict[str, Recipe] = {}
NORM = "linf"


def objective(
    radius: float = 0.2,
    train_radius: float | None = None,
    kappa_last: float = 0.0,
    beta_last: float = 0.0,
    begin: float = 0.05,
    end: float = 0.6,
) -> Objective:
    """kappa CE(f(x), y) + (1 - kappa) CE(-m, y), m = (1 - beta) m_IBP + beta m_CROWN-IBP, both lower bounds of z_y -
    z_j over the ball.

    From ``begin`` to ``end`` of the training epsilon grows from 0 to ``train_radius``, kappa falls from 1 to
    ``kappa_last``, beta from 1 to ``beta_last``. Zhang et al., *Towards Stable and Efficient Training of Verifiably
    Robust Neural Networks*, ICLR 2020, eq. 8 and section 3.
    """
    most = radius if train_radius is None else train_radius
    followed = ibp.Followed()

    def loss(model: nn.Module, x: Tensor, labels: Tensor, generator: torch.Generator, progress: float) -> Tensor:
        kappa, now = ramp(progress, begin, end, 1.0, kappa_last), ramp(progress, begin, end, 0.0, most)
        beta = ramp(progress, begin, end, 1.0, beta_last)
        clean: Tensor | float = F.cross_entropy(model(x), labels) if kappa > 0 else 0.0
        if now == 0:
            return clean if isinstance(clean, Tensor) else F.cross_entropy(model(x), labels)
        graph, known = followed.over(model, x, now)
        worst = margins(graph, known, labels, "ibp")
        if beta > 0:
            worst = (1 - beta) * worst + beta * margins(graph, known, labels, "crown-alone")
        return kappa * clean + (1 - kappa) * F.cross_entropy(-worst, labels)

    return loss


def measure(model: Classifier, x: Tensor, labels: Tensor, radius: float = 0.2, **_: Any) -> dict[str, float]:
    """Verified accuracy (by interval bounds) and PGD accuracy in percent at ``radius``, on images ``x`` (N, C, H, W)
    with ``labels`` (N,)."""
    return ibp.measure(model, x, labels, radius)
