"""The numbers of one attack, as plain values ready for JSON. No torch here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..runs.store.fields import finite
from ..runs.store.records import (
    ALREADY_WRONG,
    INVALID,
    ROBUST,
    STATUSES,
    SUCCESS,
    AttackInfo,
    Record,
    outcome,
    reach_of,
)
from .brackets import bracket
from .courses import course
from .numbers import Array, Bootstrap, area_under_curve, mean, median, optimality, quantile, robust, share, value_of
from .worst import EPSILONS, distances_of, grid_of

QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
IMAGES, RECORDS = "images", "records"


def attack_summary(
    info: AttackInfo,
    records: Sequence[Record],
    best: dict[tuple[int, int | None], float] | None = None,
    epsilons: Sequence[float] = (),
    seed: int = 0,
    certified: dict[int, float] | None = None,
    step: float = 0.0,
) -> dict[str, Any]:
    """The numbers of one attack. ``best`` is d* of its distance by (image, target), from this run or from many;
    ``certified`` its images' radii; ``step`` the spacing of the run's grid."""
    distances, coarse = distances_of(records), distances_of(records, eight_bit=True)
    attacked = np.array([record.attacked for record in records], dtype=bool)
    draw = Bootstrap([record.image for record in records], seed)
    seen = {record.image for record in records}
    reach, grid = reach_of(info, distances), grid_of(info, distances, step)
    # An attack at a fixed radius does not look for the smallest.
    smallest = distances if info.minimal else np.full(0, np.nan)
    smallest_8bit, worked = (coarse, attacked) if info.minimal else (smallest, np.full(0, True))
    summary: dict[str, Any] = {
        "attack": info.text,
        "name": info.text,  # with what is unusual in the threat model, where a run is known
        "title": info.title,
        "distance": info.distance,
        "minimal": info.minimal,
        "targeted": info.targeted,
        "records": len(records),
        "over": RECORDS if len(seen) < len(records) else IMAGES,  # what medians, shares and robust accuracy are over
        "images": len(seen),
        "attacked": int(attacked.sum()),
        "status": _statuses(info, records),
        "refuted": sum(record.refuted for record in records),
        "success_rate": share(np.isfinite(distances).astype(np.float64), draw),
        "success_rate_8bit": share(np.isfinite(coarse).astype(np.float64), draw),
        "success_rate_attacked": finite(mean(np.isfinite(distances[attacked]).astype(np.float64))),
        "median_all": value_of(median(smallest), draw.of_median(smallest)),
        "median_attacked": value_of(median(smallest[worked]), draw.of_median(smallest, worked)),
        "median_all_8bit": value_of(median(smallest_8bit), draw.of_median(smallest_8bit)),
        "mean_all": value_of(mean(smallest), draw.of_mean(smallest))
        if info.minimal
        else value_of(math.nan, (math.nan, math.nan)),
        "mean_attacked": finite(mean(smallest[worked])),
        "mean_found": finite(mean(smallest[worked & np.isfinite(smallest)])),
        "quantiles_all": [{"at": at, "value": finite(quantile(smallest, at))} for at in QUANTILES]
        if info.minimal
        else [],
        # The fixed radius an attack looked in, of which alone it speaks; null: it looks for the smallest change.
        "epsilon": finite(reach),
        "robust_accuracy": [
            {"epsilon": epsilon, **share(robust(distances, epsilon, reach, grid), draw)}
            for epsilon in _radii(info, distances, epsilons, reach)
        ],
        "forwards": _cost([record.forwards for record in records if record.attacked]),
        "backwards": _cost([record.backwards for record in records if record.attacked]),
        "seconds": {
            "per_image": finite(mean(np.array([record.seconds for record in records]))),
            "total": finite(sum(record.seconds for record in records)),
        },
    }
    if lent := [r.surrogate_forwards for r in records if r.attacked and r.surrogate_forwards is not None]:
        summary["surrogate_forwards"] = _cost(lent)
    if steps := course(info, records):
        summary["course"] = steps
    summary |= _against_best(records, distances, best if info.minimal else None)
    summary |= bracket(info, records, distances, certified, _radii(info, distances, epsilons, reach))
    if len(seen) < len(records):
        summary["best_target"] = _best_target(records)
    return summary


def _against_best(
    records: Sequence[Record], distances: Array, best: dict[tuple[int, int | None], float] | None
) -> dict[str, Any]:
    """Optimality and the area under the curve, both up to d_max, the largest best known distance."""
    if best is None:
        return {}
    known = np.array([best.get((record.image, record.target), math.inf) for record in records], dtype=np.float64)
    known = np.minimum(known, distances)
    unattacked = mean(np.array([not record.attacked for record in records], dtype=np.float64))
    xi, furthest = optimality(distances, known, 1 - unattacked)
    area = area_under_curve(distances, furthest) if furthest > 0 else math.nan
    return {
        "optimality": {
            "value": finite(xi),
            "d_max": finite(furthest),
            "mean_best": finite(mean(np.minimum(known, furthest))),
        },
        "area": {
            "value": finite(area),
            "up_to": finite(furthest),
            "normalised": finite(area / furthest if furthest > 0 else math.nan),
        },
    }


def _best_target(records: Sequence[Record]) -> dict[str, Any]:
    """With all targets tried: each image by its nearest target."""
    nearest: dict[int, float] = {}
    for record in records:
        nearest[record.image] = min(nearest.get(record.image, math.inf), record.verified)
    values = np.array([nearest[image] for image in sorted(nearest)], dtype=np.float64)
    return {
        "success_rate": finite(mean(np.isfinite(values).astype(np.float64))),
        "median": finite(median(values)),
        "mean": finite(mean(values)),
    }


def _radii(info: AttackInfo, distances: Array, further: Sequence[float], reach: float) -> list[float]:
    """Where robust accuracy is given: for an attack at a fixed epsilon there alone."""
    if math.isfinite(reach):
        return [reach]
    finite = distances[np.isfinite(distances) & (distances > 0)]
    own = [float(f"{np.quantile(finite, at):.3g}") for at in (0.1, 0.25, 0.5, 0.75, 0.9)] if len(finite) else []
    return sorted({0.0, *EPSILONS.get(info.distance, ()), *own, *map(float, further)})


def _statuses(info: AttackInfo, records: Sequence[Record]) -> dict[str, int]:
    """How many ended how; at a fixed epsilon ``robust`` takes the place of ``failed``."""
    found = [outcome(record, info) for record in records]
    return {
        status: found.count(status)
        for status in (STATUSES if info.minimal else (ALREADY_WRONG, SUCCESS, ROBUST, INVALID))
    }


def _cost(counts: Sequence[int]) -> dict[str, float | int | None]:
    """Passes per attacked image, as the paper counts."""
    array = np.array(counts, dtype=np.float64)
    return {
        "mean": finite(mean(array)),
        "median": finite(median(array)),
        "max": int(max(counts, default=0)),
        "total": int(sum(counts)),
    }
