"""The tables of ``layout`` as text: markdown, comma-separated, LaTeX, HTML. No torch here."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Sequence

from ..report.formats import figure
from ..report.labels import DISTANCES
from ..report.published import Published
from ..report.tex import escape
from ..runs.store.records import plain_cell
from .layout import DASH, Line, Table, percent

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
        percent(line.success),
        figure(line.median),
        interval,
        _passes(line.forwards, line.backwards),
    ]
    if line.paper is None:
        return [*ours, "", "", "", ""]
    ratio = "" if line.ratio is None else f"{line.ratio:.3f}"
    paper = line.paper
    return [*ours, percent(paper.success, 2), figure(paper.median, 3), _passes(paper.forwards, paper.backwards), ratio]


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
                ours = [percent(line.success), figure(line.median), _passes(line.forwards, line.backwards)]
                paper = line.paper
                theirs = (
                    [percent(paper.success, 2), figure(paper.median, 3), _passes(paper.forwards, paper.backwards)]
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


def _passes(forwards: float | None, backwards: float | None) -> str:
    return DASH if forwards is None or backwards is None else f"{forwards:.0f} / {backwards:.0f}"
