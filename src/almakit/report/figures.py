"""Figures for papers, made with matplotlib: robust-accuracy curves as in the ALMA paper. No torch here."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import optional
from ..runs.store.files import write_bytes
from ..runs.threat import goal_name, resisted
from . import palette
from .labels import DISTANCES, distance_name
from .numbers import Array
from .results import Results
from .subjects import Group, Subject, groups_of

POINTS = 3000  # largest number of points of a curve
STYLE = {
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "grid.color": "#E4E4DF",
    "grid.linewidth": 0.5,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "almakit",
    "figure.dpi": 150,
    "axes.axisbelow": True,
}
LINES = {"solid": "-", "dashed": (0, (5, 2)), "dotted": (0, (1, 1.3))}
MARKS = ("", "o", "s", "^", "D")
PANEL = (3.3, 2.35)  # inches; two panels have the width of a page
CHARACTERS = 16  # of a legend in an inch
KINDS = ("svg", "pdf", "png")


def plotting() -> Any:
    """matplotlib's pyplot with a backend that draws into files."""
    matplotlib = optional("matplotlib", "figures need matplotlib; install it with `pip install 'almakit[report]'`.")
    if "matplotlib.pyplot" not in sys.modules:  # keep the backend of a notebook
        matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot

    return pyplot


def literal(text: str) -> str:
    """Untrusted text, escaped so that matplotlib does not read it as mathematics."""
    return text.replace("\\", "").replace("$", r"\$")


def mathematical(distance: str) -> str:
    """A known distance in mathematical notation, any other by its name."""
    return distance_name(distance).tex if distance in DISTANCES else literal(distance)


def draw_curves(subjects: Sequence[Subject], out: Path, kinds: Sequence[str] = KINDS) -> list[Path]:
    """``curves.*``: robust accuracy, one row per distance and goal, one column per model, one colour per method. The
    line of the largest budget is solid, that of the smallest dotted."""
    pyplot, groups = plotting(), groups_of(subjects) or [("", "")]
    columns = [column for subject in subjects for column in subject.columns]
    styles = {
        method: {"color": palette.SERIES_LIGHT[colour], "marker": MARKS[mark]}
        for place, method in enumerate(dict.fromkeys(column.label.method for column in columns))
        for colour, mark in [palette.slot(place)]
    }
    handles: dict[str, Any] = {}
    lines = math.ceil(len(columns) / (2 * len(subjects)))
    size = (PANEL[0] * len(subjects), PANEL[1] * len(groups) + 0.14 * lines + 0.3)
    with pyplot.rc_context(STYLE):
        figure, panels = pyplot.subplots(len(groups), len(subjects), figsize=size, squeeze=False, layout="constrained")
        for row, group in enumerate(groups):
            for axes, subject in zip(panels[row], subjects, strict=True):
                handles |= _curves(axes, subject, group, styles)
                axes.set_title(literal(subject.name) if row == 0 else "")
            panels[row][0].set_ylabel(_height(group[1]))
        if handles:
            fitting = int(CHARACTERS * size[0] / (6 + max(map(len, handles))))
            across = max(1, min(math.ceil(len(handles) / 2), 3 * len(subjects), fitting))
            figure.legend(handles.values(), map(literal, handles), loc="outside lower center", ncols=across)
        written = [save_figure(figure, out / f"curves.{kind}") for kind in kinds]
        pyplot.close(figure)
    return written


def _height(goal: str) -> str:
    """The label of the vertical axis."""
    words = goal_name(goal) if goal.startswith("[") else goal
    return f"{resisted(goal_name(goal))} (%)" + (f"\n{literal(words)}" if goal else "")


