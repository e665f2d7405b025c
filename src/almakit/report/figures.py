"""Figures for papers, made with matplotlib: robust-accuracy curves as in the ALMA paper, distance against queries,
and a gallery of images. No torch here."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Callable, Sequence
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

POINTS = 3000  # a curve of more images is drawn through this many of them
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
PANEL = (3.3, 2.35)  # inches: two panels are a page's width
CHARACTERS = 16  # of a legend in an inch
GALLERY_ROWS, GALLERY_ATTACKS = 8, 4
KINDS = ("svg", "pdf", "png")


def plotting() -> Any:
    """matplotlib's pyplot, drawing into files only."""
    matplotlib = optional("matplotlib", "figures need matplotlib; install it with `pip install 'almakit[report]'`.")
    if "matplotlib.pyplot" not in sys.modules:  # a notebook keeps the backend it has
        matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot

    return pyplot


def literal(text: str) -> str:
    """Text from outside that must not be read as mathematics."""
    return text.replace("\\", "").replace("$", r"\$")


def mathematical(distance: str) -> str:
    """A known distance as mathematics, any other as it is called."""
    return distance_name(distance).tex if distance in DISTANCES else literal(distance)


def _methods(subjects: Sequence[Subject]) -> list[str]:
    """The methods, each of which has a colour."""
    return list(dict.fromkeys(column.label.method for subject in subjects for column in subject.columns))


def _draw_grid(
    subjects: Sequence[Subject], groups: Sequence[Group], draw: Callable[..., None], files: Sequence[Path]
) -> list[Path]:
    """A figure with one row per group and one column per model, each panel by ``draw``, and a legend below all."""
    pyplot, methods = plotting(), _methods(subjects)
    entries = sum(len(subject.columns) for subject in subjects)
    size = (PANEL[0] * len(subjects), PANEL[1] * len(groups) + 0.14 * math.ceil(entries / (2 * len(subjects))) + 0.3)
    with pyplot.rc_context(STYLE):
        figure, panels = pyplot.subplots(len(groups), len(subjects), figsize=size, squeeze=False, layout="constrained")
        handles: dict[str, Any] = {}
        for row, group in enumerate(groups):
            for panel, subject in zip(panels[row], subjects, strict=True):
                draw(panel, subject, group, methods, handles, first=subject is subjects[0], top=row == 0)
        if handles:
            room = int(CHARACTERS * size[0] / (6 + max(map(len, handles))))
            across = max(1, min(math.ceil(len(handles) / 2), 3 * len(subjects), room))
            figure.legend(handles.values(), map(literal, handles), loc="outside lower center", ncols=across)
        written = [save_figure(figure, file) for file in files]
        pyplot.close(figure)
    return written


def draw_curves(subjects: Sequence[Subject], out: Path, kinds: Sequence[str] = KINDS) -> list[Path]:
    """``curves.*``: one row per distance and goal, one column per model; solid the large budget, dotted the small one,
    one colour per method."""
    return _draw_grid(subjects, groups_of(subjects) or [("", "")], _panel, [out / f"curves.{kind}" for kind in kinds])


def draw_courses(subjects: Sequence[Subject], out: Path, kinds: Sequence[str] = KINDS) -> list[Path]:
    """``courses.*``: one row per distance and goal, one column per model; median distance against forwards, both
    logarithmic. Nothing without courses."""
    groups = [group for group in groups_of(subjects) if any(_drawn(subject, group) for subject in subjects)]
    return _draw_grid(subjects, groups, _course_panel, [out / f"courses.{kind}" for kind in kinds]) if groups else []


def _course_panel(
    panel: Any, subject: Subject, group: Group, methods: list[str], handles: dict[str, Any], first: bool, top: bool
) -> None:
    for column, points in _drawn(subject, group):
        colour, mark = palette.slot(methods.index(column.label.method))
        (line,) = panel.plot(
            *zip(*points, strict=True),
            color=palette.SERIES_LIGHT[colour],
            linestyle=LINES[column.label.dash],
            marker=MARKS[mark] or ".",
            markersize=4,
        )
        handles.setdefault(column.label.label, line)
    panel.set(xscale="log", yscale="log", xlabel="forwards per image")
    panel.set_ylabel(f"median {mathematical(group[0])} of attacked images" if first else "")
    panel.set_title(literal(subject.name) if top else "")


def _drawn(subject: Subject, group: Group) -> list[tuple[Results, list[tuple[float, float]]]]:
    """The columns of a group with the points of their courses."""
    found = []
    for column in subject.of_group(group):
        points = [(row["forwards"], row["median"]) for row in column.numbers.get("course", ()) if row["median"]]
        found += [(column, points)] if points else []
    return found


