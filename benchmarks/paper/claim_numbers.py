"""The numbers behind ``claim.py``: quality of each attack after so many queries or so much time, pooled over
networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
MARKS = (10, 30, 100, 300, 1000)
OURS = ("alma", "soft-walk")
SPECIALISED = ("ead", "fab", "fab-t", "fmn", "bb", "cw", "ddn", "apgd-t-dlr+search", "lpa+search", "perc-al")
FEW = 20
GRID = tuple(float(value) for value in np.geomspace(10, 10_000, 31))


@dataclass(frozen=True)
class Course:
    """One run: qualities (K, N) of images ``images`` (N,) after ``forwards`` (K,) queries of ``cost`` passes each."""

    forwards: Array
    cost: float
    images: Array
    quality: Array

    def at(self, axis: str, budget: float) -> Array:
        """(N,) qualities for a budget: between two marks on a straight line over the logarithm, 0 before the first, and
        the last one's after it."""
        reached = self.forwards if axis == "queries" else self.forwards * self.cost
        place = float(np.interp(np.log(budget), np.log(reached), np.arange(len(reached))))
        if budget < reached[0] * (1 - 1e-9):
            return np.zeros(len(self.images))
        low = int(place)
        high = min(low + 1, len(reached) - 1)
        share = place - low
        mixed: Array = (1 - share) * self.quality[low] + share * self.quality[high]
        return mixed


@dataclass
class Curve:
    """An attack in one distance: its runs, of one budget or two, on each network."""

    distance: str
    attack: str
    networks: dict[str, list[Course]] = field(default_factory=dict)

    def best(self, network: str, axis: str, budget: float) -> tuple[Array, Array]:
        """Images and qualities of the run that is best for this budget: whoever has it may choose his number of
        steps."""
        runs = [(run.images, run.at(axis, budget)) for run in self.networks[network]]
        return max(runs, key=lambda pair: float(pair[1].mean()))

    def lasts(self, network: str, axis: str, budget: float) -> bool:
        """Whether a run on the network goes on for at least two thirds of the budget, so that the figure is not that of
        a smaller one; its seconds must be known where these are asked for."""
        runs = self.networks.get(network, [])
        if axis == "queries":
            return any(run.forwards[-1] >= 0.66 * budget for run in runs)
        return all(run.cost > 0 for run in runs) and any(run.forwards[-1] * run.cost >= 0.66 * budget for run in runs)

    def points(self) -> list[tuple[float, float, float]]:
        """(seconds, quality, standard error) for the figure; none where a run's seconds are not known."""
        ends = [run.forwards[-1] * run.cost for runs in self.networks.values() for run in runs]
        if not ends or np.isnan(ends).any():
            return []
        found = [(at, *pooled(self, "seconds", at, list(self.networks))) for at in GRID if at <= 1.05 * max(ends)]
        return [point for point in found if point[1] > 0]


def curves(cells: Mapping[str, Mapping[str, Any]]) -> dict[str, list[Curve]]:
    """By distance: a curve for each attack, ours last."""
    found: dict[str, list[Curve]] = {}
    for distance in dict.fromkeys(cell["distance"] for cell in cells.values()):
        mine = [cell for cell in cells.values() if cell["distance"] == distance]
        nearest = _nearest(mine)
        common = {network: _common(mine, network) for network in dict.fromkeys(cell["network"] for cell in mine)}
        made: dict[str, Curve] = {}
        for cell in mine:
            curve = made.setdefault(cell["attack"], Curve(distance, cell["attack"]))
            network = cell["network"]
            curve.networks.setdefault(network, []).append(_course(cell, nearest[network], common[network]))
        order = [*SPECIALISED, *OURS]
        found[distance] = sorted(
            (curve for curve in made.values() if curve.attack in order), key=lambda curve: order.index(curve.attack)
        )
    order = ["l1", "l2", "ciede2000", "lpips", "ssim"]
    return dict(sorted(found.items(), key=lambda pair: order.index(pair[0])))


def _nearest(cells: list[Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    """By network and image: the smallest distance found by anybody."""
    found: dict[str, dict[int, float]] = {}
    for cell in cells:
        mine = found.setdefault(cell["network"], {})
        for image, row in zip(cell["images"], cell["distances"], strict=True):
            if row[-1] is not None:
                mine[image] = min(row[-1], mine.get(image, np.inf))
    return found


def _common(cells: list[Mapping[str, Any]], network: str) -> set[int]:
    """The images of a network that all its runs of ``FEW`` images or more have, so that nobody is compared with himself
    alone."""
    sets = [set(cell["images"]) for cell in cells if cell["network"] == network]
    large = [images for images in sets if len(images) >= FEW] or sets
    return set.intersection(*large)


def _course(cell: Mapping[str, Any], nearest: Mapping[int, float], common: set[int]) -> Course:
    last = cell["forwards"][-1]
    kept = [place for place, mark in enumerate(MARKS) if mark < 0.99 * last]
    distances = np.array(
        [
            [row[place] if row[place] is not None else np.inf for place in (*kept, -1)]
            for image, row in zip(cell["images"], cell["distances"], strict=True)
            if image in common
        ]
    )
    images = [image for image in cell["images"] if image in common]
    best = np.array([nearest.get(image, np.inf) for image in images])
    with np.errstate(invalid="ignore"):
        quality = np.where(np.isfinite(distances), best[:, None] / np.maximum(distances, 1e-300), 0.0)
    forwards = np.array([cell["forwards"][place] for place in kept] + [last])
    query, bare = cell.get("seconds", (np.nan, 1.0))  # not measured yet: it has no place among seconds
    return Course(forwards, query / bare, np.array(images), np.minimum(quality, 1.0).T)


def pooled(curve: Curve, axis: str, budget: float, networks: Sequence[str]) -> tuple[float, float]:
    """Mean quality over networks, each counting the same, and its standard error over images."""
    return _mean([curve.best(network, axis, budget)[1] for network in networks])


def difference(own: Curve, other: Curve, axis: str, budget: float, networks: Sequence[str]) -> tuple[float, float]:
    """Mean of own quality minus the other's on the images both have, and its standard error."""
    parts = []
    for network in networks:
        mine = dict(zip(*own.best(network, axis, budget), strict=True))
        theirs = dict(zip(*other.best(network, axis, budget), strict=True))
        parts.append(np.array([mine[image] - theirs[image] for image in mine if image in theirs]))
    return _mean(parts)


def _mean(parts: list[Array]) -> tuple[float, float]:
    errors = [float(part.var(ddof=1)) / len(part) if len(part) > 1 else 0.0 for part in parts]
    return float(np.mean([part.mean() for part in parts])), float(np.sqrt(sum(errors)) / len(parts))
