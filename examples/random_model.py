"""A model with random layers: attack the mean of a few passes whose noise is fixed, then judge what is found by many
fresh passes."""

from __future__ import annotations

import torch
from torch import Tensor

import almakit

NOISE, PASSES, FRESH = 0.15, 8, 100
plain = almakit.models.load("mnist/smallcnn-tiny")
x, labels = almakit.data.load("mnist-demo", limit=16).tensors()


def noisy(images: Tensor) -> Tensor:
    """The model as it is used: another answer every time."""
    return plain((images + NOISE * torch.randn_like(images)).clamp(0, 1))


fixed = NOISE * torch.randn(PASSES, 1, *x.shape[1:], generator=torch.Generator().manual_seed(0))


def averaged(images: Tensor) -> Tensor:
    """(B, K) the mean logits over the same few draws of noise: what can be attacked, at PASSES passes each."""
    everything = (images + fixed.to(images)).clamp(0, 1).flatten(0, 1)
    return plain(everything).unflatten(0, (PASSES, len(images))).mean(0)


result = almakit.attack(averaged, x, labels, distance="l2", steps=40, confidence=5.0)
torch.manual_seed(1)
with torch.no_grad():
    wrong = torch.stack([noisy(result.adversarials).argmax(1) != labels for _ in range(FRESH)]).double().mean(0)
spread = 1.96 * (wrong * (1 - wrong) / FRESH).sqrt()
held = (wrong - spread > 0.5) & result.success
print(
    f"{result.success_rate:.0%} found; wrong in more than half of {FRESH} fresh passes, with its interval: "
    f"{float(held.double().mean()):.0%}"
)
print(
    f"median l2 of those {float(result.distances[held].median()):.3f}; wrong in {float(wrong[held].mean()):.0%} of "
    "the passes in the mean"
)
