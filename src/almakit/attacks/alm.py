"""ALM: the generic augmented Lagrangian method with inner and outer iterations, the baseline of the ALMA paper."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .. import registry
from ..core import Attack, DistanceLike, Problem
from ..optim.penalties import MU_MAX, MU_MIN
from ..optim.steps import Adam, Stagnation, cosine_decay, first_step
from ..tensors import SMALL, per_image

RHO_MAX = 1e9


@dataclass(frozen=True)
class ALM(Attack):
    """Minimises D(x', x) + P(DLR+(x'), rho, mu) by ``inner`` Adam steps, then mu <- P'(d, rho, mu) and, without
    progress, rho <- gamma rho; ``outer`` times.

    Rony et al., *Augmented Lagrangian Adversarial Attacks*, ICCV 2021, Algorithm 1, with the penalties of its appendix
    (Birgin et al. 2005). Each inner minimisation starts at the end of the previous one and stops for an image once its
    value has not fallen by 0.01 % within a tenth of the steps. rho grows if the constraint d is violated and has not
    fallen below ``improvement`` times its last value. Within an inner loop the step falls along a cosine to a
    hundredth. The paper calls this method slow and gives no settings for it; the defaults are almakit's.

    Args:
        outer: updates of the multiplier.
        inner: iterations between two of them.
        epsilon: the distance of the first step; none for the distance's published value for ALMA, or that of an l2
            step of 0.1.
        gamma: the factor rho grows by.
    """

    title = "ALM"
    cost = "outer x inner forwards and backwards at most"
    paper = "Rony et al., ICCV 2021, Algorithm 1"
    ranges = {
        "[1, inf)": "outer inner",
        "(0, inf)": "epsilon mu rho improvement",
        "(1, inf)": "gamma",
        "(0, 1]": "final_step",
    }

    distance: DistanceLike = "l2"
    outer: int = 10
    inner: int = 100
    epsilon: float | None = None
    penalty: str = "p2"
    mu: float = 1.0
    rho: float = 1.0
    gamma: float = 10.0
    improvement: float = 0.5
    final_step: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        registry.get("penalties", self.penalty)

    def run(self, problem: Problem) -> None:
        x, box, goal = problem.x, problem.box, problem.goal
        penalty = registry.get("penalties", self.penalty)()
        query = problem.start()
        d = goal.constraint(query.logits, query.tolerance)
        slope = problem.replace_zero_gradients(query.gradient(d))
        rate = self._rate(problem, slope)
        point, d, pull = x, d.detach(), torch.zeros_like(x)
        mu, rho = torch.full_like(d, self.mu), torch.full_like(d, self.rho)
        for outer in range(self.outer):
            before, adam, progress = d, Adam(x), Stagnation(x, self.inner // 10)
            # The clean image was the first query of the first inner minimisation.
            queries = self.inner - (outer == 0)
            with problem.round():
                for step in range(1, queries + 1):
                    gradient = per_image(penalty.derivative(d, rho, mu), x) * slope + pull
                    eta = rate * cosine_decay(step - 1, self.inner, 1.0, self.final_step)
                    move = adam.step(eta, adam.metric(gradient, step), step)
                    moved, queried = box.project_continuous(point - move, x), problem.active
                    more = outer < self.outer - 1 or step < queries
                    query = problem.query(moved, grad=more, distance_grad=more)
                    if not more:
                        return
                    constraint = goal.constraint(query.logits, query.tolerance)
                    moved_slope = problem.replace_zero_gradients(query.gradient(constraint), query.success)
                    kept = query.valid & queried
                    wide = per_image(kept, x)
                    point, d = torch.where(wide, moved, point), torch.where(kept, constraint.detach(), d)
                    slope = torch.where(wide, moved_slope, slope)
                    pull = torch.where(wide, query.distance_gradient, pull)
                    value = query.distance + penalty.value(d, rho, mu)
                    problem.record(step, mu=mu, rho=rho, constraint=d, distance=query.distance, success=query.success)
                    stalled = progress.stalled(step, torch.where(query.valid, value, torch.inf))
                    if stalled is not None:
                        problem.release(stalled)
            stuck = (d > 0) & (d > self.improvement * before)
            mu = penalty.derivative(d, rho, mu).clamp(MU_MIN, MU_MAX)
            rho = torch.where(stuck, (rho * self.gamma).clamp_max(RHO_MAX), rho)

    def _rate(self, problem: Problem, slope: Tensor) -> Tensor:
        """(B,) Adam's step size: a step of that size along the slope's signs changes the image by epsilon."""
        x, bound, box = problem.x, problem.bound, problem.box
        epsilon: Tensor | float
        if self.epsilon is not None:
            epsilon = self.epsilon
        elif bound.distance.first_step:
            epsilon = bound.distance.first_step["paper"]
        else:
            flat = torch.full_like(x, 0.1 / math.sqrt(x[0].numel()))
            inwards = torch.where(x > (box.lo + box.hi) / 2, x - flat, x + flat)
            epsilon = bound(box.project_continuous(inwards, x)).clamp_min(SMALL)
        signs = slope.sign()
        return first_step(lambda eta: bound(box.project(x - per_image(eta, x) * signs, x)), signs, epsilon, box.width)
