"""DeepFool: step by step to the nearest linearised boundary."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..core import Attack, DistanceLike, Problem
from ..optim import deepfool_step, pull_back


@dataclass(frozen=True)
class DeepFool(Attack):
    """Goes from x_i to x_i + (1 + overshoot) d_i, d_i the shortest step to a boundary of the linearised classifier,
    until the goal is reached.

    d_i = argmin |d| subject to z_k - z_y + (grad z_k - grad z_y).d >= 0 for one of the classes k that rank among the
    first ``candidates`` (the label counted). Moosavi-Dezfooli, Fawzi and Frossard, *DeepFool: a simple and accurate
    method to fool deep neural networks*, CVPR 2016, Algorithm 2 and equations 10 and 11.

    Differences from the original: d_i is the shortest step inside the box. During the first half of the steps, a step
    longer than a tenth of the perturbation is multiplied by ``damping``. The classes are ranked at each point. For a
    target, the margin is that of the target. A new point is first judged by a forward pass, so that a success costs no
    gradients.

    Args:
        boxed: whether the linearised step stays in the box; false is the original.
        damping: factor of a long linearised step; 1 as published.
        pull_back: number of the remaining forwards that bisect the segment to the clean image; 0 as published.
    """

    title = "DeepFool"
    does = ("l2", "linf")
    cost = "2 forwards, candidates - 1 backwards per step until across, usually 5 to 7 steps; then pull_back forwards"
    paper = "Moosavi-Dezfooli et al., CVPR 2016"
    presets = {"paper": {"steps": 50, "boxed": False, "damping": 1.0, "pull_back": 0}}
    ranges = {"[2, inf)": "candidates", "[0, inf)": "overshoot pull_back", "(0, 1]": "damping"}

    distance: DistanceLike = "l2"
    steps: int = 100
    candidates: int = 10
    overshoot: float = 0.02
    damping: float = 0.5
    boxed: bool = True
    pull_back: int = 10

    def run(self, problem: Problem) -> None:
        x = problem.x
        point, taken = x, torch.zeros_like(problem.forwards)
        with problem.round():
            for step in range(self.steps):
                images = problem.active.nonzero().flatten() if step else torch.arange(len(x), device=x.device)
                query = (
                    problem.query(point[images], images=images, gradients=self.candidates)
                    if step
                    else problem.start(gradients=self.candidates)
                )
                damping = self.damping if 2 * step < self.steps - 1 else 1.0
                moved = deepfool_step(problem, query, point, self.candidates, damping, self.overshoot, boxed=self.boxed)
                point = problem.box.project_continuous(point.index_copy(0, images, moved), x)
                taken = taken + problem.active
                check = problem.query(point, grad=False)
                problem.record(step, margin=check.margin, distance=check.distance, success=check.success)
                problem.release(problem.found)
        pull_back(problem, self.pull_back, self.steps - taken)
