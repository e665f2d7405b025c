"""FMN: fast minimum-norm attacks for l0, l1, l2 and linf."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import Attack, DistanceLike, Problem, Query
from ..optim import bounds, clip, dual_length, l0_distance, length, onto_ball, to_halfspace
from ..optim.steps import cooled, cosine_decay, linearised_change
from ..tensors import TINY, per_image


@dataclass(frozen=True)
class FMN(Attack):
    """Gradient steps projected onto a ball whose radius eps shrinks on success and grows on failure, in four norms.

    delta <- P_eps(delta - a g/|g|_2), with a from 1 to 0.01 and eps changing by gamma, from 0.05 to 0.001, both along a
    cosine; before the first success eps is |delta| plus the linearised distance to the boundary. Pintor et al., *Fast
    Minimum-norm Adversarial Attacks through Adaptive Norm Constraints*, NeurIPS 2021, Algorithm 1.

    Differences from the original: no backward pass after the last query, and step sizes in units of the box's width.
    With ``adaptive``: a soft margin, a first radius that is exact for the linearised margin inside the box, later
    changes computed from the linearised margin (``overshoot`` to ``gamma``, 0.02 to 0.2, both falling to a tenth), and
    an exact projection onto the ball inside the box. The original (``adaptive=False, overshoot=0``) can converge just
    inside the boundary without a success.

    Args:
        overshoot: the smallest relative change of the radius.
        gamma: the largest relative change of the radius.
    """

    title = "FMN"
    does = ("l0", "l1", "l2", "linf")
    cost = "1 forward, 1 backward per step"
    paper = "Pintor et al., NeurIPS 2021"
    presets = {"paper": {"adaptive": False, "overshoot": 0.0}}
    ranges = {"[0, inf)": "overshoot", "(0, 1)": "gamma", "(0, inf)": "rate"}

    distance: DistanceLike = "l2"
    steps: int = 100
    adaptive: bool = True
    overshoot: float = 0.02
    rate: float | None = None
    gamma: float | None = None

    def run(self, problem: Problem) -> None:
        x, norm = problem.x, problem.norm
        low, high = bounds(problem.box, x)
        largest = length(torch.maximum(high, -low), norm)
        radius = torch.ones_like(largest) if norm == 0 else torch.full_like(largest, float("inf"))
        delta = torch.zeros_like(x)
        query = problem.start()
        for step in range(self.steps - 1):
            temperature = cooled(problem.goal.spread(query.values), step / self.steps) if self.adaptive else None
            slope = problem.replace_zero_gradients(query.margin_gradient(temperature), query.success)
            margin = query.margin + query.tolerance
            radius = torch.minimum(self._radius(problem, query, slope, margin, delta, radius, step), largest)
            problem.record(step, radius=radius, margin=query.margin, distance=query.distance, success=query.success)
            moved = self._moved(problem, slope, delta, radius, low, high, step)
            delta = problem.delta_or_backtrack(query, moved, delta)
            if not query.all_valid:
                radius = torch.where(query.valid, radius, length(delta, norm))
            query = problem.query(x + delta, grad=step < self.steps - 2)

    def _radius(
        self, problem: Problem, query: Query, slope: Tensor, margin: Tensor, delta: Tensor, radius: Tensor, step: int
    ) -> Tensor:
        """The radius (B,) of the next projection, from that of the last one."""
        norm = problem.norm
        change: float | Tensor = cosine_decay(step, self.steps, self.gamma or 0.05, 0.001)
        if self.adaptive and step == 0:
            low, high = bounds(problem.box, problem.x)
            if norm == 0:
                return l0_distance(-slope, margin, low, high).clamp_min(1)
            return length(to_halfspace(-slope, margin, low, high, norm), norm) * (1 + self.overshoot)
        if self.adaptive:
            decay = cosine_decay(step, self.steps, 1.0, 0.1)
            along = -(slope * delta).flatten(1).sum(1)
            least, most = min(self.overshoot, self.gamma or 0.2) * decay, (self.gamma or 0.2) * decay
            change = linearised_change(margin, along, least, most)
        if norm == 0:
            less = torch.minimum(radius - 1, (radius * (1 - change)).floor())
            less = less if self.adaptive else torch.minimum(less, problem.best_distance)
            more = torch.maximum(radius + 1, (radius * (1 + change)).floor())
            return torch.where(query.success, less, more).clamp_min(int(self.adaptive))
        if self.adaptive:
            return radius * (1 + torch.where(query.success, -change, change))
        reach = (length(delta, norm) + margin.abs() / dual_length(slope, norm).clamp_min(TINY)) * (1 + self.overshoot)
        grown = torch.where(problem.found, radius * (1 + change), reach)
        return torch.where(query.success, torch.minimum(radius * (1 - change), problem.best_distance), grown)

    def _moved(
        self, problem: Problem, slope: Tensor, delta: Tensor, radius: Tensor, low: Tensor, high: Tensor, step: int
    ) -> Tensor:
        """The next perturbation (B, ...): a step down the slope, projected onto the ball of the ``radius`` (B,)."""
        norm = problem.norm
        # l1 changes few values and needs longer steps.
        first = self.rate or (2.0 if self.adaptive and norm == 1 else 1.0)
        part = cosine_decay(step, self.steps, first, first / 100)
        rate = torch.full_like(radius, part * problem.box.width)
        if not self.adaptive:
            moved = delta - slope * per_image(rate / length(slope, 2).clamp_min(TINY), delta)
            free = torch.full_like(delta, float("inf"))
            return clip(onto_ball(moved, radius, -free, free, norm), low, high)
        if norm == float("inf"):
            moved = delta - slope.sign() * per_image(part * radius, delta)
        else:
            moved = delta - slope * per_image(rate / length(slope, 2 if norm else float("inf")).clamp_min(TINY), delta)
        if norm:
            # Scale up to the sphere first, because a step that ends inside it does not use the full radius.
            moved = moved * per_image((radius / length(moved, norm).clamp_min(TINY)).clamp_min(1), delta)
        return onto_ball(moved, radius, low, high, norm)
