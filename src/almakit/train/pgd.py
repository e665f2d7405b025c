"""linf-adversarial training with PGD: the cross-entropy of images climbed to inside the ball."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models.classifier import Classifier
from . import inner
from .loop import Objective, Recipe
from .schedule import ramp

RECIPES: dict[str, Recipe] = {}
NORM = "linf"


def objective(radius: float = 0.2, steps: int = 7, warm_up: float = 0.3) -> Objective:
    """The mean over the batch of max -log softmax(f(x'))_label over |x' - x|_inf <= radius, which grows from 0 during
    ``warm_up``.

    Madry et al., *Towards Deep Learning Models Resistant to Adversarial Attacks*, ICLR 2018, eq. 2.1. Deviation: the
    radius grows.
    """

    def loss(model: nn.Module, x: Tensor, labels: Tensor, generator: torch.Generator, progress: float) -> Tensor:
        now = ramp(progress, 0, warm_up, 0.0, radius)
        hard = inner.climb_linf(
            model, x, lambda logits: F.cross_entropy(logits, labels, reduction="sum"), now, int(steps), generator
        )
        return F.cross_entropy(model(hard), labels)

    return loss


def measure(model: Classifier, x: Tensor, labels: Tensor, radius: float = 0.2, **_: Any) -> dict[str, float]:
    """PGD accuracy in percent within the training radius, on images ``x`` (N, C, H, W) with ``labels`` (N,)."""
    return {"epsilon": radius, "pgd_accuracy": 100 * inner.robust_accuracy(model, x, labels, NORM, radius)}
