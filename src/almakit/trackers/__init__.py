"""Experiment trackers: callables that receive the events of a run or of an attack.

``evaluate(..., track=...)``, ``almakit run --track ...`` and an attack's ``trace=...`` take one. An event is a dict of
plain values with a key ``event``:

* ``begin``: ``settings`` of the run, ``folder``
* ``trace``: the history of an attack on one image: ``attack``, ``image``, ``step``, ``values`` (name -> number)
* ``progress``: after each chunk: ``attack``, ``images`` seen, ``fooled`` (share), ``median`` (distance, None where it
  is infinite)
* ``end``: ``ending`` and, if the run is complete, ``summary``: the contents of summary.json

``attack`` is the attack's text with the unusual parts of its threat model: ``ddn(steps=30), targeted, 8-bit``. An
attack called from Python sends its trace without ``event``: ``step``, ``image`` (B,) and tensors (B,).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .. import registry
from ..data import user_file
from ..errors import BadInput, Unavailable, optional

__all__ = ["Track", "get", "names", "numbers"]

Event = dict[str, Any]
Track = Callable[[Event], None]


def names() -> list[str]:
    """The trackers known by name."""
    return registry.names("trackers")


def get(tracker: str | Track) -> Track:
    """A tracker from ``tensorboard:<folder>`` or ``file.py:function``; a callable is itself one."""
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


def numbers(event: Event) -> tuple[dict[str, float], int]:
    """The finite numbers of an event by name, such as ``alma(distance=l2, steps=100)/fooled``, and their step.

    Of tensors (B,) the mean of the finite values is kept. The event ``end`` has the numbers of the summary.
    """
    kind, found, step = event.get("event"), dict[str, Any](), 0
    if kind is None:
        step, found = int(event["step"]), {name: event[name] for name in event.keys() - {"step", "image"}}
    elif kind == "trace":
        step = event["step"]
        found = {f"{event['attack']}/{event['image']}/{name}": value for name, value in event["values"].items()}
    elif kind == "progress":
        step, found = event["images"], {f"{event['attack']}/{name}": event[name] for name in ("fooled", "median")}
    elif kind == "end":
        found = _of_summary(event.get("summary") or {})
    means = {name: _mean(value) for name, value in found.items()}
    return {name: value for name, value in means.items() if value is not None}, step


def _of_summary(summary: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for part in (*summary.get("attacks", ()), *summary.get("worst_case", ())):
        radii = summary["radii"].get(part["distance"], ())
        for row in part["robust_accuracy"]:
            if row["epsilon"] in radii:
                name = f"robust accuracy at {part['distance']} {row['epsilon']:g}"
                found[f"{part['name']}/summary/{name}"] = row["value"]
    for part in summary.get("attacks", ()):
        found |= {
            f"{part['name']}/summary/success rate": part["success_rate"]["value"],
            f"{part['name']}/summary/median": part["median_all"]["value"],
            f"{part['name']}/summary/forwards": part["forwards"]["mean"],
            f"{part['name']}/summary/backwards": part["backwards"]["mean"],
        }
    return found


def _mean(value: Any) -> float | None:
    """The mean of the finite entries of a tensor or number; None for other values."""
    entries = value.flatten().tolist() if hasattr(value, "tolist") else [value]
    finite = [float(each) for each in entries if isinstance(each, (bool, int, float)) and math.isfinite(each)]
    return sum(finite) / len(finite) if finite else None


class TensorBoard:
    """``tensorboard:<folder>``: event files for ``tensorboard --logdir <folder>``, flushed after every event."""

    def __init__(self, folder: str):
        if not folder:
            raise BadInput("say where TensorBoard's files go: tensorboard:<folder>.")
        missing, install = "TensorBoard needs torch: pip install torch.", "pip install tensorboard"
        kind = optional("torch.utils.tensorboard", missing, install).SummaryWriter
        place = Path(folder).expanduser()
        try:
            place.mkdir(parents=True, exist_ok=True)
            self.writer = kind(str(place))
        except OSError as error:
            raise Unavailable(
                f"cannot write to {place}: {error.strerror}; choose another folder for TensorBoard."
            ) from error

    def __call__(self, event: Event) -> None:
        if event.get("event") == "begin":
            settings = "\n".join(f"    {name} = {value!r}" for name, value in event["settings"].items())
            self.writer.add_text("settings", settings, 0)
        values, step = numbers(event)
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()
