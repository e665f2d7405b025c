"""The goal of a call, from what the caller gave: labels for untargeted, targets for targeted, maps of labels for
pixels, a goal, or a function of the outputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..errors import AlmakitError, BadInput
from . import labels as label_checks
from .base import SHARED, Goal
from .classes import ClassGoal
from .pixels import PixelGoal

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
            f"{float(alone[0]):.4g} alone: it must not depend on the other images. What belongs to an image is given "
            "as labels, for the function sees some of the images at a time."
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


def goal_of(
    count: int, labels: object, targets: object, goal: object, confidence: float, mask: Tensor | None, share: float
) -> Goal:
    """What ``count`` images are to reach, from what the caller gave; ``share`` of the pixels where labels are maps."""
    maps = getattr(labels, "ndim", 1) == 3 and (goal is None or isinstance(goal, PixelGoal))
    if mask is not None and not maps:
        raise BadInput(
            "a pixel mask goes with labels of shape (B, H, W); for a classifier restrict the pixels that may change "
            "by box=Box(mask=...)."
        )
    if goal is None:
        if labels is None and targets is None:
            raise BadInput(
                "say what to reach: labels to leave, targets, or a goal, such as goal=almakit.goals.threshold(below=0)."
            )
        found, wanted = _classes(count, labels, targets, maps)
        return (
            PixelGoal(found, wanted, confidence, mask=mask, share=share)
            if maps
            else ClassGoal(found, wanted, confidence)
        )
    bound = as_goal(goal)
    if bound.by_class or maps:
        found, wanted = _classes(count, labels, targets, maps)
    else:
        found, wanted = _facts(labels, "labels", count), _facts(targets, "targets", count)
    bound = bound.for_labels(found, wanted)
    if isinstance(bound, PixelGoal) and mask is not None:
        bound = replace(bound, mask=mask)
    if confidence:
        bound = replace(bound, confidence=confidence)
    if bound.needs_labels and bound.classes is None:
        raise BadInput(f"the goal {bound.title} needs labels: give one for each image.")
    bound.check_size(count)
    return bound


def _classes(count: int, labels: object, targets: object, maps: bool) -> tuple[Tensor | None, Tensor | None]:
    """Labels and targets as int64, (B,) or (B, H, W)."""
    kind = label_checks.maps if maps else label_checks.classes
    found = None if labels is None else kind(labels, "labels", count)
    wanted = None if targets is None else kind(targets, "targets", count)
    if not maps and found is not None and wanted is not None:
        label_checks.targets_differ(found, wanted)
    return found, wanted


def _facts(values: object, what: str, count: int) -> Tensor | None:
    """Labels or targets of any kind for a goal that is no class: a tensor (B, ...)."""
    if values is None:
        return None
    try:
        found = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise BadInput(f"{what} must be a tensor with a row for each image, not a {type(values).__name__}.") from None
    if not found.ndim or len(found) != count:
        raise BadInput(
            f"{what} have shape {tuple(found.shape)}; for {count} images they must have shape ({count}, ...)."
        )
    return found.detach()
