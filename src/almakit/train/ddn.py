"""l2-adversarial training with DDN: the cross-entropy of the images DDN finds within the largest norm."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models.classifier import Classifier
from . import inner
from .loop import Objective, Recipe
from .schedule import ramp

RECIPES = {
    "mnist/smallcnn-tiny-ddn": Recipe(
        "mnist/smallcnn-tiny-ddn",
        kind="ddn",
        epochs=2,
        batch_size=64,
        shift=1,
        channels_last=True,
        options={"radius": 2.0, "steps": 4},
    )
}
NORM = "l2"


def objective(radius: float = 2.0, steps: int = 5, gamma: float = 0.2, warm_up: float = 0.1) -> Objective:
    """The mean over the batch of -log softmax(f(x'))_label with x' from DDN, |x' - x|_2 <= radius, which grows from 0
    during ``warm_up``.

    Rony et al., *Decoupling Direction and Norm for Efficient Gradient-Based L2 Adversarial Attacks and Defenses*, CVPR
    2019, section 4 and Table 5. Deviations: few steps with a larger ``gamma`` instead of 100, and the radius grows.
    """

    def loss(model: nn.Module, x: Tensor, labels: Tensor, generator: torch.Generator, progress: float) -> Tensor:
        now = ramp(progress, 0, warm_up, 0.05 * radius, radius)
        return F.cross_entropy(model(inner.ddn(model, x, labels, now, int(steps), gamma)), labels)

    return loss


def measure(model: Classifier, x: Tensor, labels: Tensor, radius: float = 2.0, **_: Any) -> dict[str, float]:
    """PGD accuracy in percent within the training radius, on images ``x`` (N, C, H, W) with ``labels`` (N,)."""
    return {"epsilon": radius, "pgd_accuracy": 100 * inner.robust_accuracy(model, x, labels, NORM, radius)}
