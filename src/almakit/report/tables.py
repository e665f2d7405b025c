"""Numbers as text: columns aligned for a terminal, and the words that say what was counted. No torch here."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from ..radius import same
from ..runs.threat import resisted
from .brackets import words
from .labels import radius


def text_table(header: Sequence[str], rows: Sequence[Sequence[object]], left: Sequence[int] = (0,)) -> str:
    """Rows under a header, columns aligned; those in ``left`` to the left, the others to the right."""
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def fitted_table(header: Sequence[str], rows: Sequence[Sequence[object]], left: Sequence[int], width: int) -> str:
    """A ``text_table`` no wider than ``width``: the widest columns are wrapped into several lines."""
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    least = [max(len(word) for row in cells for word in row[column].split() or [""]) for column in range(len(header))]
    while sum(widths) + 2 * (len(widths) - 1) > width and any(
        here > few for here, few in zip(widths, least, strict=True)
    ):
        widest = max(
            (here, column) for column, (here, few) in enumerate(zip(widths, least, strict=True)) if here > few
        )[1]
        widths[widest] -= 1
    lines = []
    for number_of_row, row in enumerate(cells):
        parts = [
            textwrap.wrap(cell, size, break_long_words=False, break_on_hyphens=False) or [""]
            for cell, size in zip(row, widths, strict=True)
        ]
        for line in range(max(map(len, parts))):
            texts = [part[line] if line < len(part) else "" for part in parts]
            lines.append(
                "  ".join(
                    text.ljust(size) if place in left else text.rjust(size)
                    for place, (text, size) in enumerate(zip(texts, widths, strict=True))
                ).rstrip()
            )
        if not number_of_row:
            lines.append("  ".join("-" * size for size in widths))
    return "\n".join(lines)


def number(value: float | None, infinite: str = "inf") -> str:
    """Four significant digits; null is infinite for a distance."""
    return infinite if value is None else f"{value:.4g}"


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def run_table(summary: dict[str, Any]) -> str:
    """A run's numbers for a terminal."""
    run, clean = summary["run"], summary["clean_accuracy"]
    head = [
        f"{run['model']} on {run['data']}: {summary['images']} {_noun(summary)}, {summary['clean_name']} "
        f"{percent(clean['value'])} % "
        f"({percent(clean['low'])} to {percent(clean['high'])})",
        f"Threat model: {run['threat_model']}.",
    ]
    head += [
        f"Preflight, {part['name']}: {part['sentence']} {part['way_out']}"
        for part in summary["findings"]
        if part["severity"] != "note"
    ]
    if "pixels" in summary:
        head[0] += f", mIoU {percent(summary['pixels']['mean_iou'])} %"
    rounded = "features" not in summary  # to 8 bits, as image files are
    header: tuple[str, ...] = (
        "attack",
        "success %",
        "median",
        "95 % interval",
        "attacked",
        *(("8-bit %", "8-bit median") if rounded else ()),
        "optimal %",
        "forwards",
        "backwards",
        "s/image",
    )
    rows = [_row(part, rounded) for part in summary["attacks"]]
    if any("surrogate_forwards" in part for part in summary["attacks"]):
        header = (*header, "surrogate's")
        lent = [part.get("surrogate_forwards", {}).get("mean") for part in summary["attacks"]]
        rows = [(*row, number(mean, "-")) for row, mean in zip(rows, lent, strict=True)]
    if any("certified" in part for part in summary["attacks"]):
        header = (*header, "certified ≥", "gap")
        rows = [(*row, *words(part.get("certified"))) for row, part in zip(rows, summary["attacks"], strict=True)]
    lines = [*head, "", text_table(header, rows), "", *_robust(summary)]
    lines += _notes(summary)
    return "\n".join(lines)


def _noun(summary: dict[str, Any]) -> str:
    return "rows" if "features" in summary else "images"


def _row(part: dict[str, Any], rounded: bool) -> tuple[str, ...]:
    middle, missing = (
        part["median_all"],
        "inf" if part["minimal"] else "-",
    )  # at a fixed radius there is no smallest distance
    seconds = part["seconds"]["per_image"]
    return (
        part["name"],
        percent(part["success_rate"]["value"]),
        number(middle["value"], missing),
        f"{number(middle['low'])} to {number(middle['high'])}" if part["minimal"] else "-",
        number(part["median_attacked"]["value"], missing if part["attacked"] else "-"),
        *(
            (percent(part["success_rate_8bit"]["value"]), number(part["median_all_8bit"]["value"], missing))
            if rounded
            else ()
        ),
        percent(part.get("optimality", {}).get("value")),
        number(part["forwards"]["mean"], "-"),
        number(part["backwards"]["mean"], "-"),
        number(seconds, "-"),
    )


