"""TRADES: the cross-entropy of clean images plus how far the answer changes inside the ball."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.model import borrowed
from ..models.classifier import Classifier
from . import inner, pgd
from .loop import Objective, Recipe
from .schedule import ramp

RECIPES = {
    "mnist/smallcnn-tiny-trades": Recipe(
        "mnist/smallcnn-tiny-trades",
        kind="trades",
        epochs=4,
        batch_size=64,
        shift=0,
        channels_last=True,
        options={"radius": 0.3, "steps": 6, "beta": 1.0},
    )
}
NORM = "linf"


def objective(radius: float = 0.3, steps: int = 6, beta: float = 1.0, warm_up: float = 0.4) -> Objective:
    """CE(f(x), y) + beta max KL(softmax f(x) || softmax f(x')) over |x' - x|_inf <= radius, which grows from 0 during
    ``warm_up``.

    Zhang et al., *Theoretically Principled Trade-off between Robustness and Accuracy*, ICML 2019, eq. 5. Deviations:
    few inner steps from a uniform start, a radius that grows.
    """

    def loss(model: nn.Module, x: Tensor, labels: Tensor, generator: torch.Generator, progress: float) -> Tensor:
        with borrowed(model), torch.no_grad():
            answer = model(x).softmax(1)
        now = ramp(progress, 0, warm_up, 0.0, radius)
        hard = inner.climb_linf(
            model,
            x,
            lambda logits: F.kl_div(logits.log_softmax(1), answer, reduction="sum"),
            now,
            int(steps),
            generator,
        )
        both = model(torch.cat([x, hard]))
        clean, moved = both[: len(x)], both[len(x) :]
        return F.cross_entropy(clean, labels) + beta * F.kl_div(
            moved.log_softmax(1), clean.softmax(1), reduction="batchmean"
        )

    return loss


def measure(model: Classifier, x: Tensor, labels: Tensor, radius: float = 0.3, **_: Any) -> dict[str, float]:
    """PGD accuracy in percent within the training radius, on images ``x`` (N, C, H, W) with ``labels`` (N,)."""
    return pgd.measure(model, x, labels, radius)
