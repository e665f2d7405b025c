"""LPA, the Lagrangian perceptual attack: an adversarial point within a perceptual distance epsilon."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import DistanceLike, Problem
from ..tensors import per_image, unit
from .fixed_epsilon import FixedEpsilon, reached

PROBE = 0.1


@dataclass(frozen=True)
class LPA(FixedEpsilon):
    """Descends max(margin, -1) + lambda max(0, D(x', x) - epsilon), lambda ten times larger in each of ``searches``
    rounds of ``steps`` steps.

    A step goes along the normalised gradient u, as far as changes D by epsilon 0.1^(k/steps): its length is that over
    D(x', x' + h u)/h, h = 0.1. At the end the point is drawn back to the image until D = epsilon, by bisection on the
    segment, and judged once more. Laidlaw, Singla and Feizi, *Perceptual Adversarial Robustness: Defense Against Unseen
    Threat Models*, ICLR 2021, section 4.2 and Algorithm 2. The ALMA paper's tables wrap it in a search:
    ``search(attack=lpa(steps=40, searches=5), largest=0.5, halvings=10)``.

    It works with any distance; the paper uses LPIPS. A point is a success only if D is within epsilon, up to rounding.
    Each image stops at its first success.

    Args:
        searches: rounds, with a ten times larger weight on the distance in each.
        weight: the first weight on the distance.
    """

    title = "LPA"
    cost = "searches x steps + 2 forwards, searches x steps backwards, fewer with early stops"
    paper = "Laidlaw, Singla and Feizi, ICLR 2021"
    presets = {"paper": {"steps": 40, "searches": 5}}
    ranges = {"[1, inf)": "searches", "(0, inf)": "weight"}

    distance: DistanceLike = "lpips"
    steps: int = 40
    searches: int = 5
    weight: float = 0.01

    def run_at(self, problem: Problem, epsilon: Tensor) -> None:
        x, box = problem.x, problem.box
        rows = problem.active.nonzero().flatten().tolist()
        point = box.project_continuous(x + 0.01 * box.width * problem.random.normal(rows), x)
        weight = x.new_full((len(x),), self.weight)
        for _ in range(self.searches):
            for step in range(self.steps):
                query = problem.query(point, distance_grad=True)
                problem.release(reached(problem, epsilon))
                push = problem.replace_zero_gradients(query.margin_gradient(), query.success)
                unreached = query.margin > -1.0
                too_far = query.distance > epsilon
                slope = (
                    per_image(unreached.to(x.dtype), x) * push
                    + per_image(weight * too_far, x) * query.distance_gradient
                )
                problem.record(
                    step, epsilon=epsilon, distance=query.distance, margin=query.margin, success=query.success
                )
                moved = self._step(problem, query.point, slope, epsilon * 0.1 ** (step / self.steps))
                point = problem.step_or_backtrack(query, moved, query.point)
            weight = weight * 10
        problem.query(self._drawn_back(problem, point, epsilon), grad=False)
        problem.release(reached(problem, epsilon))

    @staticmethod
    def _step(problem: Problem, point: Tensor, slope: Tensor, size: Tensor) -> Tensor:
        """``point`` (B, ...) after a step against the gradient (B, ...) that changes the distance by about ``size``
        (B,)."""
        ahead = -unit(slope)
        with torch.no_grad():
            speed = (
                problem.bound.distance.bind(point)(problem.box.project_continuous(point + PROBE * ahead, problem.x))
                / PROBE
            )
        return problem.box.project_continuous(point + per_image(size / (speed + 1e-4), point) * ahead, problem.x)

    @staticmethod
    def _drawn_back(problem: Problem, point: Tensor, epsilon: Tensor) -> Tensor:
        """The last point on the segment from the clean image to ``point`` (B, ...) that is within ``epsilon`` (B,), to
        20 bisections."""
        delta = point - problem.x
        with torch.no_grad():
            near, far = torch.zeros_like(epsilon), torch.ones_like(epsilon)
            inside = problem.bound(point) <= problem.grid.limit(epsilon)
            for _ in range(20):
                middle = (near + far) / 2
                fits = problem.bound(problem.x + per_image(middle, delta) * delta) <= epsilon
                near, far = torch.where(fits, middle, near), torch.where(fits, far, middle)
        return problem.x + per_image(torch.where(inside, 1.0, near), delta) * delta
