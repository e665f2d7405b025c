"""Directions to descend: gradients of soft margins, with the logits' spread as their natural unit."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ...core import Problem, Query

Direction = Callable[[Problem, Query, float | Tensor], tuple[Tensor, Tensor]]


def untargeted(problem: Problem, query: Query, temperature: float | Tensor) -> tuple[Tensor, Tensor]:
    """Gradient (B, ...) of the margin with its maximum softened over ``temperature`` standard deviations of the logits, and these (B,).

    The scale is not differentiated: on saturated logits a differentiated one hides the margin's own gradient.
    """
    spread = query.logits.detach().nan_to_num().std(1).clamp_min(1e-12)
    slope = query.gradient(problem.goal.soft_margin(query.logits, temperature * spread))
    return problem.escape(slope, ~query.success), spread


def towards(classes: Tensor) -> Direction:
    """The margin against the given classes (B,) alone; for a targeted goal the goal's own margin is kept."""

    def direction(problem: Problem, query: Query, temperature: float | Tensor) -> tuple[Tensor, Tensor]:
        if problem.goal.targeted:
            return untargeted(problem, query, temperature)
        spread = query.logits.detach().nan_to_num().std(1).clamp_min(1e-12)
        own = query.logits.gather(1, problem.goal.labels.unsqueeze(1)).squeeze(1)
        rival = query.logits.gather(1, classes.unsqueeze(1)).squeeze(1)
        return problem.escape(query.gradient(own - rival), ~query.success), spread

    return direction
