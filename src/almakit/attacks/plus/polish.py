"""Polishing an adversarial point: sequential programming on one linearised constraint, its subproblem solved exactly, for l1 and l2.

Every step moves a little towards the clean image and then the shortest way back onto the linearised boundary, inside the box. The inner
searches never call the model.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...core import Problem
from ...core.steps import per_image
from .geometry import TINY, dot, onto_halfspace, shrink, strided
from .margins import untargeted

Step = Callable[[Problem, Tensor, Tensor, Tensor, Tensor], Tensor]
COLD = 0.02


def polish(problem: Problem, steps: int, norm: float, start: Tensor | None = None) -> None:
    """Spends ``steps`` queries from the best points known, or from ``start`` (B, ...).

    Images of which no adversarial point is known have nothing to polish: they take strides across the box until one is.
    """
    first, last = ETA[norm]
    step_of = STEPS[norm]
    x = problem.x
    delta = (problem.best_point if start is None else start) - x
    for i in range(steps):
        final = i == steps - 1
        query = problem.query(x + delta, grad=not final)
        if final:
            break
        g, _ = untargeted(problem, query, COLD)
        fraction = first * (last / first) ** (i / max(steps - 2, 1))
        along = dot(g, delta)
        # Half again the tolerance, so that the linearised point passes it, and a margin against curvature that vanishes with the step.
        excess = torch.where(query.valid, query.margin, torch.zeros_like(along)) + 1.5 * query.tolerance + 0.1 * fraction * along.abs()
        # Where the point lies beyond the boundary, the slack is given up as well.
        slack = torch.where(along < 0, excess / along.clamp_max(-TINY), torch.zeros_like(along)).clamp(0, 0.5)
        given_up = torch.maximum(torch.full_like(along, fraction), slack)
        moved = step_of(problem, delta, g, along - excess, given_up)
        lost = ~problem.found
        if not problem.looks or bool(lost.any()):
            moved = torch.where(per_image(lost, x), strided(x, delta, g, problem.box, steps), moved)
        delta = torch.where(per_image(query.valid, x), moved, problem.midway(x + delta) - x)


def l2_step(problem: Problem, delta: Tensor, g: Tensor, level: Tensor, given_up: Tensor) -> Tensor:
    """Scale down by ``given_up`` (B,), then project onto {g.d <= level} and the box."""
    return onto_halfspace(per_image(1 - given_up, delta) * delta, problem.x, g, level, problem.box)


def l1_step(problem: Problem, delta: Tensor, g: Tensor, level: Tensor, given_up: Tensor) -> Tensor:
    """Proximal: clip(soft(delta - nu g, lambda)), lambda the given-up share of the mean size of a changed value, nu by bisection."""
    x, box = problem.x, problem.box
    mean_size = delta.abs().flatten(1).sum(1) / (delta != 0).flatten(1).sum(1).clamp_min(1)
    threshold = per_image(given_up * mean_size, x)

    def candidate(nu: Tensor) -> Tensor:
        return box.project_continuous(x + shrink(delta - per_image(nu, x) * g, threshold), x) - x

    low = torch.zeros_like(level)
    # From the clean image there is no size to go by: the step that would do in the l2 norm is the scale then.
    high = torch.maximum(mean_size / g.abs().flatten(1).amax(1).clamp_min(TINY), (dot(g, delta) - level) / dot(g, g).clamp_min(TINY))
    for _ in range(8):
        short = dot(g, candidate(high)) > level
        low, high = torch.where(short, high, low), torch.where(short, high * 2, high)
    enough = dot(g, candidate(torch.zeros_like(low))) <= level
    for _ in range(12):
        middle = (low + high) / 2
        short = dot(g, candidate(middle)) > level
        low, high = torch.where(short, middle, low), torch.where(short, high, middle)
    return candidate(torch.where(enough, torch.zeros_like(high), high))


STEPS: dict[float, Step] = {1.0: l1_step, 2.0: l2_step}
# The fraction given up per step, first and last.
ETA: dict[float, tuple[float, float]] = {1.0: (0.2, 0.02), 2.0: (0.1, 0.01)}
