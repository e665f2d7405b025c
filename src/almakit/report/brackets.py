"""Certified radii beside found distances: the numbers of a bracket. No torch here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..runs.store.fields import finite
from ..runs.store.records import AttackInfo, Record
from .labels import distance_name, distance_order
from .numbers import Array, median

if TYPE_CHECKING:
    from .subjects import Subject

TENTH = 0.1
"""Below this part of the found distance a bound says too little to be shown: "not certified"."""


def radii_of(records: Sequence[Record], certified: dict[int, float]) -> Array:
    """(N,) each record's certified radius; NaN where nobody has looked."""
    return np.array([certified.get(record.image, math.nan) for record in records], dtype=np.float64)


def bracket(
    info: AttackInfo,
    records: Sequence[Record],
    distances: Array,
    certified: dict[int, float] | None,
    epsilons: Sequence[float],
) -> dict[str, Any]:
    """What the certified radii say about one attack's distances; empty where there are none, or the attack is
    targeted."""
    if certified is None or info.targeted:
        return {}
    radii = radii_of(records, certified)
    known = ~np.isnan(radii)
    attacked = known & np.array([record.attacked for record in records], dtype=bool)
    both = attacked & np.isfinite(distances)
    share = np.minimum(radii[both], distances[both]) / distances[both]
    return {
        "certified": {
            "images": int(known.sum()),
            "median": finite(median(radii[known])),
            "median_attacked": finite(median(radii[attacked])),
            "share": finite(median(share)),
            "gap": finite(median(distances[both] - radii[both])),
            "not_certified": int((share < TENTH).sum()),
            "accuracy": _accuracy(radii[known], epsilons),
        }
    }


def bound_of(subject: Subject, distance: str, epsilons: Sequence[float]) -> dict[str, Any] | None:
    """What is certified of a model's images, whichever attack stands beside it; None where nobody has looked."""
    found = certified_of(subject, distance)
    radii = np.array(list(found.values()), dtype=np.float64)
    return (
        {"images": len(radii), "median": finite(median(radii)), "accuracy": _accuracy(radii, epsilons)}
        if found
        else None
    )


def _accuracy(radii: Array, epsilons: Sequence[float]) -> list[dict[str, float | None]]:
    """The share of the known ``radii`` (N,) that reach each epsilon; at 0, of those above it."""
    return [
        {
            "epsilon": epsilon,
            "value": finite(float(np.mean(radii >= epsilon if epsilon > 0 else radii > 0))) if len(radii) else None,
        }
        for epsilon in epsilons
    ]


def words(certified: dict[str, Any] | None) -> tuple[str, str]:
    """The cells "certified >=" and "gap" of a table: the median radius, and how far the found distance lies above it,
    in percent of what was found."""
    if certified is None:
        return "-", "-"
    share = certified["share"]
    if share is None or share < TENTH:
        return "not certified", "-"
    return f"{certified['median_attacked']:.4g}" if certified[
        "median_attacked"
    ] is not None else "inf", f"{100 * (1 - share):.0f} %"


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


def sections(subjects: Sequence[Subject]) -> list[dict[str, Any]]:
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
                row["epsilon"]: row["value"]
                for column in columns
                for row in column.numbers.get("certified", {}).get("accuracy", ())
            }
            robust: dict[float, float] = {}
            for column in columns:
                for row in column.numbers["robust_accuracy"]:
                    if row["value"] is None:
                        continue
                    robust[row["epsilon"]] = min(row["value"], robust.get(row["epsilon"], 1.0))
            made.append(
                {
                    "model": subject.name,
                    "distance": distance_name(distance).label,
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
