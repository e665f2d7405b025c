"""Tables in the paper's layout, its numbers beside ours: one per model and distance, and geometric means over the
models. No torch here."""

from __future__ import annotations

import csv
import html
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..report.formats import figure
from ..report.labels import DISTANCES
from ..report.numbers import geometric_mean
from ..report.published import Key, Published, tables
from ..report.tex import escape
from ..runs.store.records import plain_cell
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
    """The geometric means of one attack over models; the paper's only where it has all of them."""
    papers = [entry.paper for entry in parts if entry.paper is not None]
    success, median, forwards, backwards = (
        _over([getattr(entry, name) for entry in parts]) for name in ("success", "median", "forwards", "backwards")
    )
    paper = _mean_of(papers) if len(papers) == len(parts) else None
    fewest = min(entry.images for entry in parts)
    return Line(parts[0].cell.title, fewest, success, median, None, None, forwards, backwards, paper)


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
    text = f"{entry.cell.title} {_percent(printed.success, 2)} % / {figure(printed.median, 3)}"
    if own.success is not None and contradicts(printed, own):
        text += f" (the paper's own rows give {_percent(own.success, 2)} % / {figure(own.median, 3)})"
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


HEAD = (
    "Attack",
    "Images",
    "Success %",
    "Median",
    "95 % interval",
    "Forwards / backwards",
    "Paper: success %",
    "Paper: median",
    "Paper: F / B",
    "Ratio",
)


def cells_of(line: Line) -> list[str]:
    """A line as text, in the order of ``HEAD``."""
    interval = (
        f"{figure(line.low, 3)} to {figure(line.high, 3)}" if line.low is not None and line.median is not None else ""
    )
    ours = [
        line.attack,
        str(line.images),
        _percent(line.success),
        figure(line.median),
        interval,
        _passes(line.forwards, line.backwards),
    ]
    if line.paper is None:
        return [*ours, "", "", "", ""]
    ratio = "" if line.ratio is None else f"{line.ratio:.3f}"
    paper = line.paper
    return [*ours, _percent(paper.success, 2), figure(paper.median, 3), _passes(paper.forwards, paper.backwards), ratio]


def markdown(found: Sequence[Table]) -> str:
    """Each table under its title."""
    lines: list[str] = []
    for table in found:
        lines += [f"### {table.title}", "", "| " + " | ".join(HEAD) + " |", "|:--|" + "--:|" * (len(HEAD) - 1)]
        lines += ["| " + " | ".join(cells_of(line)) + " |" for line in table.lines]
        lines += ["", table.note, ""] if table.note else [""]
    return "\n".join(lines)


def comma_separated(found: Sequence[Table]) -> str:
    """One row per line, numbers in full; an empty median is infinite."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = ("success", "median", "low", "high", "forwards", "backwards")
    writer.writerow(
        (
            "table",
            "distance",
            "model",
            "attack",
            "images",
            *names,
            "paper_success",
            "paper_median",
            "paper_forwards",
            "paper_backwards",
        )
    )
    for table in found:
        for line in table.lines:
            paper = line.paper or Published(None, None, None, None)
            values = [
                *(getattr(line, name) for name in names),
                paper.success,
                paper.median,
                paper.forwards,
                paper.backwards,
            ]
            numbers = ["" if value is None else repr(float(value)) for value in values]
            writer.writerow(
                [*map(plain_cell, (table.title, table.distance, table.model, line.attack)), line.images, *numbers]
            )
    return out.getvalue()


def latex(found: Sequence[Table]) -> str:
    """One tabular per distance as in the paper's appendix: models, attacks, and after our figures the published ones;
    needs booktabs."""
    lines = [r"% needs \usepackage{booktabs}"]
    for distance in dict.fromkeys(table.distance for table in found):
        lines += [r"\begin{table}", r"    \centering", r"    \begin{tabular}{llrrrrrr}", r"    \toprule"]
        head = [
            "Model",
            "Attack",
            r"ASR (\%)",
            "Median",
            "Forwards / Backwards",
            r"Paper: ASR (\%)",
            "Paper: median",
            "Paper: F / B",
        ]
        lines.append("    " + " & ".join(head) + r" \\")
        for table in (table for table in found if table.distance == distance):
            lines.append(r"    \midrule")
            for place, line in enumerate(table.lines):
                ours = [_percent(line.success), figure(line.median), _passes(line.forwards, line.backwards)]
                paper = line.paper
                theirs = (
                    [_percent(paper.success, 2), figure(paper.median, 3), _passes(paper.forwards, paper.backwards)]
                    if paper
                    else [""] * 3
                )
                row = [
                    escape(table.model) if place == 0 else "",
                    escape(line.attack.replace("×", "x")),
                    *(_tex(cell) for cell in [*ours, *theirs]),
                ]
                lines.append("    " + " & ".join(row) + r" \\")
        key = "ciede2000-paper" if distance == "ciede2000" else distance
        name = DISTANCES[key].tex if key in DISTANCES else escape(distance)
        lines += [
            r"    \bottomrule",
            r"    \end{tabular}",
            rf"    \caption{{{name}: our runs and the published figures.}}",
            r"\end{table}",
            "",
        ]
    return "\n".join(lines)


def web_tables(found: Sequence[Table]) -> str:
    """The tables as HTML."""
    parts = []
    for table in found:
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in HEAD)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells_of(line)) + "</tr>\n"
            for line in table.lines
        )
        note = f"<p>{html.escape(table.note)}</p>\n" if table.note else ""
        parts.append(f"<h3>{html.escape(table.title)}</h3>\n<div><table><tr>{head}</tr>\n{body}</table></div>\n{note}")
    return "\n".join(parts)


def _tex(text: str) -> str:
    mantissa, e, exponent = text.partition("e-")
    return "--" if text == DASH else rf"${mantissa}\cdot 10^{{-{int(exponent)}}}$" if e else text


def _percent(value: float | None, places: int = 1) -> str:
    return DASH if value is None else f"{100 * value:.{places}f}"


def _passes(forwards: float | None, backwards: float | None) -> str:
    return DASH if forwards is None or backwards is None else f"{forwards:.0f} / {backwards:.0f}"
