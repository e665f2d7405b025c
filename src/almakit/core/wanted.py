"""The goal of a call: labels are the short way to say untargeted, targets targeted, maps of labels pixels."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..errors import BadInput
from . import validate
from .class_goal import ClassGoal
from .function_goal import as_goal
from .goals import Goal
from .pixels import PixelGoal


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
    kind = validate.maps if maps else validate.classes
    found = None if labels is None else kind(labels, "labels", count)
    wanted = None if targets is None else kind(targets, "targets", count)
    if not maps and found is not None and wanted is not None:
        validate.targets_differ(found, wanted)
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