def _robust(summary: dict[str, Any]) -> list[str]:
    """Robust accuracy at the run's radii, one small table for each distance."""
    lines = []
    for worst in summary.get("worst_case", ()):
        radii, parts = (
            summary["radii"][worst["distance"]],
            [part for part in summary["attacks"] if part["distance"] == worst["distance"]],
        )
        if not radii:
            continue
        header = (
            f"{resisted(worst['goal'])} %, {worst['goal']}",
            *(f"{worst['distance']} <= {radius(epsilon, worst['distance'])}" for epsilon in radii),
        )
        rows = [(part["name"], *_at(part["robust_accuracy"], radii)) for part in parts]
        rows += [("all attacks", *_at(worst["robust_accuracy"], radii))] if len(parts) > 1 else []
        lines += [text_table(header, rows), ""]
    return lines


def _at(rows: Sequence[dict[str, Any]], radii: Sequence[float]) -> list[str]:
    found = []
    for epsilon in radii:
        near = [row for row in rows if same(row["epsilon"], epsilon) and row["value"] is not None]
        found.append(
            f"{percent(near[0]['value'])} ({percent(near[0]['low'])} to {percent(near[0]['high'])})" if near else "-"
        )
    return found


def _notes(summary: dict[str, Any]) -> list[str]:
    many = any(part["over"] == "records" for part in summary["attacks"])
    noun, done = _noun(summary), "reached when clean" if "reached" in summary["clean_name"] else "already wrong"
    over = "records, one for each image and target" if many else noun
    lines = [
        f"success, median: over all {over} ({done} counts 0, nothing found inf). "
        f"attacked: median over the {noun} the attack had to work on, as are forwards and backwards.",
        ("" if "features" in summary else "8-bit: after rounding to 8 bits. ")
        + f"optimal: against the best distance known for each of the {noun} in this run.",
    ]
    if any("surrogate_forwards" in part for part in summary["attacks"]):
        lines.append("surrogate's: forwards of the surrogate, whose are all backwards.")
    if any("certified" in part for part in summary["attacks"]):
        lines.append(
            "certified: the median radius, over the images the attack had to work on, within which the model "
            "provably keeps its class; gap: how much "
            "of the found distance lies above it, in the median; not certified: less than a tenth of it."
        )
    for part in summary["attacks"]:
        status = part["status"]
        if not part["minimal"]:
            at = f"{part['distance']} <= {radius(part['epsilon'], part['distance'])}"
            lines.append(
                f"{part['name']}: {status['robust']} of {part['records']} {part['over']} resist at {at}, "
                "the one radius it looks at; success is the share it breaks there, and it has no median."
            )
        failed = status.get("failed", 0) + status["invalid"]
        if failed:
            lines.append(
                f"{part['name']}: nothing found for {failed} of {part['records']} records"
                + (f" ({status['invalid']} without finite logits)" if status["invalid"] else "")
                + "."
            )
        if part["refuted"]:
            lines.append(
                f"{part['name']}: the verdict refutes {part['refuted']} claimed successes; they count as not found."
            )
        if part.get("pixels", {}).get("images"):
            after = part["pixels"]
            lines.append(
                f"{part['name']}: on the {after['images']} images it left, accuracy over pixels "
                f"{percent(after['accuracy'])} %, "
                f"mIoU {percent(after['mean_iou'])} %, wrong pixels {percent(after['wrong'])} % in the mean."
            )
        if "best_target" in part:
            nearest = part["best_target"]
            lines.append(
                f"{part['name']}, nearest target of each image: success {percent(nearest['success_rate'])} %, median "
                f"{number(nearest['median'])}."
            )
    for row in summary.get("failed_chunks", ()):
        what = "the clean pass" if row["attack"] < 0 else summary["attacks"][row["attack"]]["name"]
        lines.append(
            f"Chunk {row['chunk']} ({row['images']} images) was given up by {what} after {row['tries']} tries: "
            f"{row['reason']}"
        )
    if not summary["complete"]:
        lines.append(
            f"This run is not finished: {summary['missing_records']} records are missing; the same command resumes it."
        )
    return lines
