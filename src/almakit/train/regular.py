"""Regular training: the cross-entropy of clean images."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data.dataset import IGNORED
from .loop import Objective, Recipe

RECIPES = {
    "mnist/smallcnn-tiny": Recipe("mnist/smallcnn-tiny"),
    "scenes/unet-small": Recipe(
        "scenes/unet-small",
        epochs=12,
        batch_size=32,
        learning_rate=4e-3,
        shift=0,
        options={"balance": 0.5},
        channels_last=True,
    ),
}
"""How the networks inside the package were made."""


def objective(balance: float = 0.0) -> Objective:
    """The mean over the batch of -log softmax(logits)_label; each label with the weight (its number in the
    batch)^-``balance``: 0 for what most pixels are, 1 for all classes alike."""

    def loss(model: nn.Module, x: Tensor, labels: Tensor, generator: torch.Generator, progress: float) -> Tensor:
        """Of images ``x`` (B, C, H, W) with ``labels`` (B,), or of all labelled pixels with label maps (B, H, W)."""
        logits, ignored = model(x), IGNORED if labels.ndim > 1 else -100
        if not balance:
            return F.cross_entropy(logits, labels, ignore_index=ignored)
        numbers = labels[labels != ignored].bincount(minlength=logits.shape[1])
        return F.cross_entropy(logits, labels, numbers.clamp_min(1).to(logits) ** -balance, ignore_index=ignored)

    return loss
