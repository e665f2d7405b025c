"""Class by class: how robust each class is, what adversarial images are taken for, and which attack came nearest on
each image. No torch here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..runs.store.fields import finite
from .numbers import mean, median, robust
from .subjects import Column, Subject, common_step, group_name, groups_of, labelled
from .worst import grid_of

MOST = 20
"""Classes that a page shows one by one; of more it shows those with the most images."""
PAIRS = 15
"""Mistakes that are listed where there are too many classes for a picture."""
TIE = 1e-3
"""Distances closer than one in a thousand are equal, as in comparisons."""


@dataclass(frozen=True)
class ClassRow:
    """One true class."""

    name: str
    images: int
    clean: float  # share classified as labelled
    median: float | None  # of the smallest distance any attack found, None: infinite
    robust: list[float | None]  # share that resists every attack, at the block's radii


@dataclass(frozen=True)
class Portrait:
    """What a block of attacks says of the classes of a subject."""

    title: str
    radii: list[float]
    distance: str
    rows: list[ClassRow]
    left_out: int  # classes with fewer images that are not shown
    columns: list[str]  # names of the adversarial classes, where there is a picture of them
    cells: list[tuple[str, list[tuple[int, int]]]]  # true class, then for each column: count and level 0 to 9
    pairs: list[tuple[str, str, int]]  # true class, adversarial class, count: instead of a picture, the most frequent
    winners: list[
        tuple[str, int, float]
    ]  # attack, images it came nearest on (ties count for all), share of the images that were broken


def portraits(subjects: Sequence[Subject]) -> list[list[Portrait]]:
    """For each subject one portrait per block with an attack that looks for the smallest change."""
    names = labelled(subjects)
    found: list[list[Portrait]] = []
    for subject in subjects:
        if any(run.segmentation or run.aimed for run in subject.runs):
            found.append([])  # images have no class
            continue
        groups = [
            group for group in groups_of([subject]) if any(column.info.minimal for column in subject.of_group(group))
        ]
        found.append(
            [
                _portrait(subject, group, {id(column): names[id(column)].label for column in subject.columns})
                for group in groups
            ]
        )
    return found


def _portrait(subject: Subject, group: tuple[str, str], labels: dict[int, str]) -> Portrait:
    columns = [column for column in subject.of_group(group) if column.info.minimal]
    distances = np.array([column.distances for column in columns])  # (attacks, images)
    with np.errstate(invalid="ignore"):
        best = np.fmin.reduce(distances)
        ties = (distances <= best * (1 + TIE)) & np.isfinite(distances) & (best > 0)
    grid = grid_of(columns[0].info, distances.flatten(), common_step(columns))
    names, radii = subject.class_names, subject.radii.get(group[0], [])

    def called(label: int) -> str:
        return names[label] if names and 0 <= label < len(names) else str(label)

    true = np.array([info.label for info in subject.images])
    right = np.array([info.correct for info in subject.images], dtype=np.float64)
    there = ~np.isnan(best)
    by_size = Counter(true[there].tolist()).most_common(MOST)
    shown = sorted(label for label, _ in by_size)
    rows = []
    for label in shown:
        mine = best[(true == label) & there]
        middle = median(mine)
        rows.append(
            ClassRow(
                called(label),
                len(mine),
                mean(right[(true == label) & there]),
                finite(middle),
                [mean(robust(mine, epsilon, grid=grid)) for epsilon in radii],
            )
        )
    mistakes = _mistakes(subject, columns, distances, best)
    heads = sorted({after for _, after in mistakes} | set(shown))
    total = len(set(true[there].tolist()))
    picture = total <= MOST and len(heads) <= MOST and bool(mistakes)
    most = max(mistakes.values(), default=1)
    cells = [
        (called(label), [(mistakes[label, after], math.ceil(9 * mistakes[label, after] / most)) for after in heads])
        for label in shown
    ]
    pairs = [(called(a), called(b), count) for (a, b), count in mistakes.most_common(PAIRS)]
    broken = int(ties.any(0).sum()) if len(columns) else 0
    winners = [
        (labels[id(column)], int(row.sum()), float(row.sum() / broken) if broken else 0.0)
        for column, row in zip(columns, ties, strict=True)
    ]
    return Portrait(
        group_name(group),
        radii,
        group[0],
        rows,
        total - len(shown),
        [called(label) for label in heads] if picture else [],
        cells if picture else [],
        [] if picture else pairs,
        winners if len(columns) > 1 else [],
    )


def _mistakes(
    subject: Subject, columns: Sequence[Column], distances: np.ndarray, best: np.ndarray
) -> Counter[tuple[int, int]]:
    """(true class, class of the nearest adversarial image) -> how many images; those wrong from the start are left
    out."""
    found: Counter[tuple[int, int]] = Counter()
    for place, info in enumerate(subject.images):
        if not math.isfinite(best[place]) or best[place] == 0:
            continue
        nearest = columns[int(np.nanargmin(distances[:, place]))].rows[info.index]
        if nearest.prediction is not None:
            found[info.label, nearest.prediction] += 1
    return found
