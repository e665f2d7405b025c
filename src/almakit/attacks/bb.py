"""Brendel & Bethge's attack: starts at an adversarial point far away and follows the decision boundary towards the
image."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ..core import Attack, DistanceLike, Problem
from ..optim import length, pull_back, subproblem


@dataclass(frozen=True)
class BB(Attack):
    """Each step solves min |x + d - x0|_p with b.d <= c, |d|_2 <= r in the box, where b is the averaged gradient of the
    margin and c the distance to the boundary.

    c = -1.1 margin outside the adversarial region and -0.9 margin inside, so that iterates stay just inside. The trust
    radius r starts at ``radius`` times the l2 distance of the starting point. Brendel et al., *Accurate, reliable and
    fast robustness evaluation*, NeurIPS 2019, eq. 1 to 3.

    Starting points: what the problem knows already, else up to ``start_steps`` large signed gradient steps, then up to
    ``start_tries`` random images; ``bisections`` of the segment to the clean image follow.

    Differences from the reference implementation: the inner problem is solved for all images at once in closed form
    (optim/trust_region); the boundary is a half-space and not a plane, so a step may go deeper where that is nearer;
    the trust region does not depend on the batch size; images without a starting point fail alone.

    Args:
        radius: the first trust radius, as a part of the l2 distance of the starting point.
        halvings: number of halvings of the trust radius over the steps; none: 5 per factor of ten above 10 steps.
        overshoot: factor by which a step from outside the adversarial region passes the boundary.
        momentum: smoothing of the boundary's normal.
        start_steps: signed gradient steps to find a starting point.
        start_tries: number of random images tried after them.
        bisections: halvings of the segment to the clean image at the start.
    """

    title = "B&B"
    does = ("l1", "l2", "linf")
    cost = (
        "steps forwards and backwards, plus about 15 forwards to start (hard images: up to start_steps + "
        "start_tries + bisections)"
    )
    paper = "Brendel et al., NeurIPS 2019"
    presets = {"paper": {"steps": 1000}}
    ranges = {
        "(0, inf)": "radius",
        "[1, 2)": "overshoot",
        "[0, 1)": "momentum",
        "[0, inf)": "halvings start_steps start_tries bisections",
    }

    distance: DistanceLike = "l2"
    steps: int = 1000
    radius: float = 0.2
    halvings: int | None = None
    overshoot: float = 1.1
    momentum: float = 0.8
    start_steps: int = 10
    start_tries: int = 50
    bisections: int = 10

    def run(self, problem: Problem) -> None:
        self._find_starts(problem)
        problem.release(~problem.found)
        pull_back(problem, self.bisections, cut=problem.norm == float("inf"))
        x, norm, point = problem.x, problem.norm, problem.best_point
        first_radius = self.radius * length(point - x, 2)
        boundary, solver = torch.zeros_like(x), subproblem(x, problem.box, norm)
        halvings = max(1, round(5 * math.log10(self.steps / 10))) if self.halvings is None else self.halvings
        for step in range(self.steps - 1):
            query = problem.query(point)
            slope = problem.replace_zero_gradients(query.margin_gradient())
            problem.record(step, distance=query.distance, margin=query.margin, success=query.success)
            boundary = self.momentum * boundary + (1 - self.momentum) * slope if step else slope
            margin = torch.add(query.margin, query.tolerance, alpha=2)
            c = torch.minimum(-self.overshoot * margin, (self.overshoot - 2) * margin)
            radius = first_radius * 0.5 ** (halvings * step / self.steps)
            moved = query.point + solver.step(query.point - x, boundary, c, radius, None)
            point = problem.step_or_backtrack(query, moved, point)
        problem.query(point, grad=False)

    def _find_starts(self, problem: Problem) -> None:
        """Query until each image has an adversarial point or all tries are used."""
        x, box = problem.x, problem.box
        with problem.round():
            # Points that are known already are starting points.
            problem.release(problem.found)
            point = x
            query = problem.start()
            for _ in range(self.start_steps):
                slope = problem.replace_zero_gradients(query.margin_gradient())
                point = box.project_continuous(point - box.sides / self.start_steps * slope.sign(), x)
                query = problem.query(point)
                problem.release(problem.found)
        with problem.round():
            problem.release(problem.found)
            for _ in range(self.start_tries):
                rows = problem.active.nonzero().flatten().tolist()
                problem.query(box.lo + box.sides * problem.random.uniform(rows), grad=False)
                problem.release(problem.found)
