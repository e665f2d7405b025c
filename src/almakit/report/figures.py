"""Figures for papers, made with matplotlib: robust-accuracy curves as in the ALMA paper, distance against queries,
and a gallery of images. No torch here."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import optional
from ..runs.store.files import write_bytes
from ..runs.threat import goal_name, resisted
from . import palette, pictures
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
GALLERY_ROWS, GALLERY_ATTACKS = 8, 4
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


@dataclass(frozen=True)
class Panel:
    """A panel with one model's attacks of a distance and goal; styles and legend belong to the figure."""

    axes: Any
    subject: Subject
    group: Group
    methods: list[str]  # each has a colour
    handles: dict[str, Any]  # of the legend, by label
    first: bool  # in its row
    top: bool  # in its column

    def style(self, column: Results) -> dict[str, Any]:
        """Colour and marker of an attack's method."""
        colour, mark = palette.slot(self.methods.index(column.label.method))
        return {"color": palette.SERIES_LIGHT[colour], "marker": MARKS[mark]}


def _draw_grid(
    subjects: Sequence[Subject], groups: Sequence[Group], draw: Callable[[Panel], None], files: Sequence[Path]
) -> list[Path]:
    """A figure with one row per group, one column per model and a legend below. ``draw`` draws each panel."""
    pyplot, columns = plotting(), [column for subject in subjects for column in subject.columns]
    methods, handles = list(dict.fromkeys(column.label.method for column in columns)), dict[str, Any]()
    lines = math.ceil(len(columns) / (2 * len(subjects)))
    size = (PANEL[0] * len(subjects), PANEL[1] * len(groups) + 0.14 * lines + 0.3)
    with pyplot.rc_context(STYLE):
        figure, panels = pyplot.subplots(len(groups), len(subjects), figsize=size, squeeze=False, layout="constrained")
        for row, group in enumerate(groups):
            for axes, subject in zip(panels[row], subjects, strict=True):
                draw(Panel(axes, subject, group, methods, handles, subject is subjects[0], row == 0))
                axes.set_title(literal(subject.name) if row == 0 else "")
        if handles:
            fitting = int(CHARACTERS * size[0] / (6 + max(map(len, handles))))
            across = max(1, min(math.ceil(len(handles) / 2), 3 * len(subjects), fitting))
            figure.legend(handles.values(), map(literal, handles), loc="outside lower center", ncols=across)
        written = [save_figure(figure, file) for file in files]
        pyplot.close(figure)
    return written


def draw_curves(subjects: Sequence[Subject], out: Path, kinds: Sequence[str] = KINDS) -> list[Path]:
    """``curves.*``: one row per distance and goal, one column per model, one colour per method. The line of the largest
    budget is solid, that of the smallest dotted."""
    return _draw_grid(subjects, groups_of(subjects) or [("", "")], _curves, [out / f"curves.{kind}" for kind in kinds])


def draw_courses(subjects: Sequence[Subject], out: Path, kinds: Sequence[str] = KINDS) -> list[Path]:
    """``courses.*``: median distance against forwards, both logarithmic; one row per distance and goal, one column per
    model. Not drawn without histories."""
    groups = [group for group in groups_of(subjects) if any(_histories(subject, group) for subject in subjects)]
    return _draw_grid(subjects, groups, _courses, [out / f"courses.{kind}" for kind in kinds]) if groups else []


def _histories(subject: Subject, group: Group) -> list[tuple[Results, list[tuple[float, float]]]]:
    """The attacks of a group with the points of their histories."""
    found = []
    for column in subject.of_group(group):
        points = [(row["forwards"], row["median"]) for row in column.numbers.get("course", ()) if row["median"]]
        found += [(column, points)] if points else []
    return found


def _courses(panel: Panel) -> None:
    for column, points in _histories(panel.subject, panel.group):
        style = panel.style(column)
        style["marker"] = style["marker"] or "."
        (line,) = panel.axes.plot(*zip(*points, strict=True), linestyle=LINES[column.label.dash], markersize=4, **style)
        panel.handles.setdefault(column.label.label, line)
    panel.axes.set(xscale="log", yscale="log", xlabel="forwards per image")
    panel.axes.set_ylabel(f"median {mathematical(panel.group[0])} of attacked images" if panel.first else "")


