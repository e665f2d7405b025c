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
# The passes after which images that a stride does not move are let go, and the part of its margin that such an image keeps.
FIRST_LOOK, UNMOVED = 2, 0.93


def far_start(problem: Problem, selective: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Points near the boundary, seen from outside (B, ...): signed steps of a sixth of the box until the goal is reached, then bisections towards the
    image; whether there is one (B,), else the best point known takes its place; and which images were given up at once (B,).

    At most ``PASSES`` queries, ``STRIDES`` where no step reaches the goal. ``selective`` gives up images that keep nearly all of their
    margin in the first step: they pay ``FIRST_LOOK`` queries.
    """
    x, box = problem.x, problem.box
    far = point = x
    reached = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    unmoved = torch.zeros_like(reached)
    with problem.round():
        query = clean = problem.query(x)
        for stride in range(STRIDES - 1):
            slope = problem.escape(query.gradient(problem.goal.margin(query.logits)), ~query.success)
            point = box.project_continuous(point - box.width / STRIDES * slope.sign(), x)
            query = problem.query(point, grad=stride < STRIDES - 2)
            far = torch.where(per_image(query.success & ~reached, x), query.point, far)
            reached = reached | query.success
            if selective and stride == 0:
                unmoved = query.margin > UNMOVED * clean.margin
            problem.release(reached | unmoved)
    near, outer = torch.zeros(len(x), dtype=x.dtype, device=x.device), torch.ones(len(x), dtype=x.dtype, device=x.device)
    with problem.round():
        problem.release(~reached)
        for _ in range(BISECTIONS):
            middle = (near + outer) / 2
            success = problem.query(x + per_image(middle, x) * (far - x), grad=False).success
            near, outer = torch.where(success, near, middle), torch.where(success, middle, outer)
    return torch.where(per_image(reached, x), x + per_image(outer, x) * (far - x), problem.best_point), reached, unmoved & ~reached
