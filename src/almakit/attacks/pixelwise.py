"""Pixels of a segmentation model as separate classifications, for attacks that need them; a classifier has one
pixel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.attack import Attack, DistanceLike
from ..core.problem import Problem
from ..errors import BadInput
from ..goals.base import Goal
from ..goals.classes import ClassGoal
from ..tensors import per_image


@dataclass(frozen=True, eq=False)
class Pixels:
    """``logits`` (B, K, P), the ``classes`` (B, P) to leave, or with ``targeted`` to reach, and which pixels are
    ``counted`` (B, P)."""

    logits: Tensor
    classes: Tensor
    counted: Tensor
    targeted: bool

    @staticmethod
    def of(goal: Goal, logits: Tensor) -> Pixels:
        """The pixels of ``logits`` (B, K, H, W), or (B, K)."""
        classes = goal.classes
        if classes is None or not isinstance(goal, ClassGoal):
            raise BadInput(
                "DAG, ASMA and SEA serve untargeted and targeted goals, of images or pixels; soft-walk, alma and ddn "
                "serve any goal."
            )
        flat = classes.reshape(len(logits), -1)
        mask: Tensor | None = getattr(goal, "mask", None)
        counted = torch.ones_like(flat, dtype=torch.bool) if mask is None else mask.reshape(flat.shape)
        return Pixels(logits.reshape(*logits.shape[:2], -1), flat, counted, goal.targeted)

    @property
    def own(self) -> Tensor:
        """(B, P) the logit of each pixel's class."""
        return self.logits.gather(1, self.classes.unsqueeze(1)).squeeze(1)

    @property
    def rival(self) -> Tensor:
        """(B, P) the largest other logit."""
        return self.logits.scatter(1, self.classes.unsqueeze(1), float("-inf")).amax(1)

    def open(self) -> Tensor:
        """(B, P) the counted pixels that do not reach the goal: those that have their label's class, or not their
        target's."""
        lead = (self.own - self.rival).detach()
        return self.counted & ((lead <= 0) if self.targeted else (lead >= 0))


@dataclass(frozen=True)
class PixelSteps(Attack):
    """Steps along the gradient of a sum over the pixels that do not reach the goal yet, until the first success. A
    subclass defines the summands and the step size."""

    cost = "1 forward, 1 backward per step"

    distance: DistanceLike = "linf"
    steps: int = 100

    def value(self, pixels: Pixels) -> Tensor:
        """(B, P) the value to maximise at each open pixel."""
        raise NotImplementedError

    def size(self, pixels: Pixels, slope: Tensor, width: float) -> Tensor:
        """(B,) how much of ``slope`` (B, ...) a step adds, in a box of that ``width``."""
        raise NotImplementedError

    def run(self, problem: Problem) -> None:
        x, point = problem.x, problem.x
        query = problem.start()
        for step in range(self.steps - 1):
            problem.record(step, distance=query.distance, success=query.success)
            problem.release(query.success)
            pixels = Pixels.of(problem.goal, query.logits)
            value = self.value(pixels)
            slope = problem.replace_zero_gradients(
                query.gradient(torch.where(pixels.open(), value, 0.0).sum(1)), query.success
            )
            size = self.size(pixels, slope, problem.box.width)
            point = problem.step_or_backtrack(
                query, problem.box.project_continuous(point + per_image(size, x) * slope, x), point
            )
            query = problem.query(point, grad=step < self.steps - 2)
