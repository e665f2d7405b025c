"""The paper's figures from real runs: robust-accuracy curves, penalty functions, the multiplier with and without EMA,
the decay of the step size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import models, registry
from ..attacks.alma import ALMA
from ..core.oracle import Model
from ..data import load as load_data
from ..errors import Unavailable
from ..report import palette
from ..report.figures import LINES, POINTS, STYLE, literal, mathematical, plotting, save_figure
from ..report.numbers import Array
from ..report.run import Run
from .entries import Entry
from .grid import TITLES
from .plan import measure_of

COLUMN = 3.25
"""Inches of a column of the paper."""
SMALL = {**STYLE, "font.size": 7, "axes.titlesize": 7, "legend.fontsize": 6.5}
"""Letters that fit a column."""
MAIN = {
    "mnist": (("smallcnn-trades", "crown-ibp"), ("l1", "l2")),
    "imagenet": (("resnet50", "resnet50-l2-at"), ("l1",)),
}
"""The curves of the main text: networks side by side, distances below each other."""
SHOWN = 0.98
"""Up to which share of what the strongest attack finds an axis goes: the last images are far away and few."""
KINDS = ("svg", "pdf", "png")
PENALTIES = ("phr", "p1", "p2", "p3")
PUBLISHED = {"without EMA": 2.13, "with EMA": 1.71}
"""The final distances of the image in the paper's figure, which it does not name (section 3.2)."""


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
    colours = {name: place for place, name in enumerate(dict.fromkeys(entry.attack for entry in entries))}
    return [path for name, grid in grids.items() for path in _draw_grid(out, runs, name, grid, colours, kinds)]


def _draw_grid(
    out: Path, runs: Path, name: str, grid: list[list[list[Entry]]], colours: dict[str, int], kinds: Sequence[str]
) -> list[Path]:
    pyplot = plotting()
    size = max(COLUMN, COLUMN * len(grid[0]) / 2), 1.45 * len(grid) + 0.75
    with pyplot.rc_context(SMALL):
        figure, panels = pyplot.subplots(len(grid), len(grid[0]), figsize=size, squeeze=False, layout="constrained")
        handles: dict[str, Any] = {}
        for panel, cells in zip(panels.flat, (cells for row in grid for cells in row), strict=True):
            if not cells:
                panel.set_visible(False)
                continue
            reach = 0.0
            for entry in cells:
                distances = verified(runs / entry.folder)
                line = _curve(panel, entry, distances, palette.SERIES_LIGHT[palette.slot(colours[entry.attack])[0]])
                reach = max(reach, _reach(distances))
                if entry.size == "large" or TITLES[entry.attack] not in handles:
                    handles[TITLES[entry.attack]] = line
            panel.set(xlim=(0, reach or 1.0), ylim=(0, 1), title=literal(cells[0].label))
            panel.set(xlabel=mathematical(measure_of(cells[0].distance)), ylabel="robust accuracy")
            panel.label_outer()
        columns = max(2, int(size[0] / 1.05))
        figure.legend(handles.values(), handles, loc="outside lower center", ncols=columns, columnspacing=1.0)
        return _save(pyplot, figure, out, f"curves-{name}", kinds)


def verified(folder: Path) -> Array:
    """The distances of a cell's images in rising order, 0: already wrong, infinite: nothing found."""
    return np.sort(np.array([record.verified for record in Run(folder).records], dtype=np.float64))


def _curve(panel: Any, entry: Entry, values: Array, colour: str) -> Any:
    """A step curve: the share of images with a larger distance; drawn through at most ``POINTS`` of them."""
    at = np.unique(np.linspace(0, len(values) - 1, min(len(values), POINTS)).astype(int))
    finite = at[np.isfinite(values[at])]
    end = values[finite][-1] * 10 if len(finite) else 1.0
    shares = [1 - np.mean(values <= 0), *(1 - (finite + 1) / len(values)), 1 - np.mean(np.isfinite(values))]
    (line,) = panel.plot(
        [0.0, *values[finite], end],
        shares,
        color=colour,
        linestyle=LINES["dotted" if entry.size == "small" else "solid"],
        drawstyle="steps-post" if len(values) < 200 else "default",
        linewidth=1.1,
    )
    return line


def _reach(values: Array) -> float:
    """How far an axis must go to show an attack's curve."""
    finite = values[np.isfinite(values)]
    return float(finite[math.floor(SHOWN * (len(finite) - 1))]) if len(finite) else 0.0


@dataclass(frozen=True)
class History:
    """One image's attack step by step: multiplier, distance and step size (N,), the first success and the final
    distance."""

    mu: list[float]
    distance: list[float]
    rate: list[float]
    first_success: int | None
    final: float


def history(model: Model, x: Tensor, label: Tensor, ema: bool, steps: int = 1000) -> History:
    """ALMA in l2 with alpha = 0.9 on one image ``x`` (1, C, H, W) with ``label`` (1,), with or without the moving
    average of mu."""
    rows: list[dict[str, Any]] = []
    result = ALMA(distance="l2", steps=steps, alpha=0.9, ema=ema)(model, x, label, trace=rows.append)
    mu, distance, rate = ([float(row[name][0]) for row in rows] for name in ("mu", "distance", "rate"))
    first = min((row["step"] for row in rows if bool(row["success"][0])), default=None)
    return History(mu, distance, rate, first, float(result.distances[0]))


