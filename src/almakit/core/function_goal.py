"""A user's function of the outputs as a goal."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..errors import AlmakitError, BadInput
from .goals import SHARED, Goal

GoalLike = Goal | Callable[..., Tensor]
"""A goal, or a function of outputs (B, ...), and perhaps labels (B, ...), that returns margins (B,)."""


@dataclass(frozen=True, eq=False)
class FunctionGoal(Goal):
    """``function(outputs) -> (B,)``, or ``function(outputs, labels) -> (B,)``: negative where the goal is reached.

    It sees some of the images at a time, so what belongs to an image comes with ``labels``, of any kind and shape (B,
    ...).
    """

    title = "function"
    finite = False

    function: Callable[..., Tensor] | None = field(default=None, kw_only=True, metadata=SHARED)

    @property
    def needs_labels(self) -> bool:  # type: ignore[override]
        return _arguments(self.function) == 2

    def margin(self, outputs: Tensor) -> Tensor:
        assert self.function is not None
        given = (outputs, self.labels) if self.needs_labels else (outputs,)
        try:
            return self.function(*given)
        except AlmakitError:
            raise
        except Exception as error:
            raise BadInput(
                f"the goal's function failed on outputs of shape {tuple(outputs.shape)} with {type(error).__name__}: "
                f"{error}"
            ) from error


def as_goal(goal: object) -> Goal:
    """The goal that was given, or the one a function stands for."""
    if isinstance(goal, Goal):
        return goal
    if isinstance(goal, str):
        raise BadInput(
            f"goal={goal!r} is a text; almakit.goals.get(text) makes a goal of it, and almakit.attack and "
            "almakit.evaluate take it as it is."
        )
    if not callable(goal) or _arguments(goal) not in (1, 2):
        raise BadInput(
            f"goal={goal!r}: give one of almakit.goals, or a function of the outputs (and perhaps labels) that "
            "returns a margin for each image."
        )
    return FunctionGoal(function=goal)


def first_margin(goal: Goal, outputs: Tensor, finite: Tensor, rows: Tensor, check: bool) -> Tensor:
    """(B,) the goal's margin of clean ``outputs`` (B, ...); a sentence where it is none: of a wrong shape, no number,
    or dependent on the batch."""
    margin = goal.margin(outputs)
    if not isinstance(margin, Tensor) or margin.shape != (len(outputs),) or not margin.is_floating_point():
        got = (
            f"{margin.dtype} of shape {tuple(margin.shape)}"
            if isinstance(margin, Tensor)
            else f"a {type(margin).__name__}"
        )
        raise BadInput(
            f"the goal must give one floating-point margin for each of the {len(outputs)} images, shape "
            f"({len(outputs)},); it gave {got}."
        )
    if goal.finite:
        return margin
    bad = finite & ~torch.isfinite(margin)
    if bool(bad.any()):
        place = int(bad.nonzero()[0])
        raise BadInput(
            f"the goal's margin of image {int(rows[place])} is {float(margin[place])}, although its outputs are "
            "finite; make it finite everywhere."
        )
    alone = goal.take(torch.zeros(1, dtype=torch.long, device=outputs.device)).margin(outputs[:1])
    if check and bool(finite[0]) and not torch.allclose(alone, margin[:1], rtol=1e-3, atol=1e-6):
        raise BadInput(
            f"the goal's margin of image {int(rows[0])} is {float(margin[0]):.4g} in its batch and "
            f"{float(alone[0]):.4g} alone: it must not depend on the "
            "other images. What belongs to an image is given as labels, for the function sees some of the images at a "
            "time."
        )
    return margin


def _arguments(function: object) -> int:
    """How many positional arguments a function must be given; 1 where that cannot be seen."""
    try:
        parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return 1
    return sum(
        each.default is each.empty and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        for each in parameters
    )
