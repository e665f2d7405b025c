"""DAG: steps of one size along the summed gradients of all pixels that are not yet wrong."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import DistanceLike
from ..tensors import largest_entry
from .pixelwise import Pixels, PixelSteps


@dataclass(frozen=True)
class DAG(PixelSteps):
    """r_m = sum over the pixels n still classified as l_n of grad [f_l'_n(x_m) - f_l_n(x_m)]; x_m+1 = x_m + gamma r_m /
    |r_m|_inf, until the goal is reached.

    Xie et al., *Adversarial Examples for Semantic Segmentation and Object Detection*, ICCV 2017, Algorithm 1. ``rate``
    is gamma as a share of the box; the default is the paper's 0.5 grey levels. l'_n is the target if there is one, else
    the best other class of the pixel at each step (the paper draws a random one before the attack). x stays in the box.
    The attack returns the first success and does not minimise the distance.

    Args:
        rate: the largest change of a value in a step, in parts of the box.
    """

    title = "DAG"
    does = ("linf",)
    paper = "Xie et al., ICCV 2017"
    ranges = {"(0, inf)": "rate"}

    distance: DistanceLike = "linf"
    steps: int = 200
    rate: float = 0.5 / 255

    def value(self, pixels: Pixels) -> Tensor:
        return pixels.own - pixels.rival if pixels.targeted else pixels.rival - pixels.own

    def size(self, pixels: Pixels, slope: Tensor, width: float) -> Tensor:
        return self.rate * width / largest_entry(slope).clamp_min(torch.finfo(slope.dtype).tiny)
