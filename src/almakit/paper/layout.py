"""Tables in the paper's layout, its numbers beside ours: one per model and distance, and geometric means over the
models. No torch here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..report.formats import figure
from ..report.labels import DISTANCES
from ..report.numbers import geometric_mean
from ..report.published import Key, Published, tables
from .entries import Entry

DASH, SUMMARY = "–", "geometric-mean"
ROUNDING = (0.0005, 0.01, 0.01)
"""What the rounding of printed figures explains: a share, a median absolutely, and a median relatively beside that."""


@dataclass(frozen=True)
class Line:
    """An attack's line: ours, and the paper's where it has one. A median of None is infinite and prints as a dash."""

    attack: str
    images: int
    success: float | None
    median: float | None
    low: float | None
    high: float | None
    forwards: float | None
    backwards: float | None
    paper: Published | None

    @property
    def ratio(self) -> float | None:
        """Our median over the paper's."""
        if self.median is None or self.paper is None or not self.paper.median:
            return None
        return self.median / self.paper.median


@dataclass(frozen=True)
class Table:
    """The attacks of one distance on one model, or their geometric means over models."""

    title: str
    distance: str
    model: str
    lines: list[Line]
    note: str = ""


def by_model(entries: Sequence[Entry]) -> list[Table]:
    """The appendix' tables: model by model, distance by distance, attacks in the paper's order."""
    found = []
    for distance in dict.fromkeys(entry.distance for entry in entries):
        for label in dict.fromkeys(entry.label for entry in entries if entry.distance == distance):
            mine = [entry for entry in entries if entry.distance == distance and entry.label == label]
            clean = max(mine, key=lambda entry: entry.images)
            note = f"{label}: clean accuracy {100 * clean.clean_accuracy:.1f} % of {clean.images} images."
            lines = [
                Line(e.cell.title, e.images, e.success, e.median, e.low, e.high, e.forwards, e.backwards, e.paper)
                for e in mine
            ]
            found.append(Table(f"{name_of(distance)}, {label}", distance, label, lines, note))
    return found


def geometric(entries: Sequence[Entry], known: dict[Key, Published] | None = None) -> list[Table]:
    """The summary tables: geometric means over the models at hand, the paper's over the same models and, in the note,
    over all of its own.

    The note gives the printed summary and, where that is another, the mean of the paper's own rows: in four lines of
    its MNIST l2 summary, for example.
    """
    rows = tables() if known is None else known
    found = []
    for distance in dict.fromkeys(entry.distance for entry in entries):
        mine = [entry for entry in entries if entry.distance == distance]
        labels = list(dict.fromkeys(entry.label for entry in mine))
        if len(labels) < 2:
            continue
        attacks = [
            [entry for entry in mine if entry.text == text] for text in dict.fromkeys(entry.text for entry in mine)
        ]
        everywhere = [parts for parts in attacks if {entry.label for entry in parts} == set(labels)]
        lines = [_mean_line(parts) for parts in everywhere]
        printed = "; ".join(filter(None, (_printed(rows, parts[0]) for parts in everywhere)))
        note = f"Geometric means over {', '.join(labels)}"
        note += "; the paper's figures over the same models." if any(line.paper for line in lines) else "."
        note += f" As printed in the paper, over all of its own models: {printed}." if printed else ""
        found.append(Table(f"{name_of(distance)}, geometric mean", distance, "geometric mean", lines, note))
    return found


def _mean_line(parts: Sequence[Entry]) -> Line:
    """The geometric means of one attack over models, of its intervals' ends too (as wide as they can be: the models see
    the same images); the paper's only where it has all of them."""
    papers = [entry.paper for entry in parts if entry.paper is not None]
    success, median, low, high, forwards, backwards = (
        _over([getattr(entry, name) for entry in parts])
        for name in ("success", "median", "low", "high", "forwards", "backwards")
    )
    paper = _mean_of(papers) if len(papers) == len(parts) else None
    fewest = min(entry.images for entry in parts)
    return Line(parts[0].cell.title, fewest, success, median, low, high, forwards, backwards, paper)


def own_mean(rows: dict[Key, Published], key: Key) -> Published:
    """The geometric means over all of the paper's models of the figures its appendix prints for them; ``key`` is a row
    of its summary."""
    return _mean_of(
        [row for other, row in rows.items() if other[1] != SUMMARY and (other[0], *other[2:]) == (key[0], *key[2:])]
    )


def contradicts(printed: Published, own: Published) -> bool:
    """Whether a printed mean is not what its own rows give, by more than rounding."""
    share, absolute, relative = ROUNDING
    for one, other, allowed in (
        (printed.success, own.success, share),
        (printed.median, own.median, absolute + relative * (own.median or 0)),
    ):
        if (one is None) != (other is None) or (one is not None and other is not None and abs(one - other) > allowed):
            return True
    return False


def _printed(rows: dict[Key, Published], entry: Entry) -> str:
    """An attack's line in the paper's summary and, where its appendix gives another mean, that one too."""
    key = (entry.dataset, SUMMARY, entry.distance, entry.attack, entry.budget)
    if key not in rows:
        return ""
    printed, own = rows[key], own_mean(rows, key)
    text = f"{entry.cell.title} {percent(printed.success, 2)} % / {figure(printed.median, 3)}"
    if own.success is not None and contradicts(printed, own):
        text += f" (the paper's own rows give {percent(own.success, 2)} % / {figure(own.median, 3)})"
    return text


def name_of(distance: str) -> str:
    """How the paper calls a distance."""
    key = "ciede2000-paper" if distance == "ciede2000" else distance
    return DISTANCES[key].label if key in DISTANCES else distance


def _over(values: Sequence[float | None]) -> float | None:
    """The geometric mean, None where a value is infinite or missing."""
    if not values or any(value is None for value in values):
        return None
    mean = geometric_mean([value for value in values if value is not None])
    return mean if math.isfinite(mean) else None


def _mean_of(papers: Sequence[Published]) -> Published:
    return Published(
        *(_over([getattr(paper, name) for paper in papers]) for name in ("success", "median", "forwards", "backwards"))
    )


def percent(value: float | None, places: int = 1) -> str:
    """A share in percent, a dash where there is none."""
    return DASH if value is None else f"{100 * value:.{places}f}"
