"""The scan: which rival class is nearest? One backward pass per likely rival at the clean image, and the exact linearised distance to each."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...core import Problem
from ...core.steps import per_image
from .geometry import TINY, to_boundary


@dataclass(frozen=True, eq=False)
class Scan:
    """Rivals of each image, nearest first: ``classes`` (B, R), ``distances`` (B, R) linearised in the given norm.

    ``nearest`` (B, ...) is the point of the nearest linearised boundary: on a linear model the answer. ``height`` (B,) and
    ``margin`` (B,) are the constraint's and the margin's value on the clean image, ``slope`` (B, ...) the margin's gradient there.
    """

    classes: Tensor
    distances: Tensor
    nearest: Tensor
    height: Tensor
    margin: Tensor
    slope: Tensor

    @property
    def unit(self) -> Tensor:
        """(B,) the linearised distance to the nearest boundary."""
        return self.distances[:, 0]


def scan(problem: Problem, rivals: int, norm: float) -> Scan:
    """Uses the clean query and up to ``rivals`` backward passes; a targeted goal has one boundary, its own."""
    query = problem.start()
    x, box, goal = problem.x, problem.box, problem.goal
    logits = query.logits
    rivals = min(rivals, logits.shape[1] - 1)
    own = logits.gather(1, goal.classes.unsqueeze(1)).squeeze(1)
    if goal.targeted:
        order = logits.detach().scatter(1, goal.classes.unsqueeze(1), float("-inf")).argsort(dim=1, descending=True, stable=True)[:, :1]
    else:
        order = logits.detach().scatter(1, goal.labels.unsqueeze(1), float("-inf")).argsort(dim=1, descending=True, stable=True)[:, :rivals]
    count = order.shape[1]
    distances, nearest, of_margin = [], x, x
    best = x.new_full((len(x),), float("inf"))
    for rank in range(count):
        rival = logits.gather(1, order[:, rank : rank + 1]).squeeze(1)
        value = rival - own if goal.targeted else own - rival
        gradient = query.gradient(value, keep=rank < count - 1)
        of_margin = gradient if rank == 0 else of_margin  # the likeliest rival's is the margin's own
        slope = problem.escape(gradient)
        need = value.detach() + goal.confidence + 3 * query.tolerance
        delta, far = to_boundary(x, slope, need.clamp_min(TINY), box, norm)
        distances.append(far)
        nearest = torch.where(per_image(far < best, x), x + delta, nearest)
        best = torch.minimum(best, far)
    table = torch.stack(distances, 1)
    ranking = table.argsort(dim=1, stable=True)
    height = (query.margin + query.tolerance) / goal.scale(logits.detach())
    return Scan(order.gather(1, ranking), table.gather(1, ranking), nearest, height, query.margin, of_margin)
