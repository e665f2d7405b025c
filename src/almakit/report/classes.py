"""The classes of a model: how robust each is, what its images are taken for, which attack came nearest. No torch
here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..radius import Grid
from ..runs.store.fields import finite
from ..wilson import wilson
from .labels import radius
from .numbers import TIE, Array, Bootstrap, median, robust, share, value_of
from .pictures import class_name
from .results import Results
from .subjects import Group, Subject, group_name
from .table import Column, Row, Table

MOST = 20
"""Classes that are shown one by one; of more those with the most images."""
PAIRS = 15
"""Mistakes that are listed where there are too many classes for a picture."""


def classes_of(subject: Subject) -> list[dict[str, Any]]:
    """One entry for each distance and goal with an attack that looks for the smallest change; none where images have no
    class."""
    if any(run.segmentation or run.aimed for run in subject.runs):
        return []
    found = []
    for group, together in subject.groups.items():
        columns = [column for column in subject.of_group(group) if column.info.minimal]
        if columns:
            names = [column.label.label for column in columns]
            found.append(_classes(subject, group, columns, names, together.grid))
    return found


def _classes(
    subject: Subject, group: Group, columns: Sequence[Results], names: Sequence[str], grid: Grid
) -> dict[str, Any]:
    distances = np.array([column.by_image for column in columns])  # (attacks, images)
    best = np.fmin.reduce(distances)
    radii = subject.radii[group[0]]
    true = np.array([info.label for info in subject.images])
    right = np.array([info.correct for info in subject.images], dtype=np.float64)
    there = ~np.isnan(best)
    sizes = Counter(true[there].tolist())
    shown = sorted(label for label, _ in sizes.most_common(MOST))
    rows = []
    for label in shown:
        here = (true == label) & there
        mine, draw = best[here], Bootstrap(int(here.sum()))
        rows.append(
            {
                "class": class_name(subject, label),
                "images": len(mine),
                "clean": share(right[here], draw),
                "median": finite(median(mine)),
                "robust_accuracy": [
                    {"epsilon": epsilon, **share(robust(mine, epsilon, grid=grid), draw)} for epsilon in radii
                ],
            }
        )
    mistakes = _mistakes(subject, columns, distances, best)
    columns_shown = sorted({after for _, after in mistakes} | set(shown))
    picture = len(sizes) <= MOST and len(columns_shown) <= MOST and bool(mistakes)
    with np.errstate(invalid="ignore"):
        nearest = (distances <= best * (1 + TIE)) & np.isfinite(distances) & (best > 0)
    broken = float(nearest.any(0).sum())
    return {
        "model": subject.name,
        "distance": group[0],
        "title": group_name(group),
        "rows": rows,
        "left_out": len(sizes) - len(shown),
        "matrix": [
            {"class": class_name(subject, label), "taken_for": [mistakes[label, after] for after in columns_shown]}
            for label in (shown if picture else ())
        ],
        "matrix_columns": [class_name(subject, label) for label in (columns_shown if picture else ())],
        "mistakes": [
            {"class": class_name(subject, before), "taken_for": class_name(subject, after), "images": count}
            for (before, after), count in mistakes.most_common(PAIRS)
        ],
        "nearest": [
            {
                "attack": name,
                "images": int(mine.sum()),
                "share": value_of(float(mine.sum() / broken), wilson(mine.sum() / broken, broken)) if broken else None,
            }
            for name, mine in zip(names, nearest, strict=True)
        ],
    }


def _mistakes(subject: Subject, columns: Sequence[Results], distances: Array, best: Array) -> Counter[tuple[int, int]]:
    """(true class, class of the nearest adversarial image) -> how many images; those wrong from the start are left
    out."""
    found: Counter[tuple[int, int]] = Counter()
    for place, info in enumerate(subject.images):
        if math.isfinite(best[place]) and best[place] > 0:
            nearest = columns[int(np.nanargmin(distances[:, place]))].rows[info.index]
            if nearest.prediction is not None:
                found[info.label, nearest.prediction] += 1
    return found


def class_table(made: dict[str, Any]) -> Table:
    """Robustness of each class."""
    columns = [
        Column("class", "True class"),
        Column("images", "Images", "count", order="down"),
        Column("clean", "Clean", "share", order="down"),
        Column("median", "Median", "distance"),
    ]
    rows: list[Row] = []
    for row in made["rows"]:
        cells = {f"at {place}": known for place, known in enumerate(row["robust_accuracy"])}
        rows.append(row | {"median": math.inf if row["median"] is None else row["median"]} | cells)
    for place, known in enumerate(made["rows"][0]["robust_accuracy"] if made["rows"] else ()):
        at = radius(known["epsilon"], made["distance"])
        columns.append(Column(f"at {place}", f"\u03b5 \u2264 {at}", "share", order="down"))
    return Table(tuple(columns), rows, "Robustness of each class")


def mistake_table(made: dict[str, Any]) -> Table:
    """The most frequent mistakes."""
    rows: list[Row] = [
        {"mistake": f"{row['class']} \u2192 {row['taken_for']}", "images": row["images"]} for row in made["mistakes"]
    ]
    columns = (Column("mistake", "Class, taken for"), Column("images", "Images", "count", order="down"))
    return Table(columns, rows, "The most frequent mistakes")


def nearest_table(made: dict[str, Any]) -> Table:
    """Which attack came nearest on how many images."""
    columns = (
        Column("attack", "Attack"),
        Column("images", "Images", "count", order="down"),
        Column("share", "Share", "share", order="down"),
    )
    return Table(columns, made["nearest"], "Nearest on how many images (ties count for all)")
