"""ASMA: an adaptive mask of pixels still to change, with steps that grow as fewer are left."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import Attack, Problem
from ..core.attack import DistanceLike
from ..core.pixelwise import Pixels
from ..core.steps import per_image
from ..errors import BadInput


@dataclass(frozen=True)
class ASMA(Attack):
    """x_n+1 = clip(x_n + (beta IoU(Y, f(x_n)) + tau) grad sum_c 1[Y = c] 1[f(x_n) != c] g(x_n)_c), Y the target map, g
    the logits, f the classes.

    Ozbulak, Van Messem and De Neve, *Impact of Adversarial Examples on Deep Learning Models for Biomedical Image
    Segmentation*, MICCAI 2019, eq. 1 to 4, which is targeted. Without targets the logits of the labels of pixels still
    right are lowered, and 1 - IoU with the labels takes the place of IoU. IoU is the mean over the classes of Y. The
    step is not scaled by the gradient's size, as in the paper; the first point that reaches the goal is taken.
    """

    title = "ASMA"
    does = ("l2",)
    cost = "1 forward, 1 backward per step"
    paper = "Ozbulak, Van Messem and De Neve, MICCAI 2019"

    distance: DistanceLike = "l2"
    steps: int = 1000
    tau: float = 1e-7
    beta: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.tau > 0 and self.beta >= 0):
            raise BadInput(f"tau={self.tau} must be positive and beta={self.beta} 0 or more.")

    def run(self, problem: Problem) -> None:
        x, point = problem.x, problem.x
        for step in range(self.steps):
            final = step == self.steps - 1
            query = problem.query(point, grad=not final) if step else problem.start()
            problem.record(step, distance=query.distance, success=query.success)
            problem.release(query.success)
            if final:
                break
            pixels = Pixels.of(problem.goal, query.logits)
            wanted = pixels.own if pixels.targeted else -pixels.own
            slope = problem.escape(
                query.gradient(torch.where(pixels.open(), wanted, torch.zeros_like(wanted)).sum(1)), ~query.success
            )
            overlap = mean_iou(pixels)
            size = self.beta * (overlap if pixels.targeted else 1 - overlap) + self.tau
            moved = problem.box.project_continuous(point + per_image(size * problem.box.width, x) * slope, x)
            point = problem.onward(query, moved, point)


def mean_iou(pixels: Pixels) -> Tensor:
    """(B,) the mean over the classes of the map of (of the class and predicted so) / (of the class or predicted so),
    counted pixels alone."""
    kinds = torch.arange(pixels.logits.shape[1], device=pixels.logits.device).reshape(1, -1, 1)
    counted = pixels.counted.unsqueeze(1)
    given, wanted = (
        (pixels.logits.detach().argmax(1, keepdim=True) == kinds) & counted,
        (pixels.classes.unsqueeze(1) == kinds) & counted,
    )
    meet, join, there = (given & wanted).sum(2), (given | wanted).sum(2), wanted.any(2)
    shares = torch.where(there, meet / join.clamp_min(1), torch.zeros_like(meet, dtype=pixels.logits.dtype))
    return shares.sum(1) / there.sum(1).clamp_min(1)
