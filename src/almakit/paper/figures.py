"""The paper's robust-accuracy curves from the run folders of a reproduction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..report import palette
from ..report.figures import LINES, STYLE, literal, mathematical, plotting, save_figure, steps
from ..report.numbers import Array
from ..report.run import Run
from .entries import Entry
from .grid import TITLES, measure_of

COLUMN = 3.25
"""Inches of a column of the paper."""
SMALL = {**STYLE, "font.size": 7, "axes.titlesize": 7, "legend.fontsize": 6.5, "lines.linewidth": 1.1}
"""Font size that fits a column."""
MAIN = {
    "mnist": (("smallcnn-trades", "crown-ibp"), ("l1", "l2")),
    "imagenet": (("resnet50", "resnet50-l2-at"), ("l1",)),
}
"""The curves of the main text: networks side by side, distances below each other."""
SHOWN = 0.98
"""The share of the strongest attack's successes that an axis shows, because the last images are few and far away."""


def draw_curves(out: Path, runs: Path, entries: Sequence[Entry], kinds: Sequence[str] = ("pdf", "png")) -> list[Path]:
    """Draws ``curves-<distance>.*``, the networks below each other as in the appendix, and ``curves-main.*``, the
    figure of the main text: solid the large budget, dotted the small one, one colour per attack.

    Args:
        out: folder of the figures.
        runs: folder that the entries' run folders are relative to.
        entries: cells of one data set.
        kinds: file formats.
    """
    grids: dict[str, list[list[list[Entry]]]] = {}
    for distance in dict.fromkeys(entry.distance for entry in entries):
        mine = [entry for entry in entries if entry.distance == distance]
        labels = dict.fromkeys(entry.label for entry in mine)
        grids[distance] = [[[entry for entry in mine if entry.label == label]] for label in labels]
    names, distances = MAIN.get(entries[0].dataset, ((), ())) if entries else ((), ())
    present = [name for name in names if any(entry.model == name for entry in entries)]
    if present:
        grids["main"] = [
            [[e for e in entries if (e.model, e.distance) == (name, distance)] for name in present]
            for distance in distances
        ]
    colours = {
        name: palette.SERIES_LIGHT[palette.slot(place)[0]]
        for place, name in enumerate(dict.fromkeys(entry.attack for entry in entries))
    }
    out.mkdir(parents=True, exist_ok=True)
    pyplot, written = plotting(), []
    with pyplot.rc_context(SMALL):
        for name, grid in grids.items():
            figure = _draw_grid(pyplot, runs, grid, colours)
            written += [save_figure(figure, out / f"curves-{name}.{kind}") for kind in kinds]
            pyplot.close(figure)
    return written


def _draw_grid(pyplot: Any, runs: Path, grid: list[list[list[Entry]]], colours: dict[str, str]) -> Any:
    size = max(COLUMN, COLUMN * len(grid[0]) / 2), 1.45 * len(grid) + 0.75
    figure, panels = pyplot.subplots(len(grid), len(grid[0]), figsize=size, squeeze=False, layout="constrained")
    handles: dict[str, Any] = {}
    for panel, cells in zip(panels.flat, (cells for row in grid for cells in row), strict=True):
        if not cells:
            panel.set_visible(False)
            continue
        found = [verified(runs / entry.folder) for entry in cells]
        edge = max(map(_reach, found)) or 1.0
        for entry, distances in zip(cells, found, strict=True):
            style = LINES["dotted" if entry.size == "small" else "solid"]
            xs, shares = steps(distances, edge)
            (line,) = panel.plot(xs, shares, color=colours[entry.attack], linestyle=style, drawstyle="steps-post")
            if entry.size == "large" or TITLES[entry.attack] not in handles:
                handles[TITLES[entry.attack]] = line
        panel.set(xlim=(0, edge), ylim=(0, 100), title=literal(cells[0].label))
        panel.set(xlabel=mathematical(measure_of(cells[0].distance)), ylabel="robust accuracy (%)")
        panel.label_outer()
    across = max(2, int(size[0] / 1.05))
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=across, columnspacing=1.0)
    return figure


def verified(folder: Path) -> Array:
    """The distances of a cell's images in rising order, 0: already wrong, infinite: nothing found."""
    return np.sort(np.array([record.verified for record in Run(folder).records], dtype=np.float64))


def _reach(values: Array) -> float:
    """The axis limit for an attack's curve."""
    finite = values[np.isfinite(values)]
    return float(finite[math.floor(SHOWN * (len(finite) - 1))]) if len(finite) else 0.0
