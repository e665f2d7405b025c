"""The nearest point of another class within one cell of a ReLU network, where no unit switches and everything is
linear: one linear program."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .backward import Known, carried, differences
from .graph import Graph, count
from .highs import minimise
from .nonlinear import Lines, Relu

INSIDE = 1e-9
"""How far inside its cell a point stays, so that the linear function is the network's."""


def nearest_in_cell(
    graph: Graph, known: Known, point: Tensor, labels: Tensor, rival: int, most: float
) -> Tensor | None:
    """The point (1, C, H, W) of the ball of ``known`` and of the cell of ``point`` that is nearest in its norm, linf or
    l1, with
    z_label - z_rival <= ``most``; None where the solver has none.
    """
    values, flat = graph.values(point), known.ball.x.flatten().numpy()
    relaxed: dict[int, Any] = {}
    rows, low, high = [], [], []
    for index, step in enumerate(graph.steps):
        if not isinstance(step.layer, Relu):
            continue
        source = step.sources[0]
        size, on = count(step.shape), values[source] > 0
        unit = torch.eye(size, dtype=torch.float64).reshape(-1, *step.shape)
        coefficients, offset = _to_input(graph, {source: unit}, relaxed)
        relaxed[index] = Lines((on.double(), None), (on.double(), None))
        rows.append(coefficients)
        low.append(np.where(on.flatten().numpy(), INSIDE - offset, -math.inf))
        high.append(np.where(on.flatten().numpy(), math.inf, -INSIDE - offset))
    last = differences(graph, labels, torch.tensor([0]), torch.tensor([rival]), point)
    coefficients, offset = _to_input(graph, last, relaxed)
    moved = _nearest(
        flat,
        np.concatenate([*rows, coefficients]),
        np.concatenate([*low, [-math.inf]]),
        np.concatenate([*high, most - offset]),
        known.intervals[0].lower.flatten().numpy(),
        known.intervals[0].upper.flatten().numpy(),
        known.ball.norm,
    )
    return None if moved is None else torch.from_numpy(moved).reshape(point.shape)


def _to_input(graph: Graph, rows: dict[int, Tensor], relaxed: dict[int, Any]) -> tuple[np.ndarray, np.ndarray]:
    images = torch.zeros(len(next(iter(rows.values()))), dtype=torch.long)
    ended, constant = carried(graph, rows, images, relaxed)
    return ended[0].flatten(1).numpy(), constant.numpy()


def _nearest(
    image: np.ndarray,
    rows: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    least: np.ndarray,
    most: np.ndarray,
    norm: str,
) -> np.ndarray | None:
    """min |v - image| over low <= rows v <= high, least <= v <= most."""
    pixels = len(image)
    extra = 1 if norm == "linf" else pixels
    apart = np.tile([[1.0]], (pixels, 1)) if norm == "linf" else np.eye(pixels)
    unit = np.eye(pixels)
    matrix = np.vstack(
        [np.hstack([rows, np.zeros((len(rows), extra))]), np.hstack([-unit, apart]), np.hstack([unit, apart])]
    )
    lower, upper = np.concatenate([low, -image, image]), np.concatenate([high, np.full(2 * pixels, math.inf)])
    lines = [
        (np.flatnonzero(line), line[line != 0], float(under), float(over))
        for line, under, over in zip(matrix, lower, upper, strict=True)
    ]
    ended, values = minimise(
        np.concatenate([np.zeros(pixels), np.ones(extra)]),
        np.concatenate([least, np.zeros(extra)]),
        np.concatenate([most, np.full(extra, math.inf)]),
        lines,
    )
    return values[:pixels].clip(least, most) if ended == "kOptimal" and len(values) else None
