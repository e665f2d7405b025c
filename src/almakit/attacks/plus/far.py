"""A start from the other side: an adversarial point far away, drawn in to the boundary, from which the polish comes back.

Where training has flattened the gradient around clean images, the way out says little, but the boundary seen from outside has a healthy gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...core import Problem
from ...core.steps import per_image

STRIDES, BISECTIONS = 6, 4
PASSES = STRIDES + BISECTIONS


def far_start(problem: Problem) -> Tensor:
    """(B, ...) points near the boundary, seen from outside: signed steps of a sixth of the box until the goal is reached, then bisections towards
    the image. Where no stride succeeds, the best point known. At most ``PASSES`` queries."""
    x, box = problem.x, problem.box
    far = point = x
    reached = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    with problem.round():
        query = problem.query(x)
        for stride in range(STRIDES - 1):
            slope = problem.escape(query.gradient(problem.goal.margin(query.logits)), ~query.success)
            point = box.project_continuous(point - box.width / STRIDES * slope.sign(), x)
            query = problem.query(point, grad=stride < STRIDES - 2)
            far = torch.where(per_image(query.success & ~reached, x), query.point, far)
            reached = reached | query.success
            problem.release(reached)
    near, outer = torch.zeros(len(x), dtype=x.dtype, device=x.device), torch.ones(len(x), dtype=x.dtype, device=x.device)
    for _ in range(BISECTIONS):
        middle = (near + outer) / 2
        success = problem.query(x + per_image(middle, x) * (far - x), grad=False).success
        near, outer = torch.where(success, near, middle), torch.where(success, middle, outer)
    return torch.where(per_image(reached, x), x + per_image(outer, x) * (far - x), problem.best_point)
