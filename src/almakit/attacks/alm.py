"""ALM: the generic augmented Lagrangian method, with separate inner and outer iterations; what ALMA is measured
against."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .. import registry
from ..core import Attack, DistanceLike, Problem
from ..optim.penalties import MU_MAX, MU_MIN, Penalty
from ..optim.steps import Adam, Stagnation, cosine_decay, first_step
from ..tensors import SMALL, per_image

RHO_MAX = 1e9


@dataclass(frozen=True)
class ALM(Attack):
    """Minimises D(x', x) + P(DLR+(x'), rho, mu) by ``inner`` Adam steps, then mu <- P'(d, rho, mu) and, without
    progress, rho <- gamma rho; ``outer`` times.

    Each inner minimisation starts from the last one's end and stops, image by image, once its value has not fallen by
    0.01 % within a tenth of the steps. rho grows where the constraint d is violated and has not fallen below
      ``improvement`` times its last value. Rony
    et al., *Augmented Lagrangian Adversarial Attacks*, ICCV 2021, Algorithm 1, with the penalties of its appendix
    (Birgin et al. 2005).

    ``epsilon`` sets the step: the first Adam step moves the image by that distance (None: the distance's published
    value for ALMA, else that of an l2 step of 0.1); within an inner loop it falls along a cosine to a hundredth. The
    paper says that this method is slow and gives no values for it: these are ours.

    Args:
        outer: updates of the multiplier.
        inner: iterations between two of them.
        epsilon: the distance of the first step; none takes the distance's published value for ALMA.
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
        x, goal = problem.x, problem.goal
        penalty = registry.get("penalties", self.penalty)()
        query = problem.start()
        constraint = goal.constraint(query.logits, query.tolerance)
        slope = problem.replace_zero_gradients(query.gradient(constraint))
        rate = self._rate(problem, slope)
        state = _State(x, slope, constraint.detach())
        mu, rho = x.new_full((len(x),), self.mu), x.new_full((len(x),), self.rho)
        for round_ in range(self.outer):
            before = state.constraint
            with problem.round():
                # The clean image was the first of the first round's queries.
                self._minimise(
                    problem, state, mu, rho, rate, penalty, self.inner - (round_ == 0), round_ == self.outer - 1
                )
            stuck = (state.constraint > 0) & (state.constraint > self.improvement * before)
            mu = penalty.derivative(state.constraint, rho, mu).clamp(MU_MIN, MU_MAX)
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
            epsilon = bound(
                box.project_continuous(torch.where(x > (box.lo + box.hi) / 2, x - flat, x + flat), x)
            ).clamp_min(SMALL)
        signs = slope.sign()
        return first_step(lambda eta: bound(box.project(x - per_image(eta, x) * signs, x)), signs, epsilon, box.width)

    def _minimise(
        self,
        problem: Problem,
        state: _State,
        mu: Tensor,
        rho: Tensor,
        rate: Tensor,
        penalty: Penalty,
        queries: int,
        last: bool,
    ) -> None:
        """One inner minimisation of ``queries`` steps from where ``state`` stands, which keeps the last state of
        each image."""
        x, box, goal = problem.x, problem.box, problem.goal
        adam = Adam(x)
        progress = Stagnation(x, self.inner // 10)
        for step in range(1, queries + 1):
            final = last and step == queries
            gradient = per_image(penalty.derivative(state.constraint, rho, mu), x) * state.slope + state.pull
            decayed = rate * cosine_decay(step - 1, self.inner, 1.0, self.final_step)
            move = adam.step(decayed, adam.metric(gradient, step), step)
            moved = box.project_continuous(state.point - move, x)
            queried = problem.active
            query = problem.query(moved, grad=not final, distance_grad=not final)
            if final:
                break
            constraint = goal.constraint(query.logits, query.tolerance)
            slope = problem.replace_zero_gradients(query.gradient(constraint), ~query.success)
            assert query.distance_gradient is not None
            state.take(query.valid & queried, moved, constraint.detach(), slope, query.distance_gradient)
            value = query.distance + penalty.value(state.constraint, rho, mu)
            problem.record(
                step, mu=mu, rho=rho, constraint=state.constraint, distance=query.distance, success=query.success
            )
            stalled = progress.stalled(step, torch.where(query.valid, value, torch.full_like(value, float("inf"))))
            if stalled is not None:
                problem.release(stalled)


class _State:
    """Where each image stands between inner minimisations: point and gradients (B, ...), constraint (B,)."""

    def __init__(self, x: Tensor, slope: Tensor, constraint: Tensor):
        self.point, self.slope, self.pull, self.constraint = x, slope, torch.zeros_like(x), constraint

    def take(self, rows: Tensor, point: Tensor, constraint: Tensor, slope: Tensor, pull: Tensor) -> None:
        """Moves the images ``rows`` (B,) to a new point."""
        wide = per_image(rows, point)
        self.point, self.slope = torch.where(wide, point, self.point), torch.where(wide, slope, self.slope)
        self.pull, self.constraint = torch.where(wide, pull, self.pull), torch.where(rows, constraint, self.constraint)
