"""Records to numbers: everything a run's tables and figures show, as plain values ready for JSON. No torch here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..eval.records import MEASURED, STATUSES, AttackInfo, ImageInfo, Record
from ..eval.threat import goal_name, named, sentence, threat_of
from .labels import label_attacks
from .numbers import SLACK, Array, Bootstrap, area_under_curve, geometric_mean, mean, median, optimality, quantile, reach_of, robust, robust_accuracy

if TYPE_CHECKING:
    from ..eval.folder import Run

FORMAT = 1
QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
NULL_MEANS = "a distance of null is infinite (nothing found for enough images); any other null is not defined for this run"
EPSILONS: dict[str, tuple[float, ...]] = {
    "linf": (1 / 255, 2 / 255, 4 / 255, 8 / 255, 0.1, 0.2, 0.3),
    "l2": (0.25, 0.5, 1.0, 1.5, 2.0, 3.0),
    "l1": (2.0, 5.0, 8.0, 12.0, 20.0),
    "l0": (5.0, 10.0, 20.0, 50.0),
}
"""Radii people compare at; a run's own quantiles are added, and ``robust_accuracy`` answers for any other."""

Value = dict[str, float | None]
IMAGES, RECORDS = "images", "records"


def summarise(run: Run, epsilons: Sequence[float] = (), seed: int = 0) -> dict[str, Any]:
    """The summary of a run folder, as written to ``summary.json``; ``epsilons`` are further radii for robust accuracy."""
    images, attacks = run.images, run.attacks
    expected = int(run.meta.get("images", len(images)))
    rounds = int(run.meta.get("classes", 0)) - 1 if run.spec.targets == "all" else 1
    best = best_known(run.records, attacks, images)
    session = run.sessions[0] if run.sessions else {}
    threat = threat_of(run.spec)
    labels = label_attacks(attacks, [threat] * len(attacks))
    parts = [
        attack_summary(info, run.records_of(info.index), images, best.get(info.distance), epsilons, seed)
        | {"label": label.label, "name": named(info.text, run.spec), "goal": goal_name(threat.goal)}
        for info, label in zip(attacks, labels, strict=True)
    ]
    missing = sum(expected * max(rounds, 1) - len(run.records_of(info.index)) for info in attacks)
    draw = Bootstrap(len(images), seed)
    return {
        "format": FORMAT,
        "null_means": NULL_MEANS,
        "run": {
            "model": run.meta.get("model"),
            "data": run.meta.get("data"),
            "spec_sha256": run.meta.get("spec_sha256"),
            "weights_sha256": run.meta.get("weights_sha256"),
            "data_sha256": run.meta.get("data_sha256"),
            "seed": run.spec.seed,
            "bits": run.spec.bits,
            "targets": run.spec.targets,
            "budget": run.spec.budget,
            "dtype": run.spec.dtype,
            "batch_size": run.spec.batch_size,
            "layout": run.spec.layout,
            "accelerate": run.spec.accelerate,
            "threat_model": sentence(threat),
        },
        "environment": session.get("environment"),
        "started": session.get("started"),
        "complete": missing == 0,
        "missing_records": missing,
        "failed_chunks": [
            {"attack": row.key.attack, "chunk": row.key.chunk, "round": row.key.round, "images": row.images, "tries": row.tries, "reason": row.reason}
            for row in run.failures
        ],
        "images": len(images),
        "clean_accuracy": _share(np.array([info.correct for info in images], dtype=np.float64), draw),
        "findings": run.findings,
        "attacks": parts,
    }


def distances_of(records: Sequence[Record], eight_bit: bool = False) -> Array:
    """The distances that count, in the records' order: 0 already wrong, inf where nothing was found or the verdict refutes it."""
    return np.array([record.proven_8bit if eight_bit else record.proven for record in records], dtype=np.float64)


def best_known(
    records: Sequence[Record], attacks: Sequence[AttackInfo], images: Sequence[ImageInfo]
) -> dict[str, dict[tuple[int, int | None], float]]:
    """d* by distance: the smallest proven distance of each (image, target), whichever attack found it.

    Every proven image counts in every distance it was measured in: an l1 attack may well hold the l2 record of an image.
    """
    names = {info.index: info.distance for info in attacks}
    best: dict[str, dict[tuple[int, int | None], float]] = {name: {} for name in names.values()}
    for record in records:
        if not math.isfinite(record.proven):
            continue
        key = (record.image, record.target)
        values = dict(record.measures) | {names[record.attack]: record.measured}
        for name, known in best.items():
            value = values.get(name) if record.attacked else 0.0
            if value is not None and value < known.get(key, math.inf):
                known[key] = value
    return best


