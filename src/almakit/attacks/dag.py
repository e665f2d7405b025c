"""DAG: steps of one size along the summed gradients of all pixels that are not yet wrong."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import Attack, Problem
from ..core.attack import DistanceLike
from ..core.pixelwise import Pixels
from ..core.steps import largest_entry, per_image
from ..errors import BadInput


@dataclass(frozen=True)
class DAG(Attack):
    """r_m = sum over the pixels n still classified as l_n of grad [f_l'_n(x_m) - f_l_n(x_m)]; x_m+1 = x_m + gamma r_m /
    |r_m|_inf, until the goal is reached.

    Xie et al., *Adversarial Examples for Semantic Segmentation and Object Detection*, ICCV 2017, Algorithm 1. ``rate``
    is gamma in parts of the box: the paper's 0.5 grey levels. l'_n is the target, where there is one, else the best
    other class of the pixel at each step (the paper draws one at random beforehand); x stays in the box. Not a search
    for the smallest change: it takes the first point it finds.
    """

    title = "DAG"
    does = ("linf",)
    cost = "1 forward, 1 backward per step"
    paper = "Xie et al., ICCV 2017"

    distance: DistanceLike = "linf"
    steps: int = 200
    rate: float = 0.5 / 255

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rate > 0:
            raise BadInput(f"rate={self.rate}: the size of a step must be positive.")

    def run(self, problem: Problem) -> None:
        x, point = problem.x, problem.x
        for step in range(self.steps):
            final = step == self.steps - 1
            query = problem.query(point, grad=not final) if step else problem.start()
            problem.record(step, distance=query.distance, success=query.success)
            problem.release(query.success)
            if final:
                break
            slope = problem.escape(query.gradient(self._pull(problem, query.logits)), ~query.success)
            steepest = largest_entry(slope).clamp_min(torch.finfo(x.dtype).tiny)
            moved = problem.box.project_continuous(
                point + per_image(self.rate * problem.box.width / steepest, x) * slope, x
            )
            point = problem.onward(query, moved, point)

    def _pull(self, problem: Problem, logits: Tensor) -> Tensor:
        """(B,) the sum over open pixels of the lead of the class that is wanted over the one that is not."""
        pixels = Pixels.of(problem.goal, logits)
        lead = pixels.own - pixels.rival if pixels.targeted else pixels.rival - pixels.own
        return torch.where(pixels.open(), lead, torch.zeros_like(lead)).sum(1)
