"""Records to numbers: everything a run's tables and figures show, as plain values ready for JSON. No torch here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..runs.radii import for_distances
from ..runs.store.records import (
    ALREADY_WRONG,
    INVALID,
    MEASURED,
    ROBUST,
    STATUSES,
    SUCCESS,
    AttackInfo,
    ImageInfo,
    Record,
    Tally,
    mean_iou,
    outcome,
    reach_of,
    wrong_pixels,
)
from ..runs.threat import goal_name, named, sentence, threat_of
from .brackets import bracket
from .courses import course
from .labels import label_attacks
from .numbers import (
    Array,
    Bootstrap,
    area_under_curve,
    geometric_mean,
    mean,
    median,
    optimality,
    plain,
    quantile,
    robust,
    share,
    value_of,
)
from .worst import EPSILONS, Together, chosen_radii, distances_of

if TYPE_CHECKING:
    from ..runs.folder import RunFolder

FORMAT = 2
"""Of summary.json: 2 has labels, goals, radii and the worst case, and an attack's fixed epsilon."""
QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
NULL_MEANS = (
    "a distance of null is infinite (nothing found for enough images), except where epsilon is a number: an attack at "
    "that fixed radius has no "
    "distances, only robust accuracy there; any other null is not defined for this run"
)
IMAGES, RECORDS = "images", "records"


def summarise(run: RunFolder, seed: int = 0) -> dict[str, Any]:
    """The summary of a run folder, as written to ``summary.json``."""
    images, attacks = run.images, run.attacks
    expected = int(run.meta.get("images", len(images)))
    rounds = int(run.meta.get("classes", 0)) - 1 if run.spec.targets == "all" else 1
    best = best_known(run.records, attacks, images)
    session = run.sessions[0] if run.sessions else {}
    threat = threat_of(run.spec)
    labels = label_attacks(attacks, [threat] * len(attacks))
    together = {
        distance: Together.of([(info, run.records_of(info.index)) for info in attacks if info.distance == distance])
        for distance in best
    }
    asked = for_distances(run.spec.epsilon, list(best))
    radii = {distance: chosen_radii(distance, asked, [mine]) for distance, mine in together.items()}
    parts = [
        attack_summary(
            info,
            run.records_of(info.index),
            images,
            best.get(info.distance),
            radii[info.distance],
            seed,
            run.certified.get(info.distance),
        )
        | ({"pixels": pixels_of([record.pixels for record in run.records_of(info.index)])} if run.segmentation else {})
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
            {
                "attack": row.key.attack,
                "chunk": row.key.chunk,
                "round": row.key.round,
                "images": row.images,
                "tries": row.tries,
                "reason": row.reason,
            }
            for row in run.failures
        ],
        "images": len(images),
        "clean_accuracy": share(np.array([accuracy_of(info) for info in images], dtype=np.float64), draw),
        **({"pixels": pixels_of([info.pixels for info in images])} if run.segmentation else {}),
        "findings": run.findings,
        "radii": radii,
        "worst_case": [
            {
                "name": named("all attacks", run.spec),
                "distance": distance,
                "goal": goal_name(threat.goal),
                "attacks": len(mine.reaches),
                "robust_accuracy": mine.rows(radii[distance], seed),
            }
            for distance, mine in together.items()
        ],
        "attacks": parts,
    }


def accuracy_of(info: ImageInfo) -> float:
    """1 where the model is right about an image, else 0; of a segmentation the share of its labelled pixels that are
    right."""
    return float(info.correct) if info.pixels is None else 1 - wrong_pixels(info.pixels)


def pixels_of(tallies: Sequence[Tally | None]) -> dict[str, Any]:
    """Over the labelled pixels of all images that were judged: accuracy and mIoU, and the mean over the images of the
    share of wrong ones (APSR)."""
    found = [tally for tally in tallies if tally is not None]
    shares = [wrong_pixels(tally) for tally in found]
    return {
        "images": len(found),
        "accuracy": plain(1 - wrong_pixels(*found)),
        "mean_iou": plain(mean_iou(found)),
        "wrong": plain(float(np.mean(shares)) if shares else math.nan),
    }


