"""VFGA: one value at a time, by the largest of several folded Gaussian steps upwards and downwards."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ..core import Attack, DistanceLike, Problem
from ..optim import bounds


@dataclass(frozen=True)
class VFGA(Attack):
    """Changes one value in each step, by the best of 2 N random steps, until the goal is reached.

    With g the gradient of the margin, the step considers the unchanged value i with the largest expected decrease
    upwards, -g_i (hi - x_i), and the one with the largest decrease downwards, g_i (x_i - lo). For each of the two it
    draws ``samples`` steps from the folded Gaussian |N(0, theta^2)|, theta the distance to the end of the box. It keeps
    the candidate with the smallest margin. Cesaire, Schott, Hajri, Lamprier and Gallinari, *Stochastic sparse
    adversarial attacks*, ICTAI 2021, Algorithm 2 (voting folded Gaussian attack).

    Differences from the original: the margin replaces the class probability, so that every goal is supported.

    Args:
        steps: largest number of changed values.
        samples: random steps drawn for each of the two values.
    """

    title = "VFGA"
    does = ("l0",)
    cost = "1 + 2 samples forwards, 1 backward per changed value"
    paper = "Cesaire et al., ICTAI 2021"
    ranges = {"[1, inf)": "samples"}

    distance: DistanceLike = "l0"
    steps: int = 100
    samples: int = 10

    def run(self, problem: Problem) -> None:
        x, samples = problem.x, self.samples
        low, high = (end.flatten(1) for end in bounds(problem.box, x))
        point = x
        for step in range(self.steps):
            query = problem.query(point) if step else problem.start()
            problem.record(step, margin=query.margin, distance=query.distance, success=query.success)
            g = problem.replace_zero_gradients(query.margin_gradient(), query.success).flatten(1)
            unchanged = (point == x).flatten(1)
            problem.release(~(unchanged & (high > low)).any(1))
            images = problem.active.nonzero().flatten()
            if not len(images):
                return
            # |N(0, 1)| by the inverse of its distribution, no farther than the end of the box.
            uniform = problem.random.numbers(2 * samples, images.tolist())[images].double()
            noise = (math.sqrt(2) * torch.erfinv(uniform)).to(x.dtype).clamp_max(1).reshape(-1, 2, samples)
            candidates = point[images].flatten(1).unsqueeze(1).repeat(1, 2 * samples, 1)
            for way, theta in enumerate((high, low)):
                i = torch.where(unchanged & (theta != 0), -g * theta, -torch.inf).argmax(1, keepdim=True)[images]
                change = (theta[images].gather(1, i) * noise[:, way]).unsqueeze(2)
                half = candidates[:, way * samples : (way + 1) * samples]
                half.scatter_add_(2, i.unsqueeze(1).expand_as(change), change)
            votes = problem.query(
                candidates.view(-1, *x.shape[1:]), images=images.repeat_interleave(2 * samples), grad=False
            )
            first = 2 * samples * torch.arange(len(images), device=x.device)
            best = first + votes.margin.view(len(images), -1).argmin(1)
            point = point.index_copy(0, images, votes.point[best])
            problem.release(problem.found)
