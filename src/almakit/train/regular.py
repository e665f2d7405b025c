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
        "scenes/unet-small", epochs=5, batch_size=32, learning_rate=4e-3, shift=0, channels_last=True
    ),
}
"""How the networks inside the package were made."""


def objective() -> Objective:
    """The mean over the batch of -log softmax(logits)_label."""
    return _cross_entropy


def _cross_entropy(model: nn.Module, x: Tensor, labels: Tensor, generator: torch.Generator, progress: float) -> Tensor:
    """The loss of images ``x`` (B, C, H, W) with ``labels`` (B,), or of all labelled pixels with label maps (B, H,
    W)."""
    return (
        F.cross_entropy(model(x), labels)
        if labels.ndim == 1
        else F.cross_entropy(model(x), labels, ignore_index=IGNORED)
    )
