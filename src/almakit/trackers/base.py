"""The events that a tracker receives, and the base class of named trackers, which turns events into named numbers.

An event is a dict of plain values with a key ``event``:

* ``begin``: ``settings`` of the run, ``folder``
* ``trace``: the history of an attack on one image: ``attack``, ``image``, ``step``, ``values`` (name -> number)
* ``progress``: after each chunk: ``attack``, ``images`` seen, ``fooled`` (share), ``median`` (distance, None where it
  is infinite)
* ``end``: ``ending`` and, if the run is complete, ``summary``: the contents of summary.json

``attack`` is the attack's text with the unusual parts of its threat model: ``ddn(steps=30), targeted, 8-bit``.

An attack called from Python sends its trace without ``event``: ``step``, ``image`` (B,) and tensors
(B,), of which the mean is kept.
"""

from __future__ import annotations

import math
import tempfile
import warnings
from pathlib import Path
from typing import Any

from ..errors import Unavailable
from ..report import figures, subjects

Numbers = dict[str, float]


class Tracker:
    """Base class of named trackers: turns events into ``settings``, ``numbers`` and pictures, which a subclass
    writes."""

    folder: str | None = None  # of the run

    def settings(self, values: dict[str, Any]) -> None:
        """Receive the settings of the run."""

    def numbers(self, values: Numbers, step: int) -> None:
        """Finite numbers by name, e.g. ``alma(distance=l2, steps=100)/fooled``."""
        raise NotImplementedError

    def picture(self, name: str, file: Path) -> None:
        """A picture (PNG) of the finished run: ``robust accuracy``, ``adversarial images``."""

    def close(self) -> None:
        """Finish writing."""

    def __call__(self, event: dict[str, Any]) -> None:
        kind = event.get("event")
        if kind is None:
            self._write(
                {name: _mean(value) for name, value in event.items() if name not in ("step", "image")},
                int(event["step"]),
            )
        elif kind == "begin":
            self.folder = event.get("folder")
            self.settings(event["settings"])
        elif kind == "trace":
            self._write(
                {f"{event['attack']}/{event['image']}/{name}": value for name, value in event["values"].items()},
                event["step"],
            )
        elif kind == "progress":
            self._write({f"{event['attack']}/{name}": event[name] for name in ("fooled", "median")}, event["images"])
        elif kind == "end":
            summary = event.get("summary") or {}
            for part in (*summary.get("attacks", ()), *summary.get("worst_case", ())):
                radii = summary.get("radii", {}).get(part["distance"], ())
                head = f"{part['name']}/summary/robust accuracy at {part['distance']}"
                self._write(
                    {
                        f"{head} {row['epsilon']:g}": row["value"]
                        for row in part["robust_accuracy"]
                        if row["epsilon"] in radii
                    },
                    0,
                )
            for part in summary.get("attacks", ()):
                found = {
                    "success rate": part["success_rate"]["value"],
                    "median": part["median_all"]["value"],
                    "forwards": part["forwards"]["mean"],
                    "backwards": part["backwards"]["mean"],
                }
                self._write({f"{part['name']}/summary/{what}": value for what, value in found.items()}, 0)
            if summary.get("attacks") and self.folder is not None and type(self).picture is not Tracker.picture:
                self._draw(self.folder)
            self.close()

    def _draw(self, folder: str) -> None:
        """The report's figure of the run; left out if matplotlib is not installed."""
        with tempfile.TemporaryDirectory() as place:
            found = subjects.load([folder])
            try:
                (curves,) = figures.draw_curves(found, Path(place), ("png",))
            except Unavailable as error:
                warnings.warn(f"the tracker gets no pictures: {error}", stacklevel=2)
                return
            self.picture("robust accuracy", curves)

    def _write(self, values: dict[str, Any], step: int) -> None:
        finite = {
            name: float(value)
            for name, value in values.items()
            if isinstance(value, (bool, int, float)) and math.isfinite(value)
        }
        if finite:
            self.numbers(finite, step)


def _mean(value: Any) -> float | None:
    """The mean of the finite entries of a tensor (B,)."""
    numbers = [float(each) for each in value.flatten().tolist()] if hasattr(value, "tolist") else [value]
    finite = [each for each in numbers if isinstance(each, (int, float)) and math.isfinite(each)]
    return sum(finite) / len(finite) if finite else None
