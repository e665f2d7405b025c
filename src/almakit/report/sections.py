"""The page's sections beside tables and charts: classes, certified radii, features, votes and transfers, as plain
values for the templates. No torch here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..runs.folder import RunFolder
from ..runs.store.derived import Seen, read_transfers
from ..runs.store.fields import finite
from ..runs.store.records import SUCCESS, Record
from ..wilson import wilson
from .labels import distance_name, distance_order, label_attacks
from .numbers import Array, Bootstrap, median, robust, share
from .pictures import choose, class_name
from .subjects import Column, Subject, common_step, group_name, groups_of, labelled
from .summary import TENTH, certified_accuracy, grid_of
from .table import percent

if TYPE_CHECKING:
    from ..data.features import Features

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
    clean: dict[str, Any]  # share classified as labelled, with its interval
    median: float | None  # of the smallest distance any attack found, None: infinite
    robust: list[dict[str, Any]]  # share that resists every attack, at the block's radii, with its interval


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
    radii = subject.radii.get(group[0], [])

    def called(label: int) -> str:
        return class_name(subject, label)

    true = np.array([info.label for info in subject.images])
    right = np.array([info.correct for info in subject.images], dtype=np.float64)
    there = ~np.isnan(best)
    by_size = Counter(true[there].tolist()).most_common(MOST)
    shown = sorted(label for label, _ in by_size)
    rows = []
    for label in shown:
        mine = best[(true == label) & there]
        middle, draw = median(mine), Bootstrap(len(mine))
        rows.append(
            ClassRow(
                called(label),
                len(mine),
                share(right[(true == label) & there], draw),
                finite(middle),
                [share(robust(mine, epsilon, grid=grid), draw) for epsilon in radii],
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


def bound_of(subject: Subject, distance: str, epsilons: Sequence[float]) -> dict[str, Any] | None:
    """What is certified of a model's images, whichever attack stands beside it; None where nothing was certified."""
    found = certified_of(subject, distance)
    radii = np.array(list(found.values()), dtype=np.float64)
    known = {"images": len(radii), "median": finite(median(radii)), "accuracy": certified_accuracy(radii, epsilons)}
    return known if found else None


BARS = 60
"""So many images have a bar of their own on the page."""


def certified_of(subject: Subject, distance: str) -> dict[int, float]:
    """By image: the largest radius any run of the subject certified in this distance."""
    found: dict[int, float] = {}
    for run in subject.runs:
        for image, radius in run.certified.get(distance, {}).items():
            found[image] = max(radius, found.get(image, 0.0))
    return found


def sorted_radii(subject: Subject, distance: str) -> Array | None:
    """The certified radii of a subject's images (N,), sorted; None where not every image has one."""
    radii = certified_of(subject, distance)
    return (
        np.sort(np.array([radii[image.index] for image in subject.images]))
        if radii and radii.keys() >= {image.index for image in subject.images}
        else None
    )


