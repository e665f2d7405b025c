"""What the page's script reads: distances of every image, the gallery, courses of a few, as one JSON value. No
torch here."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..runs.store.records import MEASURED
from ..runs.threat import goal_name, resisted
from .brackets import sorted_radii
from .gallery import gallery_of, rounded
from .labels import AttackLabel, distance_name, distance_order, radius
from .numbers import Array, worst_distances
from .palette import slot
from .pictures import Album
from .subjects import Column, Subject, group_key, group_name, groups_of, labelled

CELLS = 300_000
"""So many distances a page holds; of larger runs it keeps an even sample of images for the scatter plot, and curves of
this many points: """
CURVE = 2_000


@dataclass(frozen=True)
class Limits:
    """How much of the images goes into the page."""

    images: int = 60
    megabytes: float = 12.0


USUAL = Limits()


def build(subjects: Sequence[Subject], limits: Limits) -> dict[str, Any]:
    """The page's data; all names in it come from outside and are only ever used as text."""
    columns = [(number, column) for number, subject in enumerate(subjects) for column in subject.columns]
    named = labelled(subjects)
    labels = [named[id(column)] for _, column in columns]
    methods = list(dict.fromkeys(label.method for label in labels))
    album = Album(int(limits.megabytes * 1e6))
    cells = sum(len(subject.images) * len(subject.columns) for subject in subjects)
    share = min(1.0, CELLS / max(cells, 1))
    samples = [_sample(len(subject.images), share) for subject in subjects]
    attacks = [
        _attack(subjects[number], number, column, label, methods, samples[number])
        for (number, column), label in zip(columns, labels, strict=True)
    ]
    gallery, models = [], []
    first = 0
    for number, subject in enumerate(subjects):
        shown = gallery_of(subject, number, first, limits.images, album)
        gallery += shown
        models.append(_model(subject, samples[number], len(shown)))
        first += len(subject.columns)
    return {
        "models": models,
        "distances": [
            {"key": key, "label": distance_name(key).label}
            for key in distance_order(list({column.info.distance for _, column in columns}))
        ],
        "groups": [
            {
                "key": group_key(group),
                "distance": group[0],
                "goal": group[1],
                "what": resisted(goal_name(group[1])),
                "label": group_name(group, long=False),
                "long": group_name(group),
            }
            for group in groups_of(subjects)
        ],
        "measures": [{"key": key, "label": distance_name(key).label} for key in MEASURED],
        "methods": [
            {"label": method, "colour": slot(place)[0], "marker": slot(place)[1]}
            for place, method in enumerate(methods)
        ],
        "attacks": attacks,
        "envelopes": [
            envelope for number, subject in enumerate(subjects) for envelope in _envelopes(subject, number, share)
        ],
        "certified": [part for number, subject in enumerate(subjects) for part in _certified(subject, number, share)],
        "gallery": gallery,
        "pictures": album.uris,
        "traces": _traces(subjects),
        "room": {"images": limits.images, "megabytes": limits.megabytes, "full": album.full},
    }


def _sample(count: int, share: float) -> list[int]:
    """Places of an even sample."""
    kept = count if share >= 1 else max(1, int(count * share))
    return [place * count // kept for place in range(kept)] if kept else []


def _model(subject: Subject, sample: list[int], shown: int) -> dict[str, Any]:
    return {
        "name": subject.name,
        "classes": subject.class_names,
        "aimed": subject.runs[0].aimed,  # its two classes are whether a goal is reached
        "images": len(subject.images),
        "shown": shown,
        "sampled": len(sample) if len(sample) < len(subject.images) else None,
        "ids": [subject.images[place].id for place in sample],
        "labels": [subject.images[place].label for place in sample],
    }


def _attack(
    subject: Subject, number: int, column: Column, label: AttackLabel, methods: list[str], sample: list[int]
) -> dict[str, Any]:
    distances, part = column.distances, column.numbers
    done = distances[~np.isnan(distances)]
    curve = thinned(done) if len(sample) < len(subject.images) else None
    fixed = (
        None
        if math.isinf(column.reach)
        else {"text": radius(column.reach, column.info.distance), **part["robust_accuracy"][0], "epsilon": column.reach}
    )
    return {
        "model": number,
        "label": label.label,
        "text": column.info.text,
        "distance": column.info.distance,
        "group": group_key(column.group),
        "method": methods.index(label.method),
        "dash": label.dash,
        "cells": packed(distances[sample]),
        "curve": None if curve is None else packed(curve),
        "grid": asdict(column.grid),
        "fixed": fixed,
        "done": len(done),
        "success": part["success_rate"]["value"],
        "median": part["median_all"]["value"],
        "medianAttacked": part["median_attacked"]["value"],
        "forwards": part["forwards"]["mean"],
        "backwards": part["backwards"]["mean"],
        "seconds": part["seconds"]["per_image"],
    }


def packed(values: Array) -> str:
    """Little-endian float32 in base64; infinities and NaN survive."""
    with np.errstate(over="ignore"):
        return base64.b64encode(values.astype("<f4").tobytes()).decode("ascii")


def thinned(distances: Array) -> Array:
    """At most ``CURVE`` sorted distances that stand for all: the share above any epsilon is right to 1/(2 CURVE)."""
    ordered = np.sort(distances)
    if len(ordered) <= CURVE:
        return ordered
    return ordered[((np.arange(CURVE) + 0.5) * len(ordered) / CURVE).astype(np.int64)]


def _envelopes(subject: Subject, number: int, share: float) -> list[dict[str, Any]]:
    """For each block with several attacks: from where on some attack breaks each image. Attacks at fixed radii alone
    have no curve."""
    found = []
    for group in groups_of([subject]):
        columns = subject.of_group(group)
        if len(columns) > 1 and any(column.info.minimal for column in columns):
            best = worst_distances([column.distances for column in columns], [column.reach for column in columns])
            best = best[~np.isnan(best)]
            found.append(
                {
                    "grid": asdict(subject.together(group).grid),
                    "model": number,
                    "group": group_key(group),
                    "curve": packed(np.sort(best) if share >= 1 else thinned(best)),
                }
            )
    return found


def _certified(subject: Subject, number: int, share: float) -> list[dict[str, Any]]:
    """For each untargeted block whose images are all certified: the radii below which nothing changes them."""
    found = []
    for distance, goal in groups_of([subject]):
        radii = None if goal else sorted_radii(subject, distance)
        if radii is not None:
            found.append(
                {
                    "model": number,
                    "group": group_key((distance, goal)),
                    "curve": packed(radii if share >= 1 else thinned(radii)),
                }
            )
    return found


def _traces(subjects: Sequence[Subject]) -> list[dict[str, Any]]:
    """The recorded courses, with the numbers the page gives the attacks."""
    found, first = [], 0
    for number, subject in enumerate(subjects):
        places = {id(column.run): {} for column in subject.columns}  # type: dict[int, dict[int, int]]
        for offset, column in enumerate(subject.columns):
            places[id(column.run)][column.info.index] = first + offset
        ids = {info.index: info.id for info in subject.images}
        for run in subject.runs:
            for trace in run.traces:
                if trace.attack in places.get(id(run), {}) and trace.image in ids:
                    found.append(
                        {
                            "model": number,
                            "attack": places[id(run)][trace.attack],
                            "image": trace.image,
                            "id": ids[trace.image],
                            "target": trace.target,
                            "values": {
                                name: [_short(value) for value in values] for name, values in trace.values.items()
                            },
                        }
                    )
        first += len(subject.columns)
    return found


def _short(value: Any) -> Any:
    return rounded(value) if isinstance(value, float) else value
