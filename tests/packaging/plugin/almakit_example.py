"""A package of its own that adds the distance ``l4`` and the attack ``straight`` to almakit through entry points."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from almakit.core import Attack, Problem
from almakit.distances.base import Bound, Distance
from almakit.tensors import unit


class L4(Distance):
    """(sum |y - x|^4)^(1/4)"""

    name = "l4"
    degree = 1
    about = "l4 norm"

    def bind(self, x: Tensor) -> Bound:
        return BoundL4(self, x)


class BoundL4(Bound):
    """To the references ``x`` (B, ...)."""

    def __call__(self, y: Tensor) -> Tensor:
        total = (y - self.x).pow(4).flatten(1).sum(1)
        return torch.where(total > 0, total, torch.ones_like(total)) ** 0.25 * (total > 0)


@dataclass(frozen=True)
class Straight(Attack):
    """Walks along the gradient of the margin at the clean image until the model changes its mind."""

    title = "straight"
    cost = "steps forwards, one backward"

    distance: str = "l2"
    steps: int = 20
    rate: float = 0.2

    def run(self, problem: Problem) -> None:
        query = problem.start()
        direction = unit(query.gradient(problem.goal.margin(query.logits)))
        for step in range(1, self.steps):
            query = problem.query(problem.x - self.rate * step * direction, grad=False)
            problem.release(problem.found)