def brackets(subjects: Sequence[Subject]) -> list[dict[str, Any]]:
    """For the page, by model and distance: the bracket's numbers, certified beside robust accuracy, and a bar for each
    of some images."""
    made = []
    for subject in subjects:
        for distance in distance_order(list({column.info.distance for column in subject.columns})):
            radii, columns = (
                certified_of(subject, distance),
                [column for column in subject.columns if column.info.distance == distance and not column.info.targeted],
            )
            if not radii or not columns:
                continue
            nearest = np.fmin.reduce([column.distances for column in columns])
            pairs = [
                (info.id, radii[info.index], float(value))
                for info, value in zip(subject.images, nearest, strict=True)
                if info.index in radii and info.correct and math.isfinite(value) and value > 0
            ]
            shares = np.array([min(radius / value, 1.0) for _, radius, value in pairs])
            furthest = max((value for _, _, value in pairs), default=1.0)
            kept = sorted(pairs, key=lambda pair: pair[2])
            kept = [kept[place * len(kept) // min(BARS, len(kept))] for place in range(min(BARS, len(kept)))]
            accuracy = {
                row["epsilon"]: row
                for column in columns
                for row in column.numbers.get("certified", {}).get("accuracy", ())
            }
            robust: dict[float, dict[str, Any]] = {}
            for column in columns:
                for row in column.numbers["robust_accuracy"]:
                    if row["value"] is None:
                        continue
                    known = robust.setdefault(row["epsilon"], row)
                    robust[row["epsilon"]] = min(row, known, key=lambda one: float(one["value"]))
            made.append(
                {
                    "model": subject.name,
                    "distance": distance_name(distance).label,
                    "key": distance,
                    "images": len(pairs),
                    "share": finite(median(shares)),
                    "not_certified": int((shares < TENTH).sum()),
                    "useful": len(shares) > 0 and float(median(shares)) >= TENTH,
                    "accuracy": [
                        (epsilon, accuracy[epsilon], robust[epsilon])
                        for epsilon in sorted(accuracy)
                        if epsilon in robust
                    ],
                    "bars": [
                        {
                            "id": name,
                            "certified": radius,
                            "found": value,
                            "low": 100 * min(radius, value) / furthest,
                            "high": 100 * value / furthest,
                        }
                        for name, radius, value in kept
                    ],
                }
            )
    return made


# Features and votes.

MOST_ROWS, MOST_FEATURES, MOST_EXAMPLES, MOST_PARTS = 2000, 20, 12, 6


def features(subjects: Sequence[Subject]) -> list[dict[str, Any]]:
    """For each model on such data: every attack's features by how often they change, and examples; empty for images."""
    return [
        {
            "model": subject.name,
            "attacks": [
                changed_features(column, found, [row for row in column.rows.values() if _stored(row)])
                for column in subject.columns
            ],
            "examples": _examples(subject, found),
            "count": found.lo.size,
        }
        for subject in subjects
        if (found := subject.runs[0].features) is not None
    ]


def _stored(record: Record) -> bool:
    return record.status == SUCCESS and not record.refuted and record.slot is not None


def changed_features(column: Column, features: Features, records: Sequence[Record]) -> dict[str, Any]:
    """How often each feature changes among an attack's verified successes, and how far in its own units where it does;
    the most often changed first."""
    sample = [
        records[place * len(records) // min(len(records), MOST_ROWS)] for place in range(min(len(records), MOST_ROWS))
    ]
    found: dict[str, Any] = {"text": column.info.text, "successes": len(records), "sample": len(sample), "rows": []}
    if not sample:
        return found
    before, after = changes_of(column, features, sample)
    moved = after - before
    changed = moved != 0
    share = changed.mean(0)
    for place in np.argsort(-share, kind="stable")[:MOST_FEATURES]:
        steps = moved[changed[:, place], place]
        if not len(steps):
            break
        found["rows"].append(
            {
                "name": features.name(int(place)),
                "share": float(share[place]),
                "median": float(np.median(np.abs(steps))),
                "largest": float(np.abs(steps).max()),
                "up": float((steps > 0).mean()),
                "lo": float(features.lo.flat[place]),
                "hi": float(features.hi.flat[place]),
            }
        )
    found["mean"] = float(changed.sum(1).mean())
    return found


def changes_of(column: Column, features: Features, records: Sequence[Record]) -> tuple[Any, Any]:
    """The features (N, n) of the clean inputs and of what the attack made of them, in their own units."""
    run = column.run
    clean, points = run.originals([record.image for record in records]), run.adversarials(list(records))
    # Both on the same grid of floats: what is unchanged in [0, 1] is unchanged in its own units.
    return (
        features.own(clean.astype(points.dtype)).reshape(len(records), -1),
        features.own(points).reshape(len(records), -1),
    )


def _examples(subject: Subject, features: Features) -> list[dict[str, Any]]:
    """Some inputs with the changes that each attack made, the largest in widths of their ranges first."""
    shown = []
    for place in choose(subject, MOST_EXAMPLES):
        info = subject.images[place]
        results = []
        for column in subject.columns:
            record = column.rows.get(info.index)
            if record is None or not _stored(record):
                continue
            before, after = (values[0] for values in changes_of(column, features, [record]))
            order = np.argsort(-np.abs(after - before) / features.sides.ravel(), kind="stable")
            parts = [int(each) for each in order if after[each] != before[each]]
            results.append(
                {
                    "text": column.info.text,
                    "prediction": class_name(subject, record.prediction),
                    "distance": record.verified,
                    "vote": record.vote,
                    "parts": [
                        (
                            features.name(each),
                            float(before[each]),
                            float(after[each]),
                            float(after[each] - before[each]),
                        )
                        for each in parts[:MOST_PARTS]
                    ],
                    "more": max(0, len(parts) - MOST_PARTS),
                }
            )
        shown.append({"id": info.id, "label": class_name(subject, info.label), "results": results})
    return [example for example in shown if example["results"]]


def votes(subjects: Sequence[Subject]) -> list[dict[str, Any]]:
    """For each model that was asked several times: every attack's claims and the shares of the votes they got."""
    return [
        {
            "model": subject.name,
            "eot": spec.eot,
            "votes": spec.votes,
            "share": spec.vote_share,
            "attacks": [_votes(column, spec.votes) for column in subject.columns],
        }
        for subject in subjects
        if (spec := subject.runs[0].spec).eot is not None
    ]


def _votes(column: Column, passes: int) -> dict[str, Any]:
    claims = [row for row in column.rows.values() if row.claimed and row.vote is not None]
    shares = sorted(row.vote for row in claims if row.vote is not None)
    return {
        "text": column.info.text,
        "claims": len(claims),
        "refuted": sum(row.refuted for row in claims),
        "quantiles": [(share, *wilson(share, passes)) for share in (shares[0], shares[len(shares) // 2], shares[-1])]
        if shares
        else [],
    }


# Transfers.


def matrix(runs: Sequence[RunFolder]) -> dict[str, Any] | None:
    """Rows: each run's model and attack, columns: the models that were asked; None where none was.

    A cell counts the stored images of the row whose goal the column's model does not reach on the clean image, and
    those of them that reach it with the stored one.
    """
    asked = [
        (run, {(part.target, str(part.model_sha256)): part for part in read_transfers(run.folder)}) for run in runs
    ]
    targets = list(dict.fromkeys(key for _, parts in asked for key in parts))
    if not targets:
        return None
    rows = [
        {
            "source": _source(run, runs),
            "attack": info.text,
            "label": label.label,
            "cells": [_cell(parts[key].seen.get(info.text, {}) if key in parts else {}) for key in targets],
        }
        for run, parts in asked
        if parts
        for info, label in zip(run.attacks, label_attacks(run.attacks), strict=True)
    ]
    names = [name for name, _ in targets]
    # Models of one name, such as a file before and after an edit, are told apart by their identity.
    shown = [f"{name} ({model[:8]})" if names.count(name) > 1 else name for name, model in targets]
    return {"targets": shown, "rows": rows}


def _source(run: RunFolder, runs: Sequence[RunFolder]) -> str:
    """The run's model, with its folder where another model of the same name stands beside it."""
    name = run.spec.model
    others = [other for other in runs if other.spec.model == name and other.model_sha256 != run.model_sha256]
    return f"{name} ({run.folder.name})" if others else name


def _cell(seen: dict[str, Seen]) -> dict[str, Any] | None:
    right = [stored for clean, stored in seen.values() if not clean]
    if not right:
        return None
    value, low, high = (sum(right) / len(right), *wilson(sum(right) / len(right), len(right)))
    return {"images": len(right), "fooled": sum(right), "share": value, "low": low, "high": high}


def as_text(made: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and rows of a matrix for a terminal."""
    cells = [[f"{percent(cell['share'])} %" if cell else "-" for cell in row["cells"]] for row in made["rows"]]
    rows = [(row["source"], row["attack"], *shown) for row, shown in zip(made["rows"], cells, strict=True)]
    return ("found with", "attack", *made["targets"]), rows
