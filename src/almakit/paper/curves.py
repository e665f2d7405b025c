"""The paper's robust-accuracy curves: for each distance the networks below each other, as in its appendix, and the
pairs of its main text. No torch here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..report import palette
from ..report.figures import LINES, POINTS, STYLE, literal, mathematical, plotting, save_figure
from ..report.numbers import Array
from ..report.run import Run
from .entries import Entry
from .grid import TITLES

COLUMN = 3.25
"""Inches of a column of the paper; its appendix prints MNIST's panels at 0.7 of it."""
SMALL = {"font.size": 7, "axes.titlesize": 7, "legend.fontsize": 6.5}
"""Letters that fit a column."""
WIDTH = {"mnist": 0.7 * COLUMN}
MAIN = {
    "mnist": (("smallcnn-trades", "crown-ibp"), ("l1", "l2")),
    "imagenet": (("resnet50", "resnet50-l2-at"), ("l1",)),
}
"""The figures of the main text: networks side by side, distances below each other."""
SHOWN = 0.98
"""Up to which share of what the strongest attack finds an axis goes: the last images are far away and few."""


def draw_curves(out: Path, runs: Path, entries: Sequence[Entry], kinds: Sequence[str] = ("pdf", "png")) -> list[Path]:
    """``curves-<distance>.*`` and, where the main text has one, ``curves-main.*``: solid the large budget, dotted the
    small one, one colour per attack.

    ``entries`` are of one data set, their folders below ``runs``.
    """
    if not entries:
        return []
    found = {(e.model, e.label, e.distance, e.cell.title): verified(runs / e.folder) for e in entries}
    colours = {name: place for place, name in enumerate(dict.fromkeys(entry.attack for entry in entries))}
    dataset, written = entries[0].dataset, []
    for distance in dict.fromkeys(entry.distance for entry in entries):
        mine = [entry for entry in entries if entry.distance == distance]
        labels = list(dict.fromkeys(entry.label for entry in mine))
        grid = [[[entry for entry in mine if entry.label == label]] for label in labels]
        size = WIDTH.get(dataset, COLUMN), 1.45 * len(labels) + 0.75
        written += _draw(out, f"curves-{distance}", grid, size, found, colours, kinds)
    models, distances = MAIN.get(dataset, ((), ()))
    here = [model for model in models if any(entry.model == model for entry in entries)]
    if here:
        grid = [
            [[e for e in entries if (e.model, e.distance) == (model, distance)] for model in here]
            for distance in distances
        ]
        size = max(WIDTH.get(dataset, COLUMN), COLUMN * len(here) / 2), 1.45 * len(grid) + 0.75
        written += _draw(out, "curves-main", grid, size, found, colours, kinds)
    return written


def verified(folder: Path) -> Array:
    """The distances of a cell's images in rising order, 0: already wrong, infinite: nothing found."""
    return np.sort(np.array([record.verified for record in Run(folder).records], dtype=np.float64))


Key = tuple[str, str, str, str]


def _draw(
    out: Path,
    name: str,
    grid: Sequence[Sequence[Sequence[Entry]]],
    size: tuple[float, float],
    found: dict[Key, Array],
    colours: dict[str, int],
    kinds: Sequence[str],
) -> list[Path]:
    pyplot = plotting()
    with pyplot.rc_context({**STYLE, **SMALL}):
        figure, panels = pyplot.subplots(len(grid), len(grid[0]), figsize=size, squeeze=False, layout="constrained")
        handles: dict[str, Any] = {}
        last = len(grid) - 1
        for row, (across, cells) in enumerate(zip(panels, grid, strict=True)):
            for place, (panel, entries) in enumerate(zip(across, cells, strict=True)):
                if not entries:
                    panel.set_visible(False)
                    continue
                for entry in entries:
                    line = _curve(panel, entry, found[_key(entry)], colours)
                    if entry.size == "large" or TITLES[entry.attack] not in handles:
                        handles[TITLES[entry.attack]] = line
                reach = [_reach(found[_key(entry)]) for entry in entries]
                panel.set(xlim=(0, max(reach)), ylim=(0, 1), title=literal(entries[0].label))
                panel.set_xlabel(mathematical(_measure(entries[0].distance)) if row == last or len(cells) > 1 else "")
                panel.set_ylabel("robust accuracy" if place == 0 else "")
        figure.legend(
            handles.values(), handles, loc="outside lower center", ncols=max(2, int(size[0] / 1.05)), columnspacing=1.0
        )
        written = [save_figure(figure, out / f"{name}.{kind}") for kind in kinds]
        pyplot.close(figure)
    return written


def _measure(distance: str) -> str:
    return "ciede2000-paper" if distance == "ciede2000" else distance


def _key(entry: Entry) -> Key:
    return entry.model, entry.label, entry.distance, entry.cell.title


def _curve(panel: Any, entry: Entry, values: Array, colours: dict[str, int]) -> Any:
    """A step curve: the share of images with a larger distance; drawn through at most ``POINTS`` of them."""
    at = np.unique(np.linspace(0, len(values) - 1, min(len(values), POINTS)).astype(int))
    finite = at[np.isfinite(values[at])]
    colour, _ = palette.slot(colours[entry.attack])
    (line,) = panel.plot(
        np.concatenate([[0.0], values[finite], [values[finite][-1] * 10 if len(finite) else 1.0]]),
        np.concatenate(
            [[1 - np.mean(values <= 0)], 1 - (finite + 1) / len(values), [1 - np.mean(np.isfinite(values))]]
        ),
        color=palette.SERIES_LIGHT[colour],
        linestyle=LINES["dotted" if entry.size == "small" else "solid"],
        drawstyle="steps-post" if len(values) < 200 else "default",
        linewidth=1.1,
    )
    return line


def _reach(values: Array) -> float:
    """How far an axis must go to show an attack's curve."""
    finite = values[np.isfinite(values)]
    last = float(finite[math.floor(SHOWN * (len(finite) - 1))]) if len(finite) else 0.0
    return last if last > 0 else 1.0
