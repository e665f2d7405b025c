"""Tables in the paper's layout, its numbers beside ours: per model and distance, and geometric means over models."""

from __future__ import annotations

import csv
import html
import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..report.labels import DISTANCES
from ..report.numbers import geometric_mean
from ..report.published import Key, Published, tables
from ..report.table import escape, figure
from ..runs.store.records import plain_cell
from .entries import Entry
from .plan import measure_of, name_of

DASH, SUMMARY = "–", "geometric-mean"
ROUNDING = (0.0005, 0.01, 0.01)
"""What the rounding of printed figures explains: a share, a median absolutely, and a median relatively beside that."""


@dataclass(frozen=True)
class Table:
    """The attacks of one distance on one model, or their geometric means over models."""

    title: str
    distance: str
    model: str
    lines: list[Entry]
    note: str = ""


@dataclass(frozen=True)
class Column:
    """A column of every table: its heading and an entry's text in it."""

    name: str
    text: Callable[[Entry], str]


COLUMNS = (
    Column("Attack", lambda line: line.title),
    Column("Images", lambda line: str(line.images)),
    Column("Success %", lambda line: percent(line.success)),
    Column("Median", lambda line: figure(line.median)),
    Column("95 % interval", lambda line: _interval(line)),
    Column("Forwards / backwards", lambda line: _passes(line)),
    Column("Paper: success %", lambda line: percent(line.paper.success, 2) if line.paper else ""),
    Column("Paper: median", lambda line: figure(line.paper.median, 3) if line.paper else ""),
    Column("Paper: F / B", lambda line: _passes(line.paper) if line.paper else ""),
    Column("Ratio", lambda line: "" if line.ratio is None else f"{line.ratio:.3f}"),
)
LATEX = tuple(column for column in COLUMNS if column.name not in ("Images", "95 % interval", "Ratio"))
NUMBERS = ("success", "median", "low", "high", "forwards", "backwards")
PAPER_NUMBERS = ("success", "median", "forwards", "backwards")


def by_model(entries: Sequence[Entry]) -> list[Table]:
    """The appendix' tables: distance by distance, model by model, attacks in the paper's order."""
    found = []
    for distance, label in dict.fromkeys((entry.distance, entry.label) for entry in entries):
        lines = [entry for entry in entries if (entry.distance, entry.label) == (distance, label)]
        clean = max(lines, key=lambda entry: entry.images)
        note = f"{label}: clean accuracy {100 * clean.clean_accuracy:.1f} % of {clean.images} images."
        found.append(Table(f"{name_of(distance)}, {label}", distance, label, lines, note))
    order = list(dict.fromkeys(entry.distance for entry in entries))
    return sorted(found, key=lambda table: order.index(table.distance))


def geometric(entries: Sequence[Entry]) -> list[Table]:
    """The summary tables: geometric means over the available models, the paper's over the same models.

    The note gives the paper's printed summary over all of its models and, where that differs, the mean of the paper's
    own rows: in four lines of its MNIST l2 summary, for example.
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
        found.append(Table(f"{name_of(distance)}, geometric mean", distance, "geometric mean", lines, note))
    return found


def _mean_line(parts: Sequence[Entry]) -> Entry:
    """The geometric means of one attack over models, and of its intervals' ends (as wide as they can be: the models see
    the same images); the paper's only where it has all of them."""
    papers = [entry.paper for entry in parts if entry.paper is not None]
    means: dict[str, Any] = {name: _mean(getattr(entry, name) for entry in parts) for name in NUMBERS}
    paper = _mean_of(papers) if len(papers) == len(parts) else None
    return replace(parts[0], images=min(entry.images for entry in parts), paper=paper, **means)


def own_mean(rows: dict[Key, Published], key: Key) -> Published:
    """The geometric means over all of the paper's models of the figures its appendix prints for them; ``key`` is a row
    of its summary."""
    return _mean_of([row for other, row in rows.items() if other[1] != SUMMARY and _same_line(other, key)])


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


def _same_line(one: Key, other: Key) -> bool:
    return (one[0], *one[2:]) == (other[0], *other[2:])


def _printed(entry: Entry) -> str:
    """An attack's line in the paper's summary and, where its appendix gives another mean, that one too."""
    rows, key = tables(), (entry.dataset, SUMMARY, entry.distance, entry.attack, entry.budget)
    if key not in rows:
        return ""
    printed, own = rows[key], own_mean(rows, key)
    text = f"{entry.title} {percent(printed.success, 2)} % / {figure(printed.median, 3)}"
    if own.success is not None and contradicts(printed, own):
        text += f" (the paper's own rows give {percent(own.success, 2)} % / {figure(own.median, 3)})"
    return text


