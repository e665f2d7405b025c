"""DDN: decouples the direction of the perturbation, which follows the gradient, from its norm."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import Attack, DistanceLike, Problem, Query
from ..optim import bounds, clip, length, to_levels
from ..optim.steps import cooled, cosine_decay, linearised_change
from ..tensors import TINY, per_image


@dataclass(frozen=True)
class DDN(Attack):
    """Minimises the l2 norm by gradient steps projected onto a sphere whose radius eps shrinks on success and grows on
    failure.

    delta <- delta - a g/|g|; eps <- (1 -+ gamma) eps; delta <- box(eps delta/|delta|), with a from 1 to 0.01 along a
    cosine. g is the gradient of logsumexp of the other classes minus z_y: the direction of the cross-entropy's gradient
    without its vanishing factor 1 - p_y. Rony et al., *Decoupling Direction and Norm for Efficient Gradient-Based L2
    Adversarial Attacks and Defenses*, CVPR 2019, Algorithm 1.

    Differences from the original: no backward pass after the last query. With ``adaptive``, the first radius is the
    linearised distance to the boundary; later ones change by the linearised distance too, by at most gamma (0.2 to 0.02
    along a cosine) and at least a tenth of it; the temperature of the logsumexp falls from 0.2 to 0.02 times the spread
    of the logits. The original has gamma 0.05 and starts at radius 1; it fails if the optimum is far from 1.

    Args:
        adaptive: whether radius and temperature follow the linearised margin; false is the original.
        initial_norm: the first radius; none for the linearised distance.
        levels: grey levels every iterate is rounded to, 256 in the ALMA paper's runs; a box with bits=8 rounds only
            what the model sees.
    """

    title = "DDN"
    does = ("l2",)
    cost = "1 forward, 1 backward per step"
    paper = "Rony et al., CVPR 2019"
    presets = {"paper": {"adaptive": False, "levels": 256}}
    ranges = {"(0, 1)": "gamma", "(0, inf)": "initial_norm", "[2, inf)": "levels"}

    distance: DistanceLike = "l2"
    steps: int = 100
    adaptive: bool = True
    gamma: float | None = None
    initial_norm: float | None = None
    levels: int | None = None

    def run(self, problem: Problem) -> None:
        x = problem.x
        low, high = bounds(problem.box, x)
        largest = length(torch.maximum(high, -low), 2)
        radius, one = torch.full_like(largest, self.initial_norm or 1.0), torch.ones_like(largest)
        delta = torch.zeros_like(x)
        query = problem.start()
        for step in range(self.steps - 1):
            temperature = cooled(problem.goal.spread(query.values), step / self.steps) if self.adaptive else one
            slope = problem.replace_zero_gradients(query.margin_gradient(temperature), query.success)
            steep = length(slope, 2).clamp_min(TINY)
            if step == 0 and self.adaptive and self.initial_norm is None:
                radius = query.margin / steep
            else:
                radius = radius * (1 + self._change(query, -(slope * delta).flatten(1).sum(1), step))
            radius = torch.minimum(radius, largest)
            problem.record(step, radius=radius, margin=query.margin, distance=query.distance, success=query.success)

            moved = delta - slope * per_image(cosine_decay(step, self.steps) / steep, x)
            moved = clip(moved * per_image(radius / length(moved, 2).clamp_min(TINY), x), low, high)
            delta = problem.delta_or_backtrack(query, moved, delta)
            if not query.all_valid:
                radius = torch.where(query.valid, radius, length(delta, 2))
            if self.levels is not None:
                delta = to_levels(problem.box, x + delta, self.levels) - x
            query = problem.query(x + delta, grad=step < self.steps - 2)

    def _change(self, query: Query, along: Tensor, step: int) -> Tensor:
        """(B,) the relative change of the radius; ``along`` (B,) is how much the margin falls when delta doubles, to
        first order."""
        if not self.adaptive:
            gamma = self.gamma or 0.05
            return torch.where(query.success, -gamma, gamma).to(along)
        gamma = cosine_decay(step, self.steps, self.gamma or 0.2, (self.gamma or 0.2) / 10)
        change = linearised_change(query.margin, along, 0.1 * gamma, gamma)
        return torch.where(query.success, -change, change)