def subject() -> tuple[Model, Tensor, Tensor, str]:
    """The paper's SmallCNN and the first MNIST test image it gets right, or the package's own network and digits."""
    try:
        model, data, name = models.load("mnist/smallcnn"), load_data("mnist", limit=50), "mnist/smallcnn, MNIST test"
    except Unavailable:
        model, data = models.load("mnist/smallcnn-tiny"), load_data("mnist-demo", limit=50)
        name = "mnist/smallcnn-tiny, MNIST demo"
    x, labels = data.tensors()
    with torch.no_grad():
        right = int((model(x).argmax(1) == labels).nonzero()[0])
    return model, x[right : right + 1], labels[right : right + 1], f"{name} image {right}"


def draw_algorithm(out: Path, kinds: Sequence[str] = KINDS, steps: int = 1000) -> tuple[list[Path], str]:
    """Draws ``penalties.*``, ``ema.*`` and ``decay.*``; returns the files and a text with the final distances."""
    model, x, label, name = subject()
    runs = {title: history(model, x, label, title == "with EMA", steps) for title in PUBLISHED}
    written = draw_penalties(out, kinds) + draw_ema(out, runs, name, kinds) + draw_decay(out, runs["with EMA"], kinds)
    pairs = "; ".join(f"{title} {run.final:.3g} (paper's image: {PUBLISHED[title]})" for title, run in runs.items())
    sentence = f"Final l2 distance of ALMA, {steps} steps, alpha 0.9, on {name}: {pairs}."
    return written, f"{sentence} The paper does not name its image."


def draw_penalties(out: Path, kinds: Sequence[str] = KINDS) -> list[Path]:
    """``penalties.*``: P(y, rho, mu) of the paper's appendix for three rho and two mu."""
    pyplot = plotting()
    y = torch.linspace(-1, 1, 401)
    with pyplot.rc_context(SMALL):
        figure, panels = pyplot.subplots(2, 2, figsize=(COLUMN, 3.4), sharex=True, sharey=True, layout="constrained")
        for panel, key in zip(panels.flat, PENALTIES, strict=True):
            penalty = registry.get("penalties", key)()
            for number, rho in enumerate((0.5, 1.0, 4.0)):
                for mu, line in ((1.0, "solid"), (0.25, "dotted")):
                    values = penalty.value(y, torch.full_like(y, rho), torch.full_like(y, mu))
                    label = f"$\\rho={rho:g}$, $\\mu={mu:g}$"
                    panel.plot(y, values, color=palette.SERIES_LIGHT[number], linestyle=LINES[line], label=label)
            panel.set(title=key.upper(), ylim=(-1.2, 4), xlim=(-1, 1), xlabel="$y$", ylabel=r"$P(y, \rho, \mu)$")
            panel.label_outer()
        figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3, columnspacing=1.0)
        return _save(pyplot, figure, out, "penalties", kinds)


def draw_ema(out: Path, runs: dict[str, History], name: str, kinds: Sequence[str] = KINDS) -> list[Path]:
    """``ema.*``: multiplier and distance during the attack on one image, with and without the moving average."""
    pyplot = plotting()
    with pyplot.rc_context(SMALL):
        figure, panels = pyplot.subplots(2, 1, figsize=(COLUMN, 3.0), sharex=True, layout="constrained")
        for colour, (title, run) in zip(palette.SERIES_LIGHT, runs.items(), strict=False):
            panels[0].plot(run.mu, color=colour, label=title)
            panels[1].plot(run.distance, color=colour, label=f"{title}: {run.final:.3g} in the end")
        panels[0].set(yscale="log", ylabel=r"multiplier $\mu$", title=name)
        panels[1].set(xlabel="iteration", ylabel=r"$\ell_2$ norm", ylim=(0, None))
        figure.legend(*panels[1].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        return _save(pyplot, figure, out, "ema", kinds)


def draw_decay(out: Path, run: History, kinds: Sequence[str] = KINDS) -> list[Path]:
    """``decay.*``: the step size of that attack: constant until the first success, then down to a hundredth."""
    pyplot = plotting()
    with pyplot.rc_context(SMALL):
        figure, panel = pyplot.subplots(figsize=(COLUMN, 1.6), layout="constrained")
        panel.plot([rate / run.rate[0] for rate in run.rate], color=palette.SERIES_LIGHT[0])
        if run.first_success is not None:
            line, colour = LINES["dashed"], palette.SERIES_LIGHT[1]
            panel.axvline(run.first_success, color=colour, linestyle=line, label="first success")
            panel.legend()
        panel.set(yscale="log", xlabel="iteration", ylabel=r"step size $\eta^{(i)}/\eta^{(0)}$")
        return _save(pyplot, figure, out, "decay", kinds)


def _save(pyplot: Any, figure: Any, out: Path, name: str, kinds: Sequence[str]) -> list[Path]:
    out.mkdir(parents=True, exist_ok=True)
    written = [save_figure(figure, out / f"{name}.{kind}") for kind in kinds]
    pyplot.close(figure)
    return written
