"""Experiment trackers: any callable that takes events, and TensorBoard, MLflow and Weights & Biases as such callables.

``almakit.trackers.get("tensorboard:runs/tb")`` opens one; ``evaluate(..., track=...)``, ``almakit run --track ...`` and
an attack's ``trace=...`` take it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import registry
from ..data import user_file
from ..errors import BadInput

__all__ = ["Track", "get", "names"]

Event = dict[str, Any]
Track = Callable[[Event], None]
"""A tracker: a function that receives events; ``base.py`` describes them."""


def names() -> list[str]:
    """The trackers known by name."""
    return registry.names("trackers")


def get(tracker: str | Track) -> Track:
    """A tracker from ``tensorboard:<folder>``, ``mlflow:<experiment>``, ``wandb:<project>`` or ``file.py:function``; a
    callable is itself one."""
    if callable(tracker):
        return tracker
    if not isinstance(tracker, str):
        raise BadInput(
            "a tracker is a text such as tensorboard:runs/tb or a function that takes an event, not a "
            f"{type(tracker).__name__}."
        )
    if user_file.is_user_file(tracker):
        return user_file.function(tracker)
    name, _, where = tracker.partition(":")
    opened: Track = registry.get("trackers", name)(where)
    return opened


def all_of(trackers: str | Track | Sequence[str | Track] | None) -> list[Track]:
    """The trackers of an argument that may be none, one or several."""
    if trackers is None:
        return []
    several = trackers if isinstance(trackers, Sequence) and not isinstance(trackers, str) else [trackers]
    return [get(each) for each in several]
