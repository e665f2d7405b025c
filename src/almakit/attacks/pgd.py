"""PGD: projected gradient ascent with a fixed step inside l1, l2 and linf balls."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import DistanceLike, Problem
from ..optim import bounds, onto_ball
from ..tensors import per_image, unit
from .fixed_epsilon import (
    FixedEpsilon,
    Loss,
    ascent_loss,
    check_loss,
    onto_grid,
    random_start,
    safe_radius,
    sparse_signs,
)


@dataclass(frozen=True)
class PGD(FixedEpsilon):
    """Maximises a loss inside |x' - x| <= epsilon: x_k+1 = P(x_k + eta u_k), u_k the steepest unit direction in the
    norm, P the projection onto ball and box.

    u is the gradient's sign (linf), the gradient over its length (l2), or the signs of its largest ``share`` of entries
    that can still move (l1). ``rate`` is eta / epsilon; left out it is 2.5 / steps. Madry et al., *Towards Deep
    Learning Models Resistant to Adversarial Attacks*, ICLR 2018, section 2.1; the sparse l1 step as in Tramer and
    Boneh, NeurIPS 2019.

    Each image stops at its first success. Iterates are projected onto a slightly smaller radius, so that x + delta
    stays within epsilon after rounding. There is no backward pass after the last query.

    Args:
        loss: the loss to maximise: ce, dlr, margin, or in Python a function f(logits, labels) -> (B,).
        rate: the step as a part of epsilon; none for 2.5 / steps.
        random: whether it starts from a random point in the ball.
        share: l1: the part of the values a step moves.
    """

    title = "PGD"
    does = ("l1", "l2", "linf")
    cost = "steps + 1 forwards, steps backwards per restart, and the clean pass (not with random=false)"
    paper = "Madry et al., ICLR 2018"
    presets = {"madry-mnist": {"distance": "linf", "epsilon": 0.3, "steps": 40, "rate": 1 / 30}}
    ranges = {"(0, inf)": "rate", "[1, inf)": "restarts", "(0, 1]": "share"}

    distance: DistanceLike = "linf"
    steps: int = 40
    loss: str | Loss = "ce"
    rate: float | None = None
    restarts: int = 1
    random: bool = True
    share: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        check_loss(self.loss, ("ce", "dlr", "margin"))

    def needs_classes(self) -> bool:
        return isinstance(self.loss, str) and self.loss != "margin"

    def run_at(self, problem: Problem, epsilon: Tensor) -> None:
        x, norm = problem.x, problem.norm
        low, high = bounds(problem.box, x)
        radius, limit = safe_radius(problem, epsilon, norm), problem.grid.limit(epsilon)
        rate = per_image(radius * (self.rate if self.rate is not None else 2.5 / self.steps), x)
        for _ in range(self.restarts):
            point = x
            if self.random:
                point = x + onto_ball(per_image(radius, x) * random_start(problem, norm), radius, low, high, norm)
            for step in range(self.steps + 1):
                final = step == self.steps
                query = (
                    problem.start()
                    if point is x and not final
                    else problem.query(onto_grid(problem, point, epsilon, norm), grad=not final)
                )
                problem.release(problem.best_distance <= limit)
                if final:
                    break
                slope = problem.replace_zero_gradients(
                    query.gradient(ascent_loss(self.loss, problem.goal, query.logits))
                )
                problem.record(
                    step, epsilon=epsilon, distance=query.distance, margin=query.margin, success=query.success
                )
                delta = point - x
                direction = self._direction(slope, delta, low, high, norm)
                moved = x + onto_ball(delta + rate * direction, radius, low, high, norm)
                point = problem.step_or_backtrack(query, moved, point)

    def _direction(self, slope: Tensor, delta: Tensor, low: Tensor, high: Tensor, norm: float) -> Tensor:
        """The steepest unit direction (B, ...) of the norm for ``slope`` (B, ...)."""
        if norm == float("inf"):
            return slope.sign()
        if norm == 2:
            return unit(slope)
        count = max(1, round(self.share * slope[0].numel()))
        signs = sparse_signs(slope, delta, low, high, slope.new_full((len(slope),), count, dtype=torch.long))
        return (signs / signs.abs().sum(1, keepdim=True).clamp_min(1)).reshape(slope.shape)
