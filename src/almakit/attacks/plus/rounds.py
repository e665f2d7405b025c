"""How a budget is spent on l1 and l2: one search and a polish, or from 200 passes on several searches that differ, then the polish."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from ...core import Problem
from ...core.steps import per_image
from .lagrangian import Lagrangian, lagrangian
from .margins import Direction, towards, untargeted
from .polish import polish
from .scan import Scan

LENGTH = 70


@dataclass(frozen=True)
class Sizes:
    """The first step in units of the linearised distance to the boundary, the weight of the distance, and two caps.

    Where the gradient at the clean image is flattened by training, the linearised distance is many times the true one; the caps, in units of
    the square root of the number of values times the box's width, keep the first step and the unit in reach of what is plausible.
    """

    first: float
    weight: float
    step_cap: float
    unit_cap: float


SIZES = {1.0: Sizes(0.8, 8.0, 0.286, 1.07), 2.0: Sizes(0.2, 1.5, 0.057, float("inf"))}


def searches(problem: Problem, passes: int, norm: float, scan: Scan) -> None:
    """Spends ``passes`` queries in one or more Lagrangian searches and a polish of what they found."""
    sizes = SIZES[norm]
    typical = problem.x[0].numel() ** 0.5 * problem.box.width
    unit = scan.unit.clamp_max(sizes.unit_cap * typical)
    base = Lagrangian(first=(sizes.first * scan.unit).clamp_max(sizes.step_cap * typical) / unit, weight=sizes.weight)
    last = min(passes // 5, 60)
    left, number = passes - last, 0
    while left > 0:
        length = left if left < 2 * LENGTH else LENGTH
        settings, direction, start = _variant(problem, scan, base, number)
        lagrangian(problem, length, unit, scan.height, settings, start, direction)
        left, number = left - length, number + 1
    polish(problem, last, norm)


def _variant(problem: Problem, scan: Scan, base: Lagrangian, number: int) -> tuple[Lagrangian, Direction, torch.Tensor]:
    """The settings, direction and start of a search: plain; bolder with a sharp margin; towards each likely rival; then from random starts."""
    x, rivals = problem.x, scan.classes.shape[1]
    if number == 0:
        return base, untargeted, x
    if number == 1:
        return replace(base, first=2 * base.first, hot=0.02, cold=0.01), untargeted, x
    if number < 2 + rivals:
        return base, towards(scan.classes[:, number - 2]), x
    noise = problem.random.normal()
    length = torch.linalg.vector_norm(noise.flatten(1), dim=1)
    reach = 0.5 * torch.linalg.vector_norm((problem.best_point - x).flatten(1), dim=1)
    start = problem.box.project_continuous(x + per_image(reach / length, x) * noise, x)
    direction = untargeted if number % 2 else towards(scan.classes[:, number % rivals])
    return replace(base, first=base.first * (0.5, 1.0, 2.0)[number % 3]), direction, start