def _curves(axes: Any, subject: Subject, group: Group, styles: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Draw one model's attacks of a distance and goal. Returns the handles of the legend by label."""
    together, handles = subject.groups.get(group), dict[str, Any]()
    columns = together.attacks if together else ()
    found = [np.sort(values[~np.isnan(values)]) for values in (column.by_image for column in columns)]
    minimal = [values for column, values in zip(columns, found, strict=True) if column.info.minimal]
    edge = extent(minimal, [column.reach for column in columns if not column.info.minimal])
    for column, values in zip(columns, found, strict=True):
        style = styles[column.label.method]
        if not column.info.minimal:
            handles[column.label.label] = _mark(axes, column, style)
            continue
        xs, ys = steps(values, edge)
        xs, ys = (part[xs >= column.stop] for part in (xs, ys))  # there are no results for smaller radii
        look = {"linestyle": LINES[column.label.dash], "drawstyle": "steps-post", "markersize": 3, "markevery": 0.12}
        (handles[column.label.label],) = axes.plot(xs, ys, **look, **style)
    certified = subject.certified_curve(group)
    if certified is not None and columns:
        best = np.sort(np.fmin.reduce([column.by_image for column in columns]))
        xs = np.unique(np.concatenate([steps(part, edge)[0] for part in (certified, best)]))
        low, high = (
            100 * (len(part) - np.searchsorted(part, xs, side="right")) / len(part) for part in (certified, best)
        )
        band = axes.fill_between(xs, low, np.maximum(low, high), step="post", color="#8A8A84", alpha=0.18, linewidth=0)
        axes.plot(xs, low, color="#6A6A64", linewidth=0.9, drawstyle="steps-post")
        handles["between certified and found"] = band
    axes.set(xlim=(0, edge), ylim=(0, 100))
    axes.set_xlabel(f"{mathematical(group[0])} perturbation $\\epsilon$" if group[0] else "")
    if not any(map(len, found)):
        axes.text(0.5, 0.5, "nothing yet", ha="center", transform=axes.transAxes)
    return handles


def _mark(axes: Any, column: Results, style: dict[str, Any]) -> Any:
    """The marker of an attack at a fixed radius: robust accuracy with its interval."""
    (row,) = column.numbers["robust_accuracy"]
    value, low, high = (100 * (math.nan if row[key] is None else row[key]) for key in ("value", "low", "high"))
    ends = [[max(value - low, 0.0)], [max(high - value, 0.0)]]
    look = {"markersize": 4, "linestyle": "none", "capsize": 2, "linewidth": 1.0}
    style = style | {"marker": style["marker"] or "o"}
    return axes.errorbar([row["epsilon"]], [value], yerr=ends, **look, **style)


def extent(sorted_distances: Sequence[Array], radii: Sequence[float] = ()) -> float:
    """The end of the horizontal axis: beyond all distances of attacks that minimise it, and all fixed radii."""
    furthest = [float(finite.max()) for values in sorted_distances if len(finite := values[np.isfinite(values)])]
    end = max([*furthest, *radii], default=0.0)
    return 1.02 * end if end > 0 else 1.0


def steps(distances: Array, edge: float) -> tuple[Array, Array]:
    """The robust-accuracy curve of sorted ``distances`` (N,) from 0 to ``edge``: places and percentages after each."""
    count = len(distances)
    if not count:
        return np.array([0.0, edge]), np.array([np.nan, np.nan])
    inside = distances[(distances <= edge)]
    if len(inside) > POINTS:
        inside = inside[np.linspace(0, len(inside) - 1, POINTS).astype(np.int64)]
    xs = np.concatenate([[0.0], inside, [edge]])
    return xs, 100.0 * (count - np.searchsorted(distances, xs, side="right")) / count


def save_figure(figure: Any, place: Path) -> Path:
    """Save a figure without dates, so that equal numbers give equal files. Replaces an existing file, also a link."""
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(place.suffix)
    drawn = io.BytesIO()
    figure.savefig(drawn, format=place.suffix[1:], metadata=metadata, dpi=200)
    write_bytes(place, drawn.getvalue())
    return place
