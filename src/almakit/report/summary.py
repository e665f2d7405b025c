"""A run's records to numbers: everything its tables and figures show, as plain values ready for JSON. No torch here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..runs.radii import for_distances
from ..runs.store.fields import finite
from ..runs.store.records import AttackInfo, ImageInfo, Record, Tally, mean_iou, wrong_pixels
from ..runs.threat import goal_name, named, sentence, threat_of
from .attack_summary import attack_summary
from .labels import label_attacks
from .numbers import Bootstrap, geometric_mean, share
from .worst import Together, chosen_radii

if TYPE_CHECKING:
    from ..runs.folder import RunFolder

FORMAT = 2
"""Of summary.json: 2 has labels, goals, radii and the worst case, and an attack's fixed epsilon."""
NULL_MEANS = (
    "a distance of null is infinite (nothing found for enough images), except where epsilon is a number: an attack at "
    "that fixed radius has no distances, only robust accuracy there; any other null is not defined for this run"
)


def summarise(run: RunFolder, seed: int = 0) -> dict[str, Any]:
    """The summary of a run folder, as written to ``summary.json``."""
    images, attacks = run.images, run.attacks
    expected = int(run.meta.get("images", len(images)))
    rounds = int(run.meta.get("classes", 0)) - 1 if run.spec.targets == "all" else 1
    best = best_known(run.records, attacks)
    session = run.sessions[0] if run.sessions else {}
    threat = threat_of(run.spec)
    labels = label_attacks(attacks, [threat] * len(attacks))
    together = {
        distance: Together.of(
            [(info, run.records_of(info.index)) for info in attacks if info.distance == distance], run.step
        )
        for distance in best
    }
    asked = for_distances(run.spec.epsilon, list(best))
    radii = {distance: chosen_radii(distance, asked, [mine]) for distance, mine in together.items()}
    parts = [
        attack_summary(
            info,
            run.records_of(info.index),
            best.get(info.distance),
            radii[info.distance],
            seed,
            run.certified.get(info.distance),
            run.step,
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
            "model_sha256": run.model_sha256,
            "weights_sha256": run.meta.get("weights_sha256"),
            "data_sha256": run.meta.get("data_sha256"),
            "seed": run.spec.seed,
            "bits": run.spec.bits,
            "targets": run.spec.targets,
            "budget": run.spec.budget,
            "dtype": run.spec.dtype,
            "batch_size": run.spec.batch_size,
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
        "clean_name": clean_name(run),
        **({} if run.features is None else {"features": int(run.features.lo.size)}),
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


def clean_name(run: RunFolder) -> str:
    """What the clean accuracy of a run is called; with another goal it is the share that does not reach it."""
    if run.aimed:
        return "goal not reached when clean"
    return "clean accuracy over pixels" if run.segmentation else "clean accuracy"


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
        "accuracy": finite(1 - wrong_pixels(*found)),
        "mean_iou": finite(mean_iou(found)),
        "wrong": finite(float(np.mean(shares)) if shares else math.nan),
    }


def best_known(
    records: Sequence[Record], attacks: Sequence[AttackInfo]
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
            return finite(geometric_mean([infinite if value is None else value for value in values]))

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
