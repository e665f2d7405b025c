"""Tables in the paper's layout, with its numbers and almakit's: per model and distance, and geometric means."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ..report.numbers import geometric_mean
from ..report.table import NONE, Column, Row, Table, figure, percent
from .entries import Entry
from .grid import Published, name_of, published

SUMMARY = "geometric-mean"

COLUMNS = (
    Column("distance", "Distance", shown="csv"),
    Column("model", "Model", shown="csv"),
    Column("attack", "Attack"),
    Column("images", "Images", "count", shown="detail"),
    Column("success", "Success", "share"),
    Column("median", "Median", "distance"),
    Column("forwards", "Forwards", "count"),
    Column("backwards", "Backwards", "count"),
    # The paper's figures with the digits that it prints, and as numbers for CSV.
    Column("printed_success", "Paper: success", "share", csv=False),
    Column("printed_median", "Paper: median", "distance", csv=False),
    Column("printed_passes", "Paper: forwards / backwards", "count", csv=False),
    *(Column(f"paper_{name}", "", shown="csv") for name in ("success", "median", "forwards", "backwards")),
    Column("ratio", "Ratio", "distance", shown="detail", help="our median over the paper's"),
)
NUMBERS = ("success", "median", "low", "high", "forwards", "backwards")
PAPER_NUMBERS = ("success", "median", "forwards", "backwards")


def by_model(entries: Sequence[Entry]) -> list[Table]:
    """The appendix' tables: distance by distance, model by model, attacks in the paper's order."""
    found = []
    order = list(dict.fromkeys(entry.distance for entry in entries))
    pairs = dict.fromkeys((entry.distance, entry.label) for entry in entries)
    for distance, label in sorted(pairs, key=lambda pair: order.index(pair[0])):
        lines = [entry for entry in entries if (entry.distance, entry.label) == (distance, label)]
        clean = max(lines, key=lambda entry: entry.images)
        note = f"{label}: clean accuracy {100 * clean.clean_accuracy:.1f} % of {clean.images} images."
        found.append(_table(f"{name_of(distance)}, {label}", lines, note))
    return found


def geometric(entries: Sequence[Entry]) -> list[Table]:
    """The summary tables: geometric means over the available models, the paper's over the same models.

    The note gives the paper's printed summary over all of its models.
    """
    found = []
    for distance in dict.fromkeys(entry.distance for entry in entries):
        mine = [entry for entry in entries if entry.distance == distance]
        labels = list(dict.fromkeys(entry.label for entry in mine))
        if len(labels) < 2:
            continue
        attacks = [[entry for entry in mine if entry.text == text] for text in dict.fromkeys(e.text for e in mine)]
        complete = [parts for parts in attacks if {entry.label for entry in parts} == set(labels)]
        lines = [_mean_line(parts) for parts in complete]
        note = f"Geometric means over {', '.join(labels)}"
        note += "; the paper's figures over the same models." if any(line.paper for line in lines) else "."
        printed = "; ".join(filter(None, (_printed(parts[0]) for parts in complete)))
        note += f" As printed in the paper, over all of its own models: {printed}." if printed else ""
        found.append(_table(f"{name_of(distance)}, geometric mean", lines, note))
    return found


def _mean_line(parts: Sequence[Entry]) -> Entry:
    """The geometric means of one attack over models and of the ends of its intervals (a conservative interval, because
    the models share images); the paper's mean only if it has all models."""
    papers = [entry.paper for entry in parts if entry.paper is not None]
    means: dict[str, Any] = {name: _mean(getattr(entry, name) for entry in parts) for name in NUMBERS}
    paper = _mean_of(papers) if len(papers) == len(parts) else None
    return replace(parts[0], label="geometric mean", images=min(entry.images for entry in parts), paper=paper, **means)


def _table(title: str, lines: Sequence[Entry], note: str) -> Table:
    return Table(COLUMNS, [_row(line) for line in lines], title, notes=(note,))


def _row(line: Entry) -> Row:
    row = {
        "distance": line.distance,
        "model": line.label,
        "attack": line.title,
        "images": line.images,
        "success": line.success,
        "median": {"value": line.median, "low": line.low, "high": line.high},
        "forwards": line.forwards,
        "backwards": line.backwards,
        "ratio": line.ratio,
    }
    if line.paper is not None:
        row |= {f"paper_{name}": getattr(line.paper, name) for name in PAPER_NUMBERS}
        row["printed_success"] = percent(line.paper.success, 2)
        row["printed_median"] = figure(line.paper.median, 3)
        passes = (line.paper.forwards, line.paper.backwards)
        row["printed_passes"] = " / ".join(NONE if value is None else f"{value:.0f}" for value in passes)
    return row


def _printed(entry: Entry) -> str:
    """An attack's line in the paper's summary."""
    row = published().get((entry.dataset, SUMMARY, entry.distance, entry.attack, entry.budget))
    return f"{entry.title} {percent(row.success, 2)} % / {figure(row.median, 3)}" if row else ""


def _mean_of(papers: Sequence[Published]) -> Published:
    return Published(*(_mean(getattr(paper, name) for paper in papers) for name in PAPER_NUMBERS))


def _mean(values: Iterable[float | None]) -> float | None:
    """The geometric mean, None where a value is infinite or missing."""
    known = list(values)
    numbers = [value for value in known if value is not None]
    mean = geometric_mean(numbers) if numbers and len(numbers) == len(known) else math.inf
    return mean if math.isfinite(mean) else None


def markdown(found: Sequence[Table]) -> str:
    """Each table under a heading."""
    return "\n".join(f"### {table.title}\n\n{replace(table, title='').markdown()}" for table in found)
