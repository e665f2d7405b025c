"""A start from the other side: an adversarial point far away, drawn in to the boundary, from which a walk along it comes back.

Where training has flattened the gradient around clean images, the way out says little, but the boundary seen from outside has a healthy gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...core import Problem
from ...core.steps import per_image

# Queries of the way out (the clean image and five strides, each a sixth of the box) and of the way to the boundary.
STRIDES, BISECTIONS = 6, 4
PASSES = STRIDES + BISECTIONS
# An image is worth a look from outside where it keeps the first part of its margin over one stride, but not the second over two: flat, then a cliff.
FLAT, CLIFF = 0.56, 0.55


def far_start(problem: Problem, selective: bool) -> tuple[Tensor, list[tuple[Tensor, int]]]:
    """Makes adversarial points near the boundary known to the problem: signed steps of a sixth of the box until the goal is reached, then bisections
    towards the image. Which images have one (B,), and the others in groups (B,), each with the queries it has spent.

    At most ``PASSES`` queries. ``selective`` gives up images whose margin falls with the first stride already (an ordinary search serves them) or
    hardly with two (so does it where a network is flat all the way).
    """
    x, box = problem.x, problem.box
    reached, gone, others = torch.zeros_like(problem.found), ~problem.active, []
    far = point = x
    with problem.round():
        query = clean = problem.query(x)
        for stride in range(STRIDES - 1):
            slope = problem.escape(query.gradient(problem.goal.margin(query.logits)), ~query.success)
            point = box.project_continuous(point - box.width / STRIDES * slope.sign(), x)
            query = problem.query(point, grad=stride < STRIDES - 2)
            if selective and stride < 2:
                unfit = ~gone & (query.margin < FLAT * clean.margin if stride == 0 else query.margin > CLIFF * clean.margin)
                others.append((unfit, stride + 2))
                gone = gone | unfit
            come = query.success & ~gone & ~reached
            far = torch.where(per_image(come, x), query.point, far)
            reached = reached | come
            problem.release(reached | gone)
    others.append((~reached & ~gone, STRIDES))
    near, outer = torch.zeros(len(x), dtype=x.dtype, device=x.device), torch.ones(len(x), dtype=x.dtype, device=x.device)
    with problem.round():
        problem.release(~reached)
        for _ in range(BISECTIONS):
            middle = (near + outer) / 2
            success = problem.query(x + per_image(middle, x) * (far - x), grad=False).success
            near, outer = torch.where(success, near, middle), torch.where(success, middle, outer)
    return reached, others