def _panel(
    panel: Any, subject: Subject, group: Group, methods: list[str], handles: dict[str, Any], first: bool, top: bool
) -> None:
    columns, (distance, goal) = subject.of_group(group), group
    found = {id(column): np.sort(values[~np.isnan(values)]) for column in columns for values in [column.by_image]}
    minimal = [found[id(column)] for column in columns if column.info.minimal]
    edge = extent(minimal, [column.reach for column in columns if not column.info.minimal])
    for column in columns:
        label = column.label
        colour, mark = palette.slot(methods.index(label.method))
        if not column.info.minimal:
            handles.setdefault(label.label, _marker(panel, column, palette.SERIES_LIGHT[colour], MARKS[mark] or "o"))
            continue
        xs, ys = steps(found[id(column)], edge)
        xs, ys = (part[xs >= column.stop] for part in (xs, ys))  # nothing is known of smaller radii
        (line,) = panel.plot(
            xs,
            ys,
            color=palette.SERIES_LIGHT[colour],
            linestyle=LINES[label.dash],
            drawstyle="steps-post",
            marker=MARKS[mark],
            markersize=3,
            markevery=0.12,
        )
        handles.setdefault(label.label, line)
    certified = subject.certified_curve(group)
    if certified is not None and columns:
        best = np.sort(np.fmin.reduce([column.by_image for column in columns]))
        xs = np.unique(np.concatenate([steps(part, edge)[0] for part in (certified, best)]))
        low, high = (
            100.0 * (len(part) - np.searchsorted(part, xs, side="right")) / len(part) for part in (certified, best)
        )
        band = panel.fill_between(xs, low, np.maximum(low, high), step="post", color="#8A8A84", alpha=0.18, linewidth=0)
        panel.plot(xs, low, color="#6A6A64", linewidth=0.9, drawstyle="steps-post")
        handles.setdefault("between certified and found", band)
    panel.set_xlim(0, edge)
    panel.set_ylim(0, 100)
    panel.set_xlabel(f"{mathematical(distance)} perturbation $\\epsilon$" if distance else "")
    if first:
        words = goal_name(goal) if goal.startswith("[") else goal
        panel.set_ylabel(f"{resisted(goal_name(goal))} (%)" + (f"\n{literal(words)}" if goal else ""))
    if top:
        panel.set_title(literal(subject.name))
    if not any(len(values) for values in found.values()):
        panel.text(0.5, 0.5, "nothing yet", ha="center", transform=panel.transAxes)


def _marker(panel: Any, column: Results, colour: str, mark: str) -> Any:
    """An attack at a fixed radius: robust accuracy there with its interval, no curve."""
    (row,) = column.numbers["robust_accuracy"]
    value, low, high = (100 * (math.nan if row[key] is None else row[key]) for key in ("value", "low", "high"))
    return panel.errorbar(
        [row["epsilon"]],
        [value],
        yerr=[[max(value - low, 0.0)], [max(high - value, 0.0)]],
        color=colour,
        marker=mark,
        markersize=4,
        linestyle="none",
        capsize=2,
        linewidth=1.0,
    )


def extent(sorted_distances: Sequence[Array], radii: Sequence[float] = ()) -> float:
    """Where the horizontal axis ends: after the last image of every attack that looks for the smallest change, and
    after every fixed radius."""
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
    """``gallery.png``: a few images of the first subject, each attack's adversarial image and difference; None where
    nothing was found."""
    subject = subjects[0]
    best: dict[tuple[str, str], Results] = {}  # by method and distance, the one with the largest budget
    for column in subject.columns:
        key = (column.label.method, column.info.distance)
        if key not in best or column.label.spend > best[key].label.spend:
            best[key] = column
    columns = list(best.values())[:GALLERY_ATTACKS]
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
            after = pictures.class_name(subject, record.prediction)
            change, _ = pictures.difference(clean[info.index], point)
            row += [(pictures.eight_bit(point), after), (change, f"{name} {record.verified:.3g}")]
        titles += [f"{column.label.label}, {name}", ""]
    return _sheet(rows, titles, out / "gallery.png")


def _sheet(rows: list[list[tuple[Any, str]]], titles: Sequence[str], file: Path) -> Path:
    """Pictures in a grid on one pair of axes, each with a line below it; a pair of axes per picture would take
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
    """Without dates, so that equal numbers give equal files; in place of what was there, also where that is a link."""
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(place.suffix)
    drawn = io.BytesIO()
    figure.savefig(drawn, format=place.suffix[1:], metadata=metadata, dpi=200)
    write_bytes(place, drawn.getvalue())
    return place
