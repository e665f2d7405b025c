"""Certified radii beside found distances: the bracket that holds the smallest change of each image. No torch here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..runs.store.fields import finite
from .labels import distance_name, distance_order, radius
from .numbers import Array, median
from .subjects import Subject
from .summary import TENTH, certified_accuracy
from .table import Column, Row, Table

BARS = 60
"""So many images have a bar of their own on the page."""


def certified_of(subject: Subject, distance: str) -> dict[int, float]:
    """By image: the largest radius any run of the subject certified in this distance."""
    found: dict[int, float] = {}
    for run in subject.runs:
        for image, proven in run.certified.get(distance, {}).items():
            found[image] = max(proven, found.get(image, 0.0))
    return found


def bound_of(subject: Subject, distance: str, epsilons: Sequence[float]) -> dict[str, Any] | None:
    """What is certified of a model's images, whichever attack stands beside it; None where nothing was certified."""
    found = certified_of(subject, distance)
    radii = np.array(list(found.values()), dtype=np.float64)
    known = {"images": len(radii), "median": finite(median(radii)), "accuracy": certified_accuracy(radii, epsilons)}
    return known if found else None


def sorted_radii(subject: Subject, distance: str) -> Array | None:
    """The certified radii of a subject's images (N,), sorted; None where not every image has one."""
    found = certified_of(subject, distance)
    if not found or any(image.index not in found for image in subject.images):
        return None
    return np.sort(np.array([found[image.index] for image in subject.images]))


def brackets_of(subject: Subject) -> list[dict[str, Any]]:
    """By distance: the bracket's numbers, certified beside robust accuracy, and a bar for each of some images."""
    made = []
    for distance in distance_order(list({column.info.distance for column in subject.columns})):
        radii = certified_of(subject, distance)
        columns = [
            column for column in subject.columns if column.info.distance == distance and not column.info.targeted
        ]
        if not radii or not columns:
            continue
        nearest = np.fmin.reduce([column.by_image for column in columns])
        pairs: list[dict[str, Any]] = [
            {"id": info.id, "certified": radii[info.index], "found": float(value)}
            for info, value in zip(subject.images, nearest, strict=True)
            if info.index in radii and info.correct and math.isfinite(value) and value > 0
        ]
        shares = np.array([min(pair["certified"] / pair["found"], 1.0) for pair in pairs])
        pairs.sort(key=lambda pair: pair["found"])
        kept = min(BARS, len(pairs))
        certified: dict[float, dict[str, Any]] = {}
        robust: dict[float, dict[str, Any]] = {}
        for column in columns:
            for row in column.numbers.get("certified", {}).get("accuracy", ()):
                certified[row["epsilon"]] = row
            for row in column.numbers["robust_accuracy"]:
                known = robust.get(row["epsilon"])
                if row["value"] is not None and (known is None or row["value"] < known["value"]):
                    robust[row["epsilon"]] = row
        made.append(
            {
                "model": subject.name,
                "distance": distance,
                "label": distance_name(distance).label,
                "images": len(pairs),
                "share": finite(median(shares)),
                "not_certified": int((shares < TENTH).sum()),
                "accuracy": [
                    {"epsilon": epsilon, "certified": certified[epsilon], "robust": robust[epsilon]}
                    for epsilon in sorted(certified)
                    if epsilon in robust
                ],
                "bars": [pairs[place * len(pairs) // kept] for place in range(kept)],
            }
        )
    return made


def accuracy_table(made: dict[str, Any]) -> Table:
    """Certified beside robust accuracy."""
    columns = (
        Column("within", "Within"),
        Column("certified", "Certified accuracy (at least)", "share", order="down"),
        Column("robust", "Robust accuracy (at most)", "share", order="down"),
    )
    rows: list[Row] = [row | {"within": radius(row["epsilon"], made["distance"])} for row in made["accuracy"]]
    return Table(columns, rows, "Certified and robust accuracy")
