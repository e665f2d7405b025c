"""The main table as Markdown, CSV and LaTeX (booktabs), with bootstrap intervals, the smallest median of a block in
bold. No torch here."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from ..runs.store.records import plain_cell
from ..runs.threat import goal_name, resisted_by
from .blocks import Block, Row, most_radii, over, with_certified
from .labels import distance_name, radius
from .numbers import Value
from .tex import escape

INFINITE = "–"
CSV_HEADER = (
    "model",
    "distance",
    "goal",
    "attack",
    "text",
    "images",
    "success_rate",
    "median",
    "median_low",
    "median_high",
    "median_attacked",
    "forwards",
    "backwards",
    "seconds_per_image",
    "optimality",
    "success_rate_8bit",
    "median_8bit",
    "paper_success_rate",
    "paper_median",
    "certified_median",
    "certified_share",
)
TOGETHER = "all attacks"
ROBUST_CSV = ("epsilon_{}", "robust_accuracy_{}", "robust_accuracy_{}_low", "robust_accuracy_{}_high")
"""Columns for the first radius of a row's distance, the second and so on."""

CERTIFIED_NOTE = (
    "Certified: the median radius, over the images the attack had to work on, within which the model provably keeps "
    "its class; gap: the share of the found distance above it, in the median; not certified: less than a tenth of it."
)


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
    certified, what = with_certified(blocks), resisted_by({block.goal for block in blocks})
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
    many = most_radii(blocks)
    head += [f"{what.capitalize()} % (ε)"] * many + (["Certified ≥", "Gap"] if certified else [])
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
                cells += [*_robust(block, row.robust, many), *(row.certified if certified else ())]
                if papers:
                    cells += [_percent(row.paper.success), figure(row.paper.median)] if row.paper else ["", ""]
                lines.append("| " + " | ".join(cells) + " |")
            if block.worst is not None and block.radii:
                cells = ["", TOGETHER, *[""] * 7, *_robust(block, block.worst, many), *[""] * 2 * (certified + papers)]
                lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    lines.append(
        f"Median over all {over(blocks)} ± the larger side of its 95 % bootstrap interval; bold: the "
        "smallest of its block; "
        "–: nothing found for half of the images or more, or not defined. "
        f"{what.capitalize()} within ε with the larger side of its interval; {TOGETHER}: the share that resists "
        "every attack of its block." + (f" {CERTIFIED_NOTE}" if certified else "")
    )
    return "\n".join(lines) + "\n"


def _robust(block: Block, values: Sequence[Value | None], many: int) -> list[str]:
    """Robust accuracy at the block's radii, each with its radius, filled up to as many cells as the table has for
    it."""
    cells = [
        INFINITE
        if value is None
        else f"{_percent(value['value'])} ± {_side(value)} ({radius(epsilon, block.distance)})"
        for epsilon, value in zip(block.radii, values, strict=True)
    ]
    return cells + [""] * (many - len(cells))


def _side(value: Value) -> str:
    middle, low, high = (100 * (value[key] or 0.0) for key in ("value", "low", "high"))
    return f"{max(high - middle, middle - low):.1f}"


def _md(text: str) -> str:
    for character in "\\`*_[]":
        text = text.replace(character, "\\" + character)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("|", "\\|").replace("\n", " ")


def comma_separated(blocks: Sequence[Block]) -> str:
    """One row per model and attack, numbers in full; an empty distance is infinite."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    many = most_radii(blocks)
    writer.writerow([*CSV_HEADER, *(name.format(place + 1) for place in range(many) for name in ROBUST_CSV)])
    for block in blocks:
        for row in block.rows:
            numbers = (
                row.success,
                row.median,
                row.low,
                row.high,
                row.median_attacked,
                row.forwards,
                row.backwards,
                row.seconds,
                row.optimality,
                row.success_8bit,
                row.median_8bit,
                *((row.paper.success, row.paper.median) if row.paper else (None, None)),
                row.certified_value,
                row.certified_share,
            )
            texts = (block.model, block.distance, goal_name(block.goal), row.label, row.text)
            writer.writerow(
                [*map(plain_cell, texts), row.images, *map(_cell, numbers), *_robust_csv(block, row.robust, many)]
            )
        if block.worst is not None and block.radii:
            texts = (block.model, block.distance, goal_name(block.goal), TOGETHER, "")
            empty = [""] * (len(CSV_HEADER) - len(texts))
            writer.writerow([*map(plain_cell, texts), *empty, *_robust_csv(block, block.worst, many)])
    return out.getvalue()


def _cell(value: float | None) -> str:
    return "" if value is None else repr(float(value))


def _robust_csv(block: Block, values: Sequence[Value | None], many: int) -> list[str]:
    cells = []
    for epsilon, value in zip(block.radii, values, strict=True):
        cells += [
            repr(float(epsilon)),
            *(["", "", ""] if value is None else [_cell(value[key]) for key in ("value", "low", "high")]),
        ]
    return cells + [""] * (len(ROBUST_CSV) * many - len(cells))


def latex(blocks: Sequence[Block]) -> str:
    """One tabular per model in the paper's layout; needs the package booktabs."""
    papers, certified = any(row.paper for block in blocks for row in block.rows), with_certified(blocks)
    lines = [r"% needs \usepackage{booktabs}"]
    for model in dict.fromkeys(block.model for block in blocks):
        mine = [block for block in blocks if block.model == model]
        many = most_radii(mine)
        lines += [
            r"\begin{table}",
            r"    \centering",
            r"    \begin{tabular}{llrrrrr" + "r" * many + "rr" * (certified + papers) + "}",
            r"    \toprule",
        ]
        head = ["Distance", "Attack", r"ASR (\%)", "Median", "Forwards / Backwards", "s / image", r"Optimality (\%)"]
        head += [r"Robust acc. (\%, $\epsilon$)"] * many + ([r"Certified $\geq$", "Gap"] if certified else [])
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
                cells += [
                    *map(_tex_robust, _robust(block, row.robust, many)),
                    *(map(escape, row.certified) if certified else ()),
                ]
                if papers:
                    cells += (
                        [_tex(_percent(row.paper.success)), _tex(figure(row.paper.median))] if row.paper else ["", ""]
                    )
                lines.append("    " + " & ".join(cells) + r" \\")
            if block.worst is not None and block.radii:
                cells = [
                    "",
                    TOGETHER,
                    *[""] * 5,
                    *map(_tex_robust, _robust(block, block.worst, many)),
                    *[""] * 2 * (certified + papers),
                ]
                lines.append("    " + " & ".join(cells) + r" \\")
        caption = (
            f"Attacks on {escape(model)}. Median over all {over(mine)} with the larger side of its 95\\,\\% "
            "bootstrap interval."
        )
        caption += f" {escape(CERTIFIED_NOTE)}" if certified else ""
        lines += [r"    \bottomrule", r"    \end{tabular}", rf"    \caption{{{caption}}}", r"\end{table}", ""]
    return "\n".join(lines)


def _tex_robust(cell: str) -> str:
    value, _, at = cell.partition(" (")
    return _tex(cell) if not at else f"${value.replace('±', chr(92) + 'pm')}$ (${at.removesuffix(')')}$)"


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
