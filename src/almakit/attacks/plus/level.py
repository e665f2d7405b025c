"""linf: a search over the radius. Each step moves along a smoothed gradient inside the smallest radius that the linearised margin allows."""

from __future__ import annotations

import torch
from torch import Tensor

from ...core import Problem
from ...core.steps import per_image
from .geometry import TINY, dot
from .margins import untargeted

# The share of the radius a step may give up and the radii by which it moves the mean value, first and last; how much of the last heading stays.
GIVEN_UP, PULL, MOMENTUM = (0.3, 0.01), (1.0, 0.05), 0.7


def level(problem: Problem, steps: int, start: Tensor) -> None:
    """Spends ``steps`` queries from ``start`` (B, ...)."""
    x, box = problem.x, problem.box
    delta, heading = start - x, torch.zeros_like(x)
    for i in range(steps):
        last = i == steps - 1
        query = problem.query(x + delta, grad=not last)
        if last:
            break
        phase = i / max(steps - 2, 1)
        g, spread = untargeted(problem, query, 0.2 * 0.1**phase)
        share = GIVEN_UP[0] * (GIVEN_UP[1] / GIVEN_UP[0]) ** phase
        along = dot(g, delta)
        # Aim further and further beyond the boundary until something is found: the linearisation may promise too much.
        impatience = torch.where(problem.found, 1.0, min(1.2 ** min(max(0, i - 10), 60), 100.0))
        overshoot = 0.1 * share * torch.maximum(along.abs(), 0.02 * spread) * impatience
        excess = torch.where(query.valid, query.margin, torch.zeros_like(along)) + 1.5 * query.tolerance + overshoot
        target = along - excess
        radius = delta.abs().flatten(1).amax(1)
        learnt = g / per_image(g.abs().flatten(1).mean(1).clamp_min(TINY), x)
        # Where the logits are not finite the gradient is a random direction.
        heading = MOMENTUM * heading + (learnt if query.all_valid else learnt * per_image(query.valid, x))
        moved = delta - per_image(PULL[0] * (PULL[1] / PULL[0]) ** phase * radius, x) * heading

        def inside(size: Tensor, moved: Tensor = moved) -> Tensor:
            edge = per_image(size, x)
            return box.project_continuous(x + moved.clamp(-edge, edge), x) - x

        smallest = (1 - share) * radius
        low, high = smallest, 1.3 * radius
        for _ in range(14):
            middle = (low + high) / 2
            short = dot(g, inside(middle)) > target
            low, high = torch.where(short, middle, low), torch.where(short, high, middle)
        size = torch.where(dot(g, inside(smallest)) <= target, smallest, high)
        delta = torch.where(per_image(query.valid, x), inside(size), problem.midway(x + delta) - x)
