"""l0: a search over how many values change; those with most to gain are pushed to the end of the box that a smoothed gradient points to."""

from __future__ import annotations

import torch

from ...core import Problem
from ...core.steps import per_image
from .geometry import TINY, room
from .margins import untargeted

# The number of values it begins with, the share by which that changes, first and last, and how much of the average gradient stays.
COUNT, CHANGE, SMOOTHING = 20.0, (0.5, 0.05), 0.6


def sparse(problem: Problem, steps: int) -> None:
    """Spends ``steps`` queries from the clean images."""
    x, box = problem.x, problem.box
    delta, average = torch.zeros_like(x), torch.zeros_like(x)
    allowed = x.new_full((len(x),), COUNT)
    for i in range(steps):
        last = i == steps - 1
        query = problem.query(x + delta, grad=not last) if i else problem.start()
        if last:
            break
        phase = i / max(steps - 2, 1)
        g, _ = untargeted(problem, query, 0.2 * 0.1**phase)
        # What the model could not take is forgotten and tried with fewer values.
        average = torch.where(per_image(~query.valid, x) & (delta != 0), torch.zeros_like(x), average)
        average = SMOOTHING * average + (1 - SMOOTHING) * g / per_image(torch.linalg.vector_norm(g.flatten(1), dim=1).clamp_min(TINY), x)
        if i:
            share = CHANGE[0] * (CHANGE[1] / CHANGE[0]) ** phase
            # After a success fewer, after a failure more, but always fewer than the best so far: anything else is not worth a query.
            wanted = torch.where(query.success | ~query.valid, (allowed * (1 - share)).floor(), (allowed * (1 + share)).ceil())
            allowed = torch.minimum(wanted, problem.best_distance - 1).clamp(1, x[0].numel())
        gain = (average.abs() * room(x, average, box)).flatten(1)
        rank = gain.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        chosen = ((rank < allowed.unsqueeze(1)) & (gain > 0)).view_as(x)
        end = torch.where(average < 0, torch.full_like(x, box.hi), torch.full_like(x, box.lo))
        delta = torch.where(chosen, end, x) - x