def _curves(panel: Panel) -> None:
    axes, (distance, goal), together = panel.axes, panel.group, panel.subject.groups.get(panel.group)
    columns = together.attacks if together else ()
    found = [np.sort(values[~np.isnan(values)]) for values in (column.by_image for column in columns)]
    minimal = [values for column, values in zip(columns, found, strict=True) if column.info.minimal]
    edge = extent(minimal, [column.reach for column in columns if not column.info.minimal])
    for column, values in zip(columns, found, strict=True):
        if not column.info.minimal:
            panel.handles.setdefault(column.label.label, _mark(panel, column))
            continue
        xs, ys = steps(values, edge)
        xs, ys = (part[xs >= column.stop] for part in (xs, ys))  # there are no results for smaller radii
        look = {"linestyle": LINES[column.label.dash], "drawstyle": "steps-post", "markersize": 3, "markevery": 0.12}
        (line,) = axes.plot(xs, ys, **look, **panel.style(column))
        panel.handles.setdefault(column.label.label, line)
    certified = panel.subject.certified_curve(panel.group)
    if certified is not None and columns:
        best = np.sort(np.fmin.reduce([column.by_image for column in columns]))
        xs = np.unique(np.concatenate([steps(part, edge)[0] for part in (certified, best)]))
        low, high = (
            100 * (len(part) - np.searchsorted(part, xs, side="right")) / len(part) for part in (certified, best)
        )
        band = axes.fill_between(xs, low, np.maximum(low, high), step="post", color="#8A8A84", alpha=0.18, linewidth=0)
        axes.plot(xs, low, color="#6A6A64", linewidth=0.9, drawstyle="steps-post")
        panel.handles.setdefault("between certified and found", band)
    axes.set(xlim=(0, edge), ylim=(0, 100))
    axes.set_xlabel(f"{mathematical(distance)} perturbation $\\epsilon$" if distance else "")
    if panel.first:
        words = goal_name(goal) if goal.startswith("[") else goal
        axes.set_ylabel(f"{resisted(goal_name(goal))} (%)" + (f"\n{literal(words)}" if goal else ""))
    if not any(map(len, found)):
        axes.text(0.5, 0.5, "nothing yet", ha="center", transform=axes.transAxes)


def _mark(panel: Panel, column: Results) -> Any:
    """The marker of an attack at a fixed radius: robust accuracy with its interval."""
    (row,) = column.numbers["robust_accuracy"]
    value, low, high = (100 * (math.nan if row[key] is None else row[key]) for key in ("value", "low", "high"))
    ends = [[max(value - low, 0.0)], [max(high - value, 0.0)]]
    style = panel.style(column)
    style["marker"] = style["marker"] or "o"
    look = {"markersize": 4, "linestyle": "none", "capsize": 2, "linewidth": 1.0}
    return panel.axes.errorbar([row["epsilon"]], [value], yerr=ends, **look, **style)


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


def draw_gallery(subjects: Sequence[Subject], out: Path) -> Path | None:
    """``gallery.png``: a few images of the first subject with each attack's adversarial image and difference; None
    without successes."""
    subject = subjects[0]
    best: dict[tuple[str, str], int] = {}  # for each method and distance, the largest budget
    for place, column in sorted(enumerate(subject.columns), key=lambda pair: (pair[1].label.spend, -pair[0])):
        best[column.label.method, column.info.distance] = place
    columns = [subject.columns[place] for place in sorted(best.values())][:GALLERY_ATTACKS]
    chosen = [subject.images[place] for place in pictures.choose(subject, 6 * GALLERY_ROWS)]
    found = [
        info for info in chosen if all((mine := c.rows.get(info.index)) and mine.slot is not None for c in columns)
    ]
    infos = [found[step * len(found) // GALLERY_ROWS] for step in range(min(GALLERY_ROWS, len(found)))]
    if not columns or not infos or not pictures.shows(subject):
        return None
    clean = pictures.originals(subject, infos)
    rows: list[list[tuple[Any, str]]] = [
        [(pictures.eight_bit(clean[info.index]), pictures.class_name(subject, info.label))] for info in infos
    ]
    titles = ["original"]
    for column in columns:
        points = pictures.adversarials(column, [info.index for info in infos])
        name = distance_name(column.info.distance).label
        for row, info in zip(rows, infos, strict=True):
            record, point = column.rows[info.index], points[info.index]
            change, _ = pictures.difference(clean[info.index], point)
            row += [(pictures.eight_bit(point), pictures.class_name(subject, record.prediction))]
            row += [(change, f"{name} {record.verified:.3g}")]
        titles += [f"{column.label.label}, {name}", ""]
    return _sheet(rows, titles, out / "gallery.png")


def _sheet(rows: list[list[tuple[Any, str]]], titles: Sequence[str], file: Path) -> Path:
    """Pictures in a grid with a caption each. They share one pair of axes, because one pair per picture would take
    seconds."""
    pyplot, pitch, line = plotting(), 1.08, 1.27
    width, height = len(titles) * pitch, len(rows) * line + 0.32
    with pyplot.rc_context(STYLE):
        figure = pyplot.figure(figsize=(1.02 * width, 1.02 * height))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(-0.04, width - 0.04), ylim=(height - 0.3, -0.32), xticks=[], yticks=[])
        axes.axis("off")
        look = {"cmap": "gray", "vmin": 0, "vmax": 255, "interpolation": "nearest", "aspect": "auto"}
        for across, title in enumerate(titles):
            axes.text(across * pitch, -0.07, literal(title), va="bottom", fontsize=9)
            for down, row in enumerate(rows):
                (pixels, text), left, top = row[across], across * pitch, down * line
                axes.imshow(pixels, extent=(left, left + 1, top + 1, top), **look)
                axes.text(left + 0.5, top + 1.05, literal(text), ha="center", va="top", fontsize=7.5)
        written = save_figure(figure, file)
        pyplot.close(figure)
    return written


def save_figure(figure: Any, place: Path) -> Path:
    """Save a figure without dates, so that equal numbers give equal files. Replaces an existing file, also a link."""
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(place.suffix)
    drawn = io.BytesIO()
    figure.savefig(drawn, format=place.suffix[1:], metadata=metadata, dpi=200)
    write_bytes(place, drawn.getvalue())
    return place
