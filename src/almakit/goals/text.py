"""Goals as text: ``top-k(k=5)``, ``any-of(goals=[threshold(below=0), top-k(k=2)])``, ``my_goal.py:build``."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields
from typing import Any

from torch import Tensor

from .. import registry
from ..data import user_file
from ..errors import BadInput, wrong_setting
from ..expression import Call, Value, parse
from .base import Goal
from .given import FunctionGoal, as_goal


def names() -> list[str]:
    """The names ``get`` knows."""
    return registry.names("goals")


def get(goal: object) -> Goal:
    """A goal from its text, from a function of the outputs, or itself; ``file.py:build`` calls the function ``build``,
    which returns a goal or a function."""
    return _build(parse(goal, "goal", "top-k(k=5)")) if isinstance(goal, str) else as_goal(goal)


def text_of(goal: object) -> str:
    """The text that builds a goal again; ``python:name`` where it has tensors or a function that no text can hold."""
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
        raise BadInput(
            f"the goal {call.name} was given from Python; go on with almakit.evaluate(..., goal=...), which has it."
        )
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
    # A bare name inside a list of goals is that goal with its defaults.
    return _build(Call(value)) if isinstance(value, str) and value in names() else value
