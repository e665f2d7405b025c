"""The paper's other figures, drawn from real runs: penalty functions, the multiplier with and without EMA, the decay of
the step size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import models, registry
from ..attacks.alma import ALMA
from ..core.model import Model
from ..data import load as load_data
from ..errors import Unavailable
from ..report import palette
from ..report.figures import LINES, STYLE, plotting, save_figure
from .curves import COLUMN, SMALL

KINDS = ("svg", "pdf", "png")
PENALTIES = ("phr", "p1", "p2", "p3")
PUBLISHED = {"without EMA": 2.13, "with EMA": 1.71}
"""The final distances of the image in the paper's figure, which it does not name (section 3.2)."""


@dataclass(frozen=True)
class Course:
    """One image's attack step by step: multiplier, distance and step size (N,), the first success and the final
    distance."""

    mu: list[float]
    distance: list[float]
    rate: list[float]
    first_success: int | None
    final: float


def course(model: Model, x: Tensor, label: Tensor, ema: bool, steps: int = 1000) -> Course:
    """ALMA in l2 with alpha = 0.9 on one image ``x`` (1, C, H, W) with ``label`` (1,), with or without the moving
    average of mu."""
    rows: list[dict[str, Any]] = []
    result = ALMA(distance="l2", steps=steps, alpha=0.9, ema=ema)(model, x, label, trace=rows.append)
    found = [row["step"] for row in rows if bool(row["success"][0])]
    return Course(
        [float(row["mu"][0]) for row in rows],
        [float(row["distance"][0]) for row in rows],
        [float(row["rate"][0]) for row in rows],
        min(found, default=None),
        float(result.distances[0]),
    )


def subject() -> tuple[Model, Tensor, Tensor, str]:
    """The paper's SmallCNN and the first MNIST test image it gets right, or what the package itself holds of both."""
    try:
        model, data, name = (
            models.load("mnist/smallcnn"),
            load_data("mnist", limit=50),
            "mnist/smallcnn, MNIST test image",
        )
    except Unavailable:
        model, data, name = (
            models.load("mnist/smallcnn-tiny"),
            load_data("mnist-demo", limit=50),
            "mnist/smallcnn-tiny, MNIST demo image",
        )
    x, labels = data.tensors()
    with torch.no_grad():
        right = int((model(x).argmax(1) == labels).nonzero()[0])
    return model, x[right : right + 1], labels[right : right + 1], f"{name} {right}"


def draw(out: Path, kinds: Sequence[str] = KINDS, steps: int = 1000) -> tuple[list[Path], dict[str, float], str]:
    """Draws the three figures into ``out``; returns the files, the final distances without and with EMA, and what was
    attacked."""
    model, x, label, name = subject()
    courses = {
        "without EMA": course(model, x, label, ema=False, steps=steps),
        "with EMA": course(model, x, label, ema=True, steps=steps),
    }
    written = (
        draw_penalties(out, kinds) + draw_ema(out, courses, name, kinds) + draw_decay(out, courses["with EMA"], kinds)
    )
    return written, {title: found.final for title, found in courses.items()}, name


def draw_penalties(out: Path, kinds: Sequence[str] = KINDS) -> list[Path]:
    """``penalties.*``: P(y, rho, mu) of the paper's appendix for three rho and two mu."""
    pyplot = plotting()
    y = torch.linspace(-1, 1, 401)
    with pyplot.rc_context({**STYLE, **SMALL}):
        figure, panels = pyplot.subplots(2, 2, figsize=(COLUMN, 3.4), sharex=True, sharey=True, layout="constrained")
        for panel, key in zip(panels.flat, PENALTIES, strict=True):
            penalty = registry.get("penalties", key)()
            for number, rho in enumerate((0.5, 1.0, 4.0)):
                for mu, line in ((1.0, "solid"), (0.25, "dotted")):
                    values = penalty.value(y, torch.full_like(y, rho), torch.full_like(y, mu))
                    panel.plot(
                        y,
                        values,
                        color=palette.SERIES_LIGHT[number],
                        linestyle=LINES[line],
                        label=f"$\\rho={rho:g}$, $\\mu={mu:g}$",
                    )
            panel.set(title=key.upper(), ylim=(-1.2, 4), xlim=(-1, 1))
        for place in range(2):
            panels[1][place].set_xlabel("$y$")
            panels[place][0].set_ylabel(r"$P(y, \rho, \mu)$")
        figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3, columnspacing=1.0)
        return _all(pyplot, figure, out, "penalties", kinds)


def draw_ema(out: Path, courses: dict[str, Course], name: str, kinds: Sequence[str] = KINDS) -> list[Path]:
    """``ema.*``: multiplier and distance during the attack on one image, with and without the moving average."""
    pyplot = plotting()
    with pyplot.rc_context({**STYLE, **SMALL}):
        figure, panels = pyplot.subplots(2, 1, figsize=(COLUMN, 3.0), sharex=True, layout="constrained")
        for number, (title, found) in enumerate(courses.items()):
            colour = palette.SERIES_LIGHT[number]
            panels[0].plot(found.mu, color=colour, label=title)
            panels[1].plot(found.distance, color=colour, label=f"{title}: {found.final:.3g} in the end")
        panels[0].set(yscale="log", ylabel=r"multiplier $\mu$", title=name)
        panels[1].set(xlabel="iteration", ylabel=r"$\ell_2$ norm", ylim=(0, None))
        figure.legend(*panels[1].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        return _all(pyplot, figure, out, "ema", kinds)


def draw_decay(out: Path, found: Course, kinds: Sequence[str] = KINDS) -> list[Path]:
    """``decay.*``: the step size of that attack: constant until the first success, then down to a hundredth."""
    pyplot = plotting()
    with pyplot.rc_context({**STYLE, **SMALL}):
        figure, panel = pyplot.subplots(figsize=(COLUMN, 1.6), layout="constrained")
        panel.plot([rate / found.rate[0] for rate in found.rate], color=palette.SERIES_LIGHT[0])
        if found.first_success is not None:
            panel.axvline(
                found.first_success, color=palette.SERIES_LIGHT[1], linestyle=LINES["dashed"], label="first success"
            )
            panel.legend()
        panel.set(yscale="log", xlabel="iteration", ylabel=r"step size $\eta^{(i)}/\eta^{(0)}$")
        return _all(pyplot, figure, out, "decay", kinds)


def _all(pyplot: Any, figure: Any, out: Path, name: str, kinds: Sequence[str]) -> list[Path]:
    out.mkdir(parents=True, exist_ok=True)
    written = [save_figure(figure, out / f"{name}.{kind}") for kind in kinds]
    pyplot.close(figure)
    return written
