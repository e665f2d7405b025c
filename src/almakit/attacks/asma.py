"""ASMA: an adaptive mask of pixels still to change, with steps that grow as fewer are left."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import DistanceLike
from .pixelwise import Pixels, PixelSteps


@dataclass(frozen=True)
class ASMA(PixelSteps):
    """x_n+1 = clip(x_n + (beta IoU(Y, f(x_n)) + tau) grad sum_c 1[Y = c] 1[f(x_n) != c] g(x_n)_c), Y the target map, g
    the logits, f the classes.

    Ozbulak, Van Messem and De Neve, *Impact of Adversarial Examples on Deep Learning Models for Biomedical Image
    Segmentation*, MICCAI 2019, eq. 1 to 4, which is targeted. Without targets the logits of the labels of pixels still
    right are lowered, and 1 - IoU with the labels takes the place of IoU. IoU is the mean over the classes of Y. The
    step is not scaled by the gradient's size, as in the paper; the first point that reaches the goal is taken.

    Args:
        tau: the smallest factor of a step.
        beta: how much that factor grows with the pixels won.
    """

    title = "ASMA"
    does = ("l2",)
    paper = "Ozbulak, Van Messem and De Neve, MICCAI 2019"
    ranges = {"(0, inf)": "tau", "[0, inf)": "beta"}

    distance: DistanceLike = "l2"
    steps: int = 1000
    tau: float = 1e-7
    beta: float = 1e-6

    def value(self, pixels: Pixels) -> Tensor:
        return pixels.own if pixels.targeted else -pixels.own

    def size(self, pixels: Pixels, slope: Tensor, width: float) -> Tensor:
        overlap = mean_iou(pixels)
        return (self.beta * (overlap if pixels.targeted else 1 - overlap) + self.tau) * width


def mean_iou(pixels: Pixels) -> Tensor:
    """(B,) the mean over the classes of the map of (of the class and predicted so) / (of the class or predicted so),
    counted pixels alone."""
    kinds = torch.arange(pixels.logits.shape[1], device=pixels.logits.device).reshape(1, -1, 1)
    counted = pixels.counted.unsqueeze(1)
    predicted, reference = (
        (pixels.logits.detach().argmax(1, keepdim=True) == kinds) & counted,
        (pixels.classes.unsqueeze(1) == kinds) & counted,
    )
    meet, join, there = (predicted & reference).sum(2), (predicted | reference).sum(2), reference.any(2)
    shares = torch.where(there, meet / join.clamp_min(1), 0.0).to(pixels.logits.dtype)
    return shares.sum(1) / there.sum(1).clamp_min(1)