def _mean_of(papers: Sequence[Published]) -> Published:
    return Published(*(_mean(getattr(paper, name) for paper in papers) for name in PAPER_NUMBERS))


def _mean(values: Iterable[float | None]) -> float | None:
    """The geometric mean, None where a value is infinite or missing."""
    known = list(values)
    numbers = [value for value in known if value is not None]
    mean = geometric_mean(numbers) if numbers and len(numbers) == len(known) else math.inf
    return mean if math.isfinite(mean) else None


def percent(value: float | None, places: int = 1) -> str:
    """A share in percent, a dash where there is none."""
    return DASH if value is None else f"{100 * value:.{places}f}"


def _interval(line: Entry) -> str:
    return "" if line.low is None or line.median is None else f"{figure(line.low, 3)} to {figure(line.high, 3)}"


def _passes(line: Entry | Published) -> str:
    return DASH if line.forwards is None or line.backwards is None else f"{line.forwards:.0f} / {line.backwards:.0f}"


def markdown(found: Sequence[Table]) -> str:
    """Each table under its title."""
    lines: list[str] = []
    head = ["| " + " | ".join(column.name for column in COLUMNS) + " |", "|:--|" + "--:|" * (len(COLUMNS) - 1)]
    for table in found:
        lines += [f"### {table.title}", "", *head]
        lines += ["| " + " | ".join(column.text(line) for column in COLUMNS) + " |" for line in table.lines]
        lines += ["", table.note, ""] if table.note else [""]
    return "\n".join(lines)


def comma_separated(found: Sequence[Table]) -> str:
    """One row per line, numbers in full; an empty median is infinite."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [*NUMBERS, *(f"paper_{name}" for name in PAPER_NUMBERS)]
    writer.writerow(("table", "distance", "model", "attack", "images", *names))
    for table in found:
        for line in table.lines:
            values = [getattr(line, name) for name in NUMBERS]
            values += [getattr(line.paper, name, None) for name in PAPER_NUMBERS]
            texts = map(plain_cell, (table.title, table.distance, table.model, line.title))
            writer.writerow([*texts, line.images, *("" if value is None else repr(float(value)) for value in values)])
    return out.getvalue()


def latex(found: Sequence[Table]) -> str:
    """One tabular per distance as in the paper's appendix: models, attacks, our figures and the published ones; needs
    booktabs."""
    lines = [r"% needs \usepackage{booktabs}"]
    for distance in dict.fromkeys(table.distance for table in found):
        head = ["Model", *(escape(column.name) for column in LATEX)]
        lines += [r"\begin{table}", r"    \centering", r"    \begin{tabular}{ll" + "r" * (len(head) - 2) + "}"]
        lines += [r"    \toprule", "    " + " & ".join(head) + r" \\"]
        for table in (table for table in found if table.distance == distance):
            lines.append(r"    \midrule")
            for place, line in enumerate(table.lines):
                row = [escape(table.model) if place == 0 else "", *(_tex(column.text(line)) for column in LATEX)]
                lines.append("    " + " & ".join(row) + r" \\")
        key = measure_of(distance)
        name = DISTANCES[key].tex if key in DISTANCES else escape(distance)
        lines += [r"    \bottomrule", r"    \end{tabular}"]
        lines += [rf"    \caption{{{name}: our runs and the published figures.}}", r"\end{table}", ""]
    return "\n".join(lines)


def web(found: Sequence[Table]) -> str:
    """The tables as HTML."""
    parts = []
    head = "".join(f"<th>{html.escape(column.name)}</th>" for column in COLUMNS)
    for table in found:
        rows = ["".join(f"<td>{html.escape(column.text(line))}</td>" for column in COLUMNS) for line in table.lines]
        body = "".join(f"<tr>{row}</tr>\n" for row in rows)
        note = f"<p>{html.escape(table.note)}</p>\n" if table.note else ""
        parts.append(f"<h3>{html.escape(table.title)}</h3>\n<div><table><tr>{head}</tr>\n{body}</table></div>\n{note}")
    return "\n".join(parts)


def _tex(text: str) -> str:
    mantissa, e, exponent = text.partition("e-")
    return rf"${mantissa}\cdot 10^{{-{int(exponent)}}}$" if e and exponent.isdigit() else escape(text)
