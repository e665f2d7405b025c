"""The main table as Markdown, CSV and LaTeX (booktabs), with bootstrap intervals, the smallest median of a block in bold. No torch here."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from ..eval.records import plain_cell
from ..eval.threat import goal_name
from .blocks import Block, Row, over
from .labels import distance_name
from .tex import escape

INFINITE = "–"
CSV_HEADER = (
    "model", "distance", "goal", "attack", "text", "images", "success_rate", "median", "median_low", "median_high", "median_attacked",
    "forwards", "backwards", "seconds_per_image", "optimality", "success_rate_8bit", "median_8bit", "paper_success_rate", "paper_median",
)  # fmt: skip


def figure(value: float | None, digits: int = 4) -> str:
    """A distance for print, always with as many digits; a dash where it is infinite."""
    if value is None:
        return INFINITE
    if value == 0:
        return "0"
    text = f"{value:#.{digits}g}" if 1e-3 <= abs(value) < 1e6 else f"{value:.{max(digits - 2, 0)}e}"
    return text.removesuffix(".")


def with_error(row: Row) -> tuple[str, str]:
    """The median and the half width of its interval, to the same number of places."""
    if row.median is None:
        return INFINITE, ""
    text, half = figure(row.median), row.half_width
    if half is None:
        return text, ""
    if "e" in text:
        return text, f"{half:.1e}"
    places = len(text.partition(".")[2])
    return text, f"{half:.{places}f}"


def _percent(value: float | None) -> str:
    return INFINITE if value is None else f"{100 * value:.1f}"


def _passes(row: Row) -> str:
    if row.forwards is None or row.backwards is None:
        return INFINITE
    return f"{row.forwards:.0f} / {row.backwards:.0f}"


def markdown(blocks: Sequence[Block]) -> str:
    """One table per model."""
    papers = any(row.paper for block in blocks for row in block.rows)
    head = [
        "Distance",
        "Attack",
        "Success %",
        "Median",
        "Attacked only",
        "Forwards / backwards",
        "s / image",
        "Optimality %",
        "8 bits %",
    ]
    head += ["Paper: success %", "Paper: median"] if papers else []
    lines: list[str] = []
    for model in dict.fromkeys(block.model for block in blocks):
        lines += [f"### {_md(model)}", "", "| " + " | ".join(head) + " |", "|:--|:--|" + "--:|" * (len(head) - 2)]
        for block in blocks:
            if block.model != model:
                continue
            for place, row in enumerate(block.rows):
                text, half = with_error(row)
                middle = f"{text} ± {half}" if half else text
                cells = [
                    _md(distance_name(block.distance).label + block.words) if place == 0 else "",
                    _md(row.label),
                    _percent(row.success),
                ]
                cells += [
                    f"**{middle}**" if row.best else middle,
                    figure(row.median_attacked),
                    _passes(row),
                    figure(row.seconds, 3),
                ]
                cells += [_percent(row.optimality), _percent(row.success_8bit)]
                if papers:
                    cells += [_percent(row.paper.success), figure(row.paper.median)] if row.paper else ["", ""]
                lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    lines.append(f"Median over all {over(blocks)} ± the larger side of its 95 % bootstrap interval; bold: the smallest of its block; "
                 "–: nothing found for half of the images or more.")  # fmt: skip
    return "\n".join(lines) + "\n"


def _md(text: str) -> str:
    for character in "\\`*_[]":
        text = text.replace(character, "\\" + character)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("|", "\\|").replace("\n", " ")


def comma_separated(blocks: Sequence[Block]) -> str:
    """One row per model and attack, numbers in full; an empty distance is infinite."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_HEADER)
    for block in blocks:
        for row in block.rows:
            numbers = (
                row.success, row.median, row.low, row.high, row.median_attacked, row.forwards, row.backwards, row.seconds, row.optimality,
                row.success_8bit, row.median_8bit, *((row.paper.success, row.paper.median) if row.paper else (None, None)),
            )  # fmt: skip
            texts = (block.model, block.distance, goal_name(block.goal), row.label, row.text)
            writer.writerow(
                [*map(plain_cell, texts), row.images, *("" if value is None else repr(float(value)) for value in numbers)]
            )
    return out.getvalue()


def latex(blocks: Sequence[Block]) -> str:
    """One tabular per model in the paper's layout; needs the package booktabs."""
    papers = any(row.paper for block in blocks for row in block.rows)
    lines = [r"% needs \usepackage{booktabs}"]
    for model in dict.fromkeys(block.model for block in blocks):
        mine = [block for block in blocks if block.model == model]
        lines += [
            r"\begin{table}",
            r"    \centering",
            r"    \begin{tabular}{llrrrrr" + ("rr" if papers else "") + "}",
            r"    \toprule",
        ]
        head = ["Distance", "Attack", r"ASR (\%)", "Median", "Forwards / Backwards", "s / image", r"Optimality (\%)"]
        lines += ["    " + " & ".join(head + ([r"Paper: ASR (\%)", "Paper: median"] if papers else [])) + r" \\"]
        for block in mine:
            lines.append(r"    \midrule")
            for place, row in enumerate(block.rows):
                cells = [
                    distance_name(block.distance).tex + escape(block.words) if place == 0 else "",
                    escape(row.label),
                    _tex(_percent(row.success)),
                    _tex_median(row),
                ]
                cells += [_tex(_passes(row)), _tex(figure(row.seconds, 3)), _tex(_percent(row.optimality))]
                if papers:
                    cells += (
                        [_tex(_percent(row.paper.success)), _tex(figure(row.paper.median))] if row.paper else ["", ""]
                    )
                lines.append("    " + " & ".join(cells) + r" \\")
        caption = f"Attacks on {escape(model)}. Median over all {over(mine)} with the larger side of its 95\\,\\% bootstrap interval."
        lines += [r"    \bottomrule", r"    \end{tabular}", rf"    \caption{{{caption}}}", r"\end{table}", ""]
    return "\n".join(lines)


def _tex_median(row: Row) -> str:
    text, half = with_error(row)
    if text == INFINITE:
        return "--"
    middle = rf"\mathbf{{{_power(text)}}}" if row.best else _power(text)
    return f"${middle} \\pm {_power(half)}$" if half else f"${middle}$"


def _power(text: str) -> str:
    mantissa, e, exponent = text.partition("e")
    return rf"{mantissa}\cdot 10^{{{int(exponent)}}}" if e else text


def _tex(text: str) -> str:
    return "--" if text == INFINITE else f"${_power(text)}$" if "e" in text else text
