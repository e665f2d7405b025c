"""VFGA: one value at a time, by the largest of several folded Gaussian steps upwards and downwards."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

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

    Differences from the original: the margin takes the place of the class probability, so that every goal is served.

    Args:
        steps: values that are changed at most.
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
        x = problem.x
        low, high = bounds(problem.box, x)
        low, high = low.flatten(1), high.flatten(1)
        point = x
        for step in range(self.steps):
            query = problem.query(point) if step else problem.start()
            problem.record(step, margin=query.margin, distance=query.distance, success=query.success)
            gradient = problem.replace_zero_gradients(query.margin_gradient(), ~query.success)
            unchanged = (point == x).flatten(1)
            chosen = [
                torch.where(unchanged & (end != 0), -gradient.flatten(1) * end, -torch.inf).argmax(1, keepdim=True)
                for end in (high, low)
            ]
            problem.release(~(unchanged & (high > low)).any(1))
            images = problem.active.nonzero().flatten()
            if not len(images):
                return
            noise = self._folded_normal(problem, images)
            candidates = self._candidates(point, chosen, (high, low), noise, images)
            point = point.index_copy(0, images, self._best(problem, candidates, images))
            problem.release(problem.found)

    def _folded_normal(self, problem: Problem, images: Tensor) -> Tensor:
        """(R, 2, samples) absolute values of normal numbers: the inverse of their distribution at uniform numbers."""
        uniform = problem.random.numbers(2 * self.samples, images.tolist())[images].double()
        return (math.sqrt(2) * torch.erfinv(uniform)).to(problem.x.dtype).reshape(-1, 2, self.samples)

    def _candidates(
        self, point: Tensor, chosen: list[Tensor], ends: tuple[Tensor, Tensor], noise: Tensor, images: Tensor
    ) -> Tensor:
        """(R, 2 samples, ...) the images' points with one value changed."""
        many = point[images].flatten(1).unsqueeze(1).repeat(1, 2 * self.samples, 1)
        for way, (index, end) in enumerate(zip(chosen, ends, strict=True)):
            theta = end.gather(1, index)[images]
            rows = slice(way * self.samples, (way + 1) * self.samples)
            place = index[images].unsqueeze(1).expand(-1, self.samples, 1)
            change = (theta * noise[:, way].clamp_max(1)).unsqueeze(2)
            many[:, rows] = many[:, rows].scatter_add(2, place, change)
        return many.reshape(len(images), -1, *point.shape[1:])

    def _best(self, problem: Problem, candidates: Tensor, images: Tensor) -> Tensor:
        """(R, ...) the candidate of each image with the smallest margin."""
        owners = images.repeat_interleave(candidates.shape[1])
        query = problem.query(candidates.flatten(0, 1), images=owners, grad=False)
        margin = torch.where(query.valid, query.margin, torch.full_like(query.margin, torch.inf))
        best = margin.view(len(images), -1).argmin(1)
        return query.point.view_as(candidates)[torch.arange(len(images), device=best.device), best]
