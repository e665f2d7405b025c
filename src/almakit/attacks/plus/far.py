"""A start from the other side: an adversarial point far away, drawn in to the boundary, from which a walk along it comes back.

Where training has flattened the gradient around clean images, the way out says little, but the boundary seen from outside has a healthy gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...core import Problem
from ...core.projections import length
from ...core.steps import per_image
from .scan import Scan

# Queries of the way out, each a sixth of the box.
STRIDES = 5
# An image is worth a look from outside at a cliff: where two strides, not one, leave at most the first part of its margin, and a gradient that is twice as
# steep if one stride left more than the second part, else three times.
LEFT, FLAT, STEEPER = 0.65, 0.56, (2.0, 3.0)


def far_start(problem: Problem, scan: Scan, selective: bool, bisections: int) -> tuple[Tensor, list[tuple[Tensor, int]]]:
    """Makes adversarial points near the boundary known to the problem: signed steps of a sixth of the box until the goal is reached, then
    ``bisections`` towards the image. Which images have one (B,), and the others in groups (B,), each with the queries it has spent.

    Begins with what the ``scan`` knows of the clean images. ``selective`` gives up images that the first stride brings out already (an ordinary search
    serves them), and those which two strides leave most of their margin (the network is flat all the way) or hardly a steeper gradient (the clean one
    was no worse).
    """
    x, box = problem.x, problem.box
    reached, gone, others = torch.zeros_like(problem.found), ~problem.active, []
    far = point = x
    steeper = torch.ones_like(scan.margin)
    with problem.round():
        gradient = problem.escape(scan.slope)
        for stride in range(STRIDES):
            point = box.project_continuous(point - box.width / (STRIDES + 1) * gradient.sign(), x)
            last = stride == STRIDES - 1
            query = problem.query(point, grad=not last)
            slope = scan.slope if last else query.gradient(problem.goal.margin(query.logits))
            if selective and stride < 2:
                no_cliff = (query.margin > LEFT * scan.margin) | (length(slope, 2) < steeper * length(scan.slope, 2))
                unfit = ~gone & (query.success if stride == 0 else no_cliff)
                steeper = torch.where(query.margin > FLAT * scan.margin, *STEEPER)
                others.append((unfit, stride + 1))
                gone = gone | unfit
            come = query.success & ~gone & ~reached
            far = torch.where(per_image(come, x), query.point, far)
            reached = reached | come
            problem.release(reached | gone)
            gradient = problem.escape(slope, ~query.success)
    others.append((~reached & ~gone, STRIDES))
    near, outer = torch.zeros(len(x), dtype=x.dtype, device=x.device), torch.ones(len(x), dtype=x.dtype, device=x.device)
    with problem.round():
        problem.release(~reached)
        for _ in range(bisections):
            middle = (near + outer) / 2
            success = problem.query(x + per_image(middle, x) * (far - x), grad=False).success
            near, outer = torch.where(success, near, middle), torch.where(success, middle, outer)
    return reached, others
