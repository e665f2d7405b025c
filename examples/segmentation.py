"""Segmentation: the smallest change that makes a share of an image's pixels wrong."""

from __future__ import annotations

import torch

import almakit
from almakit.data.dataset import IGNORED

model = almakit.models.load("scenes/unet-small")
x, maps = almakit.data.load("scenes", limit=4).tensors()
counted = maps != IGNORED


def wrong(images: torch.Tensor) -> torch.Tensor:
    """The share of the labelled pixels that are misclassified, shape (B,)."""
    with torch.no_grad():
        return ((model(images).argmax(1) != maps) & counted).flatten(1).sum(1) / counted.flatten(1).sum(1)


print(f"clean images: {float(wrong(x).mean()):.1%} of the pixels wrong")
result = almakit.attack(model, x, maps, goal=almakit.goals.pixels(share=0.5), distance="linf", steps=60)
print(f"half of the pixels wrong: {result.success_rate:.0%} of the images, median linf {result.median:.4f}")
print("share of wrong pixels, image by image:", [f"{share:.0%}" for share in wrong(result.adversarials).tolist()])
