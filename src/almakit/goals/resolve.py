"""The goal of a call, from labels, targets, label maps, a goal, a function or a text such as ``top-k(k=5)``."""

from __future__ import annotations

import inspect
import math
from dataclasses import MISSING, fields
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from .. import registry
from ..data import user_file
from ..errors import BadInput, wrong_setting
from ..expression import Call, Value, parse
from .base import FunctionGoal, Goal, as_goal
from .classes import ClassGoal
from .pixels import PixelGoal


def goal_of(count: int, labels: object, targets: object, goal: object, share: float) -> Goal:
    """The goal of a call of an attack.

    Args:
        count: number of images.
        labels: true classes, shape (B,), label maps, shape (B, H, W), or other data that the goal needs.
        targets: target classes, of the same shapes.
        goal: a goal, its text or a function; None: leave the labels, or reach the targets.
        share: share of the pixels that must be wrong, for label maps.
    """
    maps = getattr(labels, "ndim", 1) == 3
    if goal is None:
        if labels is None and targets is None:
            raise BadInput(
                "say what to reach: labels to leave, targets, or a goal, such as goal=almakit.goals.threshold(below=0)."
            )
        goal = PixelGoal(share=share) if maps else ClassGoal()
    bound = get(goal)
    maps = maps and isinstance(bound, PixelGoal)
    if bound.by_class or maps:
        known = None if labels is None else class_indices(labels, "labels", count, maps)
        wanted = None if targets is None else class_indices(targets, "targets", count, maps)
        if not maps and known is not None and wanted is not None:
            _check_targets_differ(known, wanted)
    else:
        known = None if labels is None else rows_of(labels, "labels", count)
        wanted = None if targets is None else rows_of(targets, "targets", count)
    bound = bound.for_labels(known, wanted)
    lead = bound.confidence
    if isinstance(lead, bool) or not isinstance(lead, Real) or not 0 <= lead < math.inf:
        raise BadInput(f"confidence={lead!r}: the required lead must be a finite number, 0 or more.")
    if bound.needs_labels and bound.classes is None:
        raise BadInput(f"the goal {bound.title} needs labels: give one for each image.")
    bound.check_size(count)
    return bound


def rows_of(values: object, what: str, count: int, inner: str = " ...") -> Tensor:
    """Labels or targets as a tensor (B, ...) with a row for each of ``count`` images."""
    try:
        found = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise BadInput(f"{what} must be a tensor with a row for each image, not a {type(values).__name__}.") from None
    if not found.ndim or len(found) != count:
        raise BadInput(
            f"{what} have shape {tuple(found.shape)}; for {count} images they must have shape ({count},{inner})."
        )
    return found.detach()


def class_indices(values: object, what: str, count: int, maps: bool = False) -> Tensor:
    """Labels or targets as int64 (B,), or maps of them (B, H, W)."""
    found = rows_of(values, what, count, " height, width" if maps else "")
    found = found if found.numel() else found.long()
    if found.is_floating_point() or found.is_complex() or found.dtype == torch.bool:
        raise BadInput(
            f"{what} are {found.dtype}; they must be integer class indices (use .long(), or .argmax(1) for one-hot "
            "rows)."
        )
    if found.ndim != (3 if maps else 1):
        raise BadInput(
            f"{what} have shape {tuple(found.shape)}; for {count} images they must have shape ({count},), or for "
            f"maps ({count}, height, width)."
        )
    if not maps and bool((found < 0).any()):
        row = int((found < 0).nonzero()[0])
        raise BadInput(f"{what[:-1]} {int(found[row])} of image {row} is not a class; classes are counted from 0.")
    return found.long()


def _check_targets_differ(labels: Tensor, targets: Tensor) -> None:
    """Raise an error if a target equals its label; both (B,)."""
    same = labels == targets
    if bool(same.any()):
        row = int(same.nonzero()[0])
        raise BadInput(
            f"the target of image {row} equals its label ({int(labels[row])}); choose another class for it, or leave "
            "such images out: keep = labels != targets."
        )


def first_margin(goal: Goal, outputs: Tensor, finite: Tensor, rows: Tensor, check: bool) -> Tensor:
    """(B,) the margin of the clean ``outputs`` (B, ...). Raises an error if its shape is wrong or it is not finite.

    Args:
        goal: the goal.
        outputs: clean outputs, shape (B, ...).
        finite: whether each image's outputs are finite, shape (B,).
        rows: the images' numbers for error messages, shape (B,).
        check: also raise an error if the margin depends on the batch.
    """
    margin = goal.margin(outputs)
    if not isinstance(margin, Tensor) or margin.shape != (len(outputs),) or not margin.is_floating_point():
        got = f"a {type(margin).__name__}"
        if isinstance(margin, Tensor):
            got = f"{margin.dtype} of shape {tuple(margin.shape)}"
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


def names() -> list[str]:
    """The names ``get`` knows."""
    return registry.names("goals")


def get(goal: object) -> Goal:
    """The goal of a text, of a function of the outputs, or ``goal`` itself.

    ``file.py:build`` calls the function ``build`` of a file, which returns a goal or a function.
    """
    return _build(parse(goal, "goal", "top-k(k=5)")) if isinstance(goal, str) else as_goal(goal)


def text_of(goal: object) -> str:
    """The text that builds ``goal`` again; ``python:name`` if it contains tensors or is a function."""
    goal = get(goal)
    if isinstance(goal, FunctionGoal):
        return f"python:{getattr(goal.function, '__name__', 'function')}"
    settings = []
    for each in fields(goal):
        value, default = getattr(goal, each.name), each.default
        if value is None or (default is not MISSING and not isinstance(value, Tensor) and value == default):
            continue
        if isinstance(value, Tensor):
            return f"python:{goal.title}"
        settings.append(f"{each.name}={_written(value)}")
    return f"{goal.title}({', '.join(settings)})" if settings else goal.title


def _written(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_written(part) for part in value)}]"
    return text_of(value) if isinstance(value, Goal) else str(value)


def _build(call: Call) -> Goal:
    settings = {name: _value(value) for name, value in call.arguments.items()}
    if user_file.is_user_file(call.name):
        with user_file.importable(call.name):
            return as_goal(user_file.function(call.name)(**settings))
    if call.name.startswith("python:"):
        raise BadInput(f"the goal {call.name} was given from Python; pass it to almakit.evaluate(..., goal=...) again.")
    kind = registry.get("goals", call.name)
    known = [name for name in inspect.signature(kind).parameters if name != "reference"]
    for name in settings:
        if name not in known:
            raise wrong_setting(registry.canonical("goals", call.name), name, known)
    goal = kind(**settings)
    assert isinstance(goal, Goal)
    return goal


def _value(value: Value) -> Any:
    if isinstance(value, tuple):
        return tuple(_value(part) for part in value)
    if isinstance(value, Call):
        return _build(value)
    # A name without settings inside a list of goals is that goal with its defaults.
    return _build(Call(value)) if isinstance(value, str) and value in names() else value