def attack_summary(
    info: AttackInfo,
    records: Sequence[Record],
    images: Sequence[ImageInfo],
    best: dict[tuple[int, int | None], float] | None = None,
    epsilons: Sequence[float] = (),
    seed: int = 0,
) -> dict[str, Any]:
    """The numbers of one attack. ``best`` is d* of its distance by (image, target), from this run or from many."""
    distances, coarse = distances_of(records), distances_of(records, eight_bit=True)
    attacked = np.array([record.attacked for record in records], dtype=bool)
    draw = Bootstrap(len(records), seed)
    seen = {record.image for record in records}
    reach = reach_of(info.minimal, info.settings, distances)
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
        "status": {status: sum(record.status == status for record in records) for status in STATUSES},
        "refuted": sum(record.refuted for record in records),
        "success_rate": _share(np.isfinite(distances).astype(np.float64), draw),
        "success_rate_8bit": _share(np.isfinite(coarse).astype(np.float64), draw),
        "success_rate_attacked": _plain(mean(np.isfinite(distances[attacked]).astype(np.float64))),
        "median_all": _value(median(distances), draw.of_median(distances)),
        "median_attacked": _value(median(distances[attacked]), draw.of_median(distances, attacked)),
        "median_all_8bit": _value(median(coarse), draw.of_median(coarse)),
        "mean_all": _value(mean(distances), draw.of_mean(distances)),
        "mean_attacked": _plain(mean(distances[attacked])),
        "mean_found": _plain(mean(distances[attacked & np.isfinite(distances)])),
        "quantiles_all": [{"at": at, "value": _plain(quantile(distances, at))} for at in QUANTILES],
        "robust_up_to": _plain(reach),  # null: at any radius; an attack at a fixed epsilon says nothing beyond it
        "robust_accuracy": [
            {"epsilon": epsilon, **_share(robust(distances, epsilon, reach), draw)}
            for epsilon in _radii(info, distances, epsilons, reach)
        ],
        "forwards": _cost([record.forwards for record in records if record.attacked]),
        "backwards": _cost([record.backwards for record in records if record.attacked]),
        "seconds": {
            "per_image": _plain(mean(np.array([record.seconds for record in records]))),
            "total": _plain(sum(record.seconds for record in records)),
        },
    }
    summary |= _against_best(records, distances, reach, best)
    if len(seen) < len(records):
        summary["best_target"] = _best_target(records)
    return summary


def _against_best(
    records: Sequence[Record],
    distances: Array,
    reach: float,
    best: dict[tuple[int, int | None], float] | None,
) -> dict[str, Any]:
    """Optimality and the area under the curve, both up to d_max, the largest best known distance; none where the curve ends before it."""
    if best is None:
        return {}
    known = np.array([best.get((record.image, record.target), math.inf) for record in records], dtype=np.float64)
    known = np.minimum(known, distances)
    unattacked = mean(np.array([not record.attacked for record in records], dtype=np.float64))
    xi, furthest = optimality(distances, known, 1 - unattacked)
    whole = furthest <= reach * (1 + SLACK)
    xi = xi if whole else math.nan
    area = area_under_curve(distances, furthest) if furthest > 0 and whole else math.nan
    return {
        "optimality": {
            "value": _plain(xi),
            "d_max": _plain(furthest),
            "mean_best": _plain(mean(np.minimum(known, furthest))),
        },
        "area": {
            "value": _plain(area),
            "up_to": _plain(furthest),
            "normalised": _plain(area / furthest if furthest > 0 else math.nan),
        },
    }


def _best_target(records: Sequence[Record]) -> dict[str, Any]:
    """With all targets tried: each image by its nearest target."""
    nearest: dict[int, float] = {}
    for record in records:
        nearest[record.image] = min(nearest.get(record.image, math.inf), record.proven)
    values = np.array([nearest[image] for image in sorted(nearest)], dtype=np.float64)
    return {
        "success_rate": _plain(mean(np.isfinite(values).astype(np.float64))),
        "median": _plain(median(values)),
        "mean": _plain(mean(values)),
    }


def _radii(info: AttackInfo, distances: Array, further: Sequence[float], reach: float) -> list[float]:
    """Where robust accuracy is given: as far as the attack reaches."""
    finite = distances[np.isfinite(distances) & (distances > 0)]
    own = [float(f"{np.quantile(finite, at):.3g}") for at in (0.1, 0.25, 0.5, 0.75, 0.9)] if len(finite) else []
    wanted = {0.0, *EPSILONS.get(info.distance, ()), *own, *map(float, further), *([] if math.isinf(reach) else [reach])}
    return sorted(radius for radius in wanted if radius <= reach)


def _cost(counts: Sequence[int]) -> dict[str, float | int | None]:
    """Passes per attacked image, as the paper counts."""
    array = np.array(counts, dtype=np.float64)
    return {
        "mean": _plain(mean(array)),
        "median": _plain(median(array)),
        "max": int(max(counts, default=0)),
        "total": int(sum(counts)),
    }


def _share(values: Array, draw: Bootstrap) -> Value:
    return _value(mean(values), draw.of_mean(values))


def _value(value: float, interval: tuple[float, float]) -> Value:
    return {"value": _plain(value), "low": _plain(interval[0]), "high": _plain(interval[1])}


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def geometric_means(summaries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each attack that all the summaries hold: the geometric mean of every metric over the models, as the paper's tables count."""
    found = []
    by_attack = [{part["attack"]: part for part in summary["attacks"]} for summary in summaries]
    for text in by_attack[0] if by_attack else ():
        parts = [attacks[text] for attacks in by_attack if text in attacks]
        if len(parts) < len(summaries):
            continue

        def over(path: tuple[str, str], infinite: float = math.inf, parts: list[dict[str, Any]] = parts) -> float | None:
            values = [part[path[0]][path[1]] for part in parts]
            return _plain(geometric_mean([infinite if value is None else value for value in values]))

        found.append(
            {
                "attack": text,
                "distance": parts[0]["distance"],
                "models": [summary["run"]["model"] for summary in summaries],
                "success_rate": over(("success_rate", "value")),
                "success_rate_8bit": over(("success_rate_8bit", "value")),
                "median_all": over(("median_all", "value")),
                "median_attacked": over(("median_attacked", "value")),
                "forwards": over(("forwards", "mean"), math.nan),
                "backwards": over(("backwards", "mean"), math.nan),
                "seconds_per_image": over(("seconds", "per_image"), math.nan),
            }
        )
    return found


__all__ = [
    "FORMAT",
    "MEASURED",
    "attack_summary",
    "best_known",
    "distances_of",
    "geometric_means",
    "robust_accuracy",
    "summarise",
]
