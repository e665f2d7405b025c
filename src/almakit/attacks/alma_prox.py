"""ALMA-prox: the smallest linf change that makes a segmentation model wrong on nearly all pixels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import Attack, DistanceLike, Problem
from ..goals.pixels import check_share
from ..optim import bounds, proximal
from ..optim.penalties import P2
from ..tensors import per_image, ranks

MU_MIN, MU_MAX, RHO_MAX = 1e-12, 1.0, 1e9


@dataclass(frozen=True)
class ALMAProx(Attack):
    """Minimises |delta|_inf + sum over pixels j of P(w d_j, rho_j, mu_j), d_j the DLR+ of pixel j, by proximal steps in
    a variable metric.

    Each step: mu_j <- clip(a mu_j + (1 - a) P'); delta <- prox of lambda |.|_inf and the box, in the metric H, at
    delta - lambda H^-1 g, with g the penalties' gradient and H the root of its running mean square. rho_j doubles every
    10 steps for pixels that were never wrong in them and did not improve. The common scale w shrinks while the goal is
    reached and grows while it is not. A growing part, up to 1 - share, of the most violated constraints is left out.
    lambda falls hyperbolically to a tenth once the goal is reached, at the latest from half of the steps on. Rony,
    Pesquet and Ben Ayed, *Proximal Splitting Adversarial Attack for Semantic Segmentation*, CVPR 2023, Algorithms 1
    and 2.

    Call it with ``labels`` (B, H, W) for a model that returns (B, K, H, W); labels that are no class do not count. With
    labels (B,) it attacks a classifier, which is one pixel.

    Differences from the original: lambda grows by ``growth`` over the first half of the steps until the goal is
    reached, because steps of 0.001 move no value farther than their sum; the prox is exact; P' has the paper's form for
    violated constraints, where the published code multiplies mu by the constraint; no backward follows the last query.

    Args:
        share: the part of the pixels that must be wrong.
        growth: how much the step may grow until the goal is first reached; 1 as published.
        gamma: the factor rho grows by.
        smallest_scale: the smallest common scale of the constraints.
        scale_rate: how fast that scale changes in a step.
    """

    title = "ALMA-prox"
    does = ("linf",)
    cost = "1 forward, 1 backward per step"
    paper = "Rony, Pesquet and Ben Ayed, CVPR 2023"
    presets = {"paper": {"steps": 500, "growth": 1.0}}
    ranges = {
        "(0, inf)": "rate mu rho improvement",
        "[1, inf)": "growth check_steps",
        "(0, 1]": "final_rate smallest_scale",
        "[0, 1)": "alpha scale_rate",
        "(1, inf)": "gamma",
    }

    distance: DistanceLike = "linf"
    steps: int = 500
    share: float = 0.99
    rate: float = 0.001
    final_rate: float = 0.1
    growth: float = 20.0
    mu: float = 1.0
    rho: float = 0.01
    gamma: float = 2.0
    improvement: float = 0.95
    check_steps: int = 10
    alpha: float = 0.8
    smallest_scale: float = 0.1
    scale_rate: float = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share(self.share)

    @property
    def pixel_share(self) -> float:
        return self.share

    def run(self, problem: Problem) -> None:
        x, goal, penalty = problem.x, problem.goal, P2()
        size, half = len(x), self.steps // 2
        low, high = bounds(problem.box, x)
        counted = goal.parts(size, x.device)
        delta, squares = torch.zeros_like(x), torch.zeros_like(x)
        mu, rho = x.new_full(counted.shape, self.mu), x.new_full(counted.shape, self.rho)
        scale, first_success = x.new_ones(size), x.new_full((size,), float(half))
        was_wrong = torch.zeros_like(counted)
        last_checked = torch.zeros_like(mu)
        query = problem.start()
        for step in range(self.steps - 1):
            each = goal.constraints(query.logits, query.tolerance)
            values = torch.where(query.valid.unsqueeze(1), each.detach(), 1.0)
            was_wrong |= values < 0
            first_success = torch.where(query.success & (first_success > step), float(step), first_success)
            scale = scale / torch.where(query.success, 1 + self.scale_rate, 1 - self.scale_rate)
            scale = scale.clamp(self.smallest_scale, 1.0)
            d = scale.unsqueeze(1) * values
            kept = counted & ~self._most_violated(d, counted, step)

            if step == 0:
                last_checked = d
            elif (step + 1) % self.check_steps == 0:
                improved = d * kept <= self.improvement * last_checked
                rho = torch.where(was_wrong | improved, rho, (self.gamma * rho).clamp_max(RHO_MAX))
                last_checked, was_wrong = d, torch.zeros_like(counted)
            # Below zero the penalty is at least as curved as with rho = 1, so that small rho does not reward what is
            # satisfied.
            curvature = torch.where(d < 0, rho.clamp_min(1.0), rho)
            if step:
                proposed = penalty.derivative(d, curvature, mu) * kept
                mu = (self.alpha * mu + (1 - self.alpha) * proposed).clamp(MU_MIN, MU_MAX)
            weight = penalty.derivative(d, curvature, mu) * kept * scale.unsqueeze(1)
            gradient = problem.replace_zero_gradients(query.gradient((weight * each).sum(1)), query.success)
            problem.record(step, scale=scale, distance=query.distance, success=query.success)

            tangent = self.final_rate / (1 - self.final_rate + 1e-12) * (self.steps - first_success).clamp_min(1)
            grown = torch.exp(math.log(self.growth) * first_success.clamp_max(step) / max(half, 1))
            rate = self.rate * problem.box.width * grown * tangent / ((step - first_success).clamp_min(0) + tangent)
            squares = self.alpha * squares + (1 - self.alpha) * gradient.square()
            metric = (squares / (1 - self.alpha ** (step + 1))).sqrt().clamp_min(1e-8)
            moved = proximal(delta - per_image(rate, x) * gradient / metric, rate, metric, low, high, float("inf"))
            delta = problem.delta_or_backtrack(query, moved, delta)
            query = problem.query(x + delta, grad=step < self.steps - 2)

    def _most_violated(self, d: Tensor, counted: Tensor, step: int) -> Tensor:
        """(B, P) the pixels left out in this step: a part of 1 - share, growing with the steps, with the largest
        constraints ``d`` (B, P)."""
        spare = ((1 - self.share) * counted.sum(1) * step / max(self.steps - 1, 1) + 1e-9).long()
        worst = torch.where(counted, d, -torch.inf)
        return ranks(worst.argsort(dim=1, descending=True)) < spare.unsqueeze(1)