def best_known(
    records: Sequence[Record], attacks: Sequence[AttackInfo], images: Sequence[ImageInfo]
) -> dict[str, dict[tuple[int, int | None], float]]:
    """d* by distance: the smallest verified distance of each (image, target), whichever attack found it.

    Every verified image counts in every distance it was measured in: an l1 attack may well hold the l2 record of an
    image.
    """
    names = {info.index: info.distance for info in attacks}
    best: dict[str, dict[tuple[int, int | None], float]] = {name: {} for name in names.values()}
    for record in records:
        if not math.isfinite(record.verified):
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
    certified: dict[int, float] | None = None,
) -> dict[str, Any]:
    """The numbers of one attack. ``best`` is d* of its distance by (image, target), from this run or from many;
    ``certified`` its images' radii."""
    distances, coarse = distances_of(records), distances_of(records, eight_bit=True)
    attacked = np.array([record.attacked for record in records], dtype=bool)
    draw = Bootstrap(len(records), seed)
    seen = {record.image for record in records}
    reach = reach_of(info, distances)
    smallest = (
        distances if info.minimal else np.full(0, np.nan)
    )  # an attack at a fixed radius does not look for the smallest
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
        "success_rate_attacked": plain(mean(np.isfinite(distances[attacked]).astype(np.float64))),
        "median_all": value_of(median(smallest), draw.of_median(smallest)),
        "median_attacked": value_of(median(smallest[worked]), draw.of_median(smallest, worked)),
        "median_all_8bit": value_of(median(smallest_8bit), draw.of_median(smallest_8bit)),
        "mean_all": value_of(mean(smallest), draw.of_mean(smallest))
        if info.minimal
        else value_of(math.nan, (math.nan, math.nan)),
        "mean_attacked": plain(mean(smallest[worked])),
        "mean_found": plain(mean(smallest[worked & np.isfinite(smallest)])),
        "quantiles_all": [{"at": at, "value": plain(quantile(smallest, at))} for at in QUANTILES]
        if info.minimal
        else [],
        "epsilon": plain(
            reach
        ),  # the fixed radius an attack looked in, of which alone it speaks; null: it looks for the smallest change
        "robust_accuracy": [
            {"epsilon": epsilon, **share(robust(distances, epsilon, reach), draw)}
            for epsilon in _radii(info, distances, epsilons, reach)
        ],
        "forwards": _cost([record.forwards for record in records if record.attacked]),
        "backwards": _cost([record.backwards for record in records if record.attacked]),
        "seconds": {
            "per_image": plain(mean(np.array([record.seconds for record in records]))),
            "total": plain(sum(record.seconds for record in records)),
        },
    }
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
            "value": plain(xi),
            "d_max": plain(furthest),
            "mean_best": plain(mean(np.minimum(known, furthest))),
        },
        "area": {
            "value": plain(area),
            "up_to": plain(furthest),
            "normalised": plain(area / furthest if furthest > 0 else math.nan),
        },
    }


def _best_target(records: Sequence[Record]) -> dict[str, Any]:
    """With all targets tried: each image by its nearest target."""
    nearest: dict[int, float] = {}
    for record in records:
        nearest[record.image] = min(nearest.get(record.image, math.inf), record.verified)
    values = np.array([nearest[image] for image in sorted(nearest)], dtype=np.float64)
    return {
        "success_rate": plain(mean(np.isfinite(values).astype(np.float64))),
        "median": plain(median(values)),
        "mean": plain(mean(values)),
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
        "mean": plain(mean(array)),
        "median": plain(median(array)),
        "max": int(max(counts, default=0)),
        "total": int(sum(counts)),
    }


def geometric_means(summaries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each attack that all the summaries hold: the geometric mean of every metric over the models, as the paper's
    tables count."""
    found = []
    by_attack = [{part["attack"]: part for part in summary["attacks"]} for summary in summaries]
    for text in by_attack[0] if by_attack else ():
        parts = [attacks[text] for attacks in by_attack if text in attacks]
        if len(parts) < len(summaries):
            continue

        nothing = math.inf if parts[0]["minimal"] else math.nan

        def over(
            path: tuple[str, str], infinite: float = math.inf, parts: list[dict[str, Any]] = parts
        ) -> float | None:
            values = [part[path[0]][path[1]] for part in parts]
            return plain(geometric_mean([infinite if value is None else value for value in values]))

        found.append(
            {
                "attack": text,
                "distance": parts[0]["distance"],
                "models": [summary["run"]["model"] for summary in summaries],
                "success_rate": over(("success_rate", "value")),
                "success_rate_8bit": over(("success_rate_8bit", "value")),
                "median_all": over(("median_all", "value"), nothing),
                "median_attacked": over(("median_attacked", "value"), nothing),
                "forwards": over(("forwards", "mean"), math.nan),
                "backwards": over(("backwards", "mean"), math.nan),
                "seconds_per_image": over(("seconds", "per_image"), math.nan),
            }
        )
    return found


__all__ = ["FORMAT", "MEASURED", "attack_summary", "best_known", "distances_of", "geometric_means", "summarise"]
