"""Computes all numbers of a run that tables, pages, boards, figures and ``summary.json`` show. No torch here.

Each number of an attack is one entry of ``MEASURES``: a function of the records, and the column that shows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import registry
from ..errors import BadInput
from ..radius import number, readable
from ..runs.failures import StoreError
from ..runs.folder import RunFolder
from ..runs.store.fields import finite
from ..runs.store.records import (
    ALREADY_WRONG,
    INVALID,
    PASSES,
    ROBUST,
    STATUSES,
    SUCCESS,
    AttackInfo,
    ImageInfo,
    Tally,
    mean_iou,
    outcome,
    wrong_pixels,
)
from ..runs.threat import goal_name, named, sentence, threat_of
from .numbers import Array, Bootstrap, mean, median, optimality, quantile, ratio, share, value_of
from .results import Results, Together, columns_of
from .table import Column

FORMAT = 2
"""Version of summary.json. Version 2 added labels, goals, radii, the worst case and an attack's fixed epsilon."""
NULL_MEANS = (
    "a distance of null is infinite (nothing found for enough images), except where epsilon is a number: an attack at "
    "that fixed radius has no distances, only robust accuracy there; any other null is not defined for this run"
)
QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
TENTH = 0.1
"""A certified radius below this share of the found distance is shown as "not certified"."""
FLAT = "the gradient was zero"
"""Beginning of the reason in a record whose attack got only zero gradients."""
ALONE = "only square"
"""Beginning of the reason of a success that no gradient stage of the standard evaluation found."""


@dataclass(frozen=True)
class Measure(Column):
    """A number of an attack and its column. ``of`` computes the value in ``summary.json``, None if it is not defined.
    ``cell`` reads the table's cell from an attack's part of the summary."""

    of: Callable[[Results], Any] | None = None
    cell: Callable[[dict[str, Any]], Any] | None = None

    def read(self, part: dict[str, Any]) -> Any:
        return part.get(self.name) if self.cell is None else self.cell(part)


def _cells(name: str, inner: str) -> Callable[[dict[str, Any]], Any]:
    """Read ``part[name][inner]``, None if missing."""
    return lambda part: (part.get(name) or {}).get(inner)


def _median(name: str) -> Callable[[dict[str, Any]], Any]:
    """Read a median. A median without a finite value is infinite if the attack minimises the distance."""

    def read(part: dict[str, Any]) -> Any:
        value = part[name]
        if value["value"] is not None:
            return value
        if (stop := part.get("stop_within")) and part["success_rate"]["value"] > 0.5:
            return f"\u2264 {readable(stop, part['distance'])}"
        return math.inf if part["minimal"] and part["records"] else None

    return read


def _statuses(a: Results) -> dict[str, int]:
    """Number of records by status. For an attack at a fixed epsilon, ``robust`` replaces ``failed``."""
    found = [outcome(record, a.info) for record in a.records]
    names = STATUSES if a.info.minimal else (ALREADY_WRONG, SUCCESS, ROBUST, INVALID)
    return {status: found.count(status) for status in names}


def _cost(name: str) -> Callable[[Results], Any]:
    """A count per attacked image, as in the paper; None if records have none."""

    def cost(a: Results) -> dict[str, float | int | None] | None:
        counts = [getattr(record, name) for record in a.records if record.attacked]
        if None in counts or (not counts and name not in ("forwards", "backwards")):
            return None
        array = np.array(counts, dtype=np.float64)
        return {
            "mean": finite(mean(array)),
            "median": finite(median(array)),
            "max": int(max(counts, default=0)),
            "total": int(sum(counts)),
        }

    return cost


def _optimality(a: Results) -> dict[str, float | None] | None:
    if a.best is None or not a.complete:
        return None
    known = a.known
    xi, furthest = optimality(a.distances, known, 1 - mean((~a.attacked).astype(np.float64)))
    value = finite(mean(np.minimum(known, furthest)))
    return {"value": finite(xi), "d_max": finite(furthest), "mean_best": value}


def _history(a: Results) -> list[dict[str, float | None]] | None:
    """The median best distance of the attacked images after each number of forwards in ``PASSES``; None if no record
    has it.

    A median of null means that fewer than half of them were broken by then.
    """
    mine = [record for record in a.records if record.attacked]
    if not a.complete or not any(value is not None for record in mine for value in record.course.values()):
        return None
    most = max(record.forwards for record in mine)
    rows = []
    for count in [count for place, count in enumerate(PASSES) if place == 0 or PASSES[place - 1] < most]:
        values = [
            record.course.get(f"best_{count}") for record in mine if not record.refuted or record.status != "success"
        ]
        middle = median(np.array([math.inf if value is None else value for value in values]))
        rows.append({"forwards": min(count, most), "median": finite(middle)})
    return rows


def _certified(a: Results) -> dict[str, Any] | None:
    """Certified radii relative to the attack's distances."""
    radii = a.certified_radii
    if radii is None:
        return None
    known = ~np.isnan(radii)
    attacked = known & a.attacked
    both = attacked & np.isfinite(a.distances)
    part = np.minimum(radii[both], a.distances[both]) / a.distances[both]
    return {
        "images": int(known.sum()),
        "median": finite(median(radii[known])),
        "median_attacked": finite(median(radii[attacked])),
        "share": finite(median(part)),
        "gap": finite(median(a.distances[both] - radii[both])),
        "not_certified": int((part < TENTH).sum()),
        "accuracy": certified_accuracy(radii[known], a.radii),
    }


def certified_accuracy(radii: Array, epsilons: Sequence[float]) -> list[dict[str, float | None]]:
    """For each epsilon, the share of images whose certified radius in ``radii`` (N,) is at least epsilon (at epsilon 0:
    is positive), with Wilson's interval."""
    draw = Bootstrap(len(radii))
    return [
        {"epsilon": epsilon, **share((radii >= epsilon if epsilon > 0 else radii > 0).astype(np.float64), draw)}
        for epsilon in epsilons
    ]


def _best_target(a: Results) -> dict[str, Any] | None:
    """With ``targets=all``, numbers over images by their nearest target."""
    if not a.draw.several:
        return None
    values = np.array([record.verified for record in a.rows.values()], dtype=np.float64)
    draw = Bootstrap(len(values))
    return {
        "success_rate": share(np.isfinite(values).astype(np.float64), draw),
        "median": value_of(median(values), draw.of_median(values)),
        "mean": finite(mean(values)),
    }


MEASURES: tuple[Measure, ...] = (
    Measure("images", "images", "count", "detail", of=lambda a: a.draw.images),
    Measure(
        "success_rate",
        "success",
        "share",
        help="share of images with a confirmed success; misclassified clean images count",
        of=lambda a: a.share(np.isfinite(a.distances)),
    ),
    Measure(
        "median",
        "median distance",
        "distance",
        help="median distance: misclassified clean images count 0, images without a success infinity",
        bold="smallest",
        cell=_median("median_all"),
    ),
    Measure(
        "median_attacked",
        "median, attacked",
        "distance",
        "detail",
        help="median distance over the images that are right without an attack",
        interval=False,
        of=lambda a: a.median(a.distances, a.attacked),
        cell=_median("median_attacked"),
    ),
    *(
        Measure(name, head, "count", help=help, of=_cost(name), cell=_cells(name, "mean"))
        for name, head, help in (
            ("forwards", "forward passes", "forward passes per attacked image"),
            ("backwards", "backward passes", "backward passes per attacked image"),
            (
                "surrogate_forwards",
                "surrogate's forwards",
                "forward passes of the surrogate, to which all backward passes belong",
            ),
            (
                "distance_gradients",
                "distance gradients",
                "gradients of the distance per attacked image; those of lp norms are not counted",
            ),
        )
    ),
    *(
        Measure(f"best_target_{name}", f"{head}, nearest target", kind, "detail", cell=_cells("best_target", name))
        for name, head, kind in (("success_rate", "success", "share"), ("median", "median distance", "distance"))
    ),
    Measure("seconds_per_image", "seconds per image", "number", cell=_cells("seconds", "per_image")),
    Measure(
        "optimality",
        "optimality",
        "share",
        "detail",
        help="100 %: as small as the smallest distance known for each image; 0 %: as if nothing were found",
        of=_optimality,
        cell=_cells("optimality", "value"),
    ),
    Measure(
        "success_rate_8bit",
        "success, 8-bit",
        "share",
        "detail",
        help="success after rounding to 8 bits",
        of=lambda a: a.share(np.isfinite(a.distances_8bit)),
    ),
    Measure(
        "median_8bit",
        "median, 8-bit",
        "distance",
        "detail",
        help="median distance after rounding to 8 bits",
        interval=False,
        cell=_median("median_all_8bit"),
    ),
    Measure(
        "certified_median",
        "certified radius",
        "distance",
        help="median radius, over the attacked images, within which the model provably keeps its class",
        cell=_cells("certified", "median_attacked"),
    ),
    Measure(
        "certified_share",
        "certified / found",
        "share",
        help="certified radius as a part of the distance found, in the median: below a tenth it says little",
        cell=_cells("certified", "share"),
    ),
    Measure(
        "certified_equal",
        "certified = found",
        "share",
        help="share of the attacked images whose certified radius and found distance differ by less than 1 %",
        of=lambda a: None if a.certified_radii is None else a.share(a.certified_radii > 0.99 * a.distances, a.attacked),
    ),
)
"""The measures that tables show, in their order."""


def attack_summary(a: Results) -> dict[str, Any]:
    """The numbers of one attack."""
    found, records, info = np.isfinite(a.distances), a.records, a.info
    summary: dict[str, Any] = {
        "attack": info.text,
        "name": info.text,  # with the unusual parts of the threat model, if a run is known
        "title": info.title,
        "distance": info.distance,
        "minimal": info.minimal,
        "targeted": info.targeted,
        "records": len(records),
        # The population of medians, shares and robust accuracy.
        "over": "records" if a.draw.several else "images",
        "attacked": int(a.attacked.sum()),
        "status": _statuses(a),
        "refuted": sum(record.refuted for record in records),
        "survive_8bit": sum(r.status == SUCCESS and r.fooled and r.fooled_8bit for r in records),
        "success_rate_attacked": finite(mean(found[a.attacked].astype(np.float64))),
        "median_all": a.median(a.distances),
        "median_all_8bit": a.median(a.distances_8bit),
        "mean_all": finite(mean(a.distances)) if a.complete else None,
        "mean_attacked": finite(mean(a.distances[a.attacked])) if a.complete else None,
        "mean_found": finite(mean(a.distances[a.attacked & found])) if a.complete else None,
        "quantiles_all": [{"at": at, "value": finite(a.answered(quantile(a.distances, at)))} for at in QUANTILES]
        if info.minimal
        else [],
        "epsilon": finite(a.reach),  # the fixed radius of the attack; None for an attack that minimises the distance
        "robust_accuracy": Together([a]).robust_accuracy(a.radii),
        "seconds": {
            "per_image": finite(mean(np.array([record.seconds for record in records]))),
            "total": finite(sum(record.seconds for record in records)),
        },
    }
    more = {
        "stop_within": a.stop or None,
        "certified": _certified(a),
        "course": _history(a),
        "best_target": _best_target(a),
        # Images that the attack reports as misclassified from the start and the verdict classifies correctly.
        "never_wrong": sum(record.status == ALREADY_WRONG and record.refuted for record in records) or None,
        # Attacked images for which every gradient was zero.
        "zero_gradients": sum(FLAT in (record.reason or "") for record in records) or None,
        # Standard evaluation: images that only its stage without gradients breaks.
        "masked": sum(record.status == SUCCESS and (record.reason or "").startswith(ALONE) for record in records)
        or None,
    }
    more |= {measure.name: measure.of(a) for measure in MEASURES if measure.of is not None}
    return summary | {name: value for name, value in more.items() if value is not None}


def worst_cases(
    groups: Mapping[tuple[str, str], Together], radii: Mapping[str, list[float]], parts: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The worst case over all attacks of each distance and goal, from their summaries ``parts``: robust accuracy, the
    median of the smallest distances, and the total cost."""
    found = []
    for (distance, goal), together in groups.items():
        name = goal_name(goal)
        mine = [part for part in parts if (part["distance"], part["goal"]) == (distance, name)]
        made = [part for part in mine if part["forwards"]["mean"] is not None]
        found.append(
            {
                "distance": distance,
                "goal": name,
                "attacks": len(together.attacks),
                "images": together.draw.images,
                "robust_accuracy": together.robust_accuracy(radii[distance]),
                "median": together.median(),
                "passes": sum(part["forwards"]["mean"] + part["backwards"]["mean"] for part in made) if made else None,
                "seconds": sum(part["seconds"]["per_image"] for part in made) if made else None,
                "masked": together.masked,
            }
        )
    return found


def run_summary(run: RunFolder, columns: Sequence[Results], radii: Mapping[str, list[float]]) -> dict[str, Any]:
    """The summary of a run, as written to ``summary.json``.

    Args:
        run: the run folder.
        columns: its attacks, whose ``numbers`` are set.
        radii: radii of robust accuracy, by distance.
    """
    images, threat = run.images, threat_of(run.spec)
    goal = goal_name(threat.goal)
    expected = int(run.meta.get("images", len(images)))
    rounds = int(run.meta.get("classes", 0)) - 1 if run.spec.targets == "all" else 1
    missing = sum(expected * max(rounds, 1) - len(column.records) for column in columns)
    for column in columns:
        column.numbers = attack_summary(column) | {"name": named(column.info.text, run.spec), "goal": goal}
        if run.segmentation:
            column.numbers["pixels"] = pixels_of([record.pixels for record in column.records])
    groups = {
        (name, threat.goal): Together([column for column in columns if column.info.distance == name])
        for name in dict.fromkeys(column.info.distance for column in columns)
    }
    session = run.sessions[0] if run.sessions else {}
    facts = ("spec_sha256", "model_sha256", "weights_sha256", "data_sha256")
    settings = ("seed", "bits", "targets", "budget", "dtype", "batch_size")
    return {
        "format": FORMAT,
        "null_means": NULL_MEANS,
        "run": {
            "model": run.meta.get("model"),
            "data": run.meta.get("data"),
            **{name: run.model_sha256 if name == "model_sha256" else run.meta.get(name) for name in facts},
            **{name: getattr(run.spec, name) for name in settings},
            "threat_model": sentence(threat),
        },
        "environment": session.get("environment"),
        "started": session.get("started"),
        "complete": missing == 0,
        "missing_records": missing,
        "failed_chunks": [
            {"attack": row.key.attack, "chunk": row.key.chunk, "round": row.key.round}
            | {"images": row.images, "tries": row.tries, "reason": row.reason}
            for row in run.failures
        ],
        "images": len(images),
        "clean_name": clean_name(run),
        **({} if run.features is None else {"features": int(run.features.lo.size)}),
        "clean_accuracy": share(
            np.array([accuracy_of(info) for info in images], dtype=np.float64), Bootstrap(len(images))
        ),
        **({"pixels": pixels_of([info.pixels for info in images])} if run.segmentation else {}),
        "findings": run.findings,
        "radii": {distance: radii[distance] for distance, _ in groups},
        "worst_case": [
            {"name": named("all attacks", run.spec)} | worst
            for worst in worst_cases(groups, radii, [column.numbers for column in columns])
        ],
        "attacks": [column.numbers for column in columns],
    }


def clean_name(run: RunFolder) -> str:
    """The name of a run's clean accuracy; with another goal it is the share of images that do not reach the goal."""
    if run.aimed:
        return "goal not reached when clean"
    return "clean accuracy over pixels" if run.segmentation else "clean accuracy"


def accuracy_of(info: ImageInfo) -> float:
    """1 if the model classifies an image correctly, else 0; for segmentation, the share of correct labelled pixels."""
    return float(info.correct) if info.pixels is None else 1 - wrong_pixels(info.pixels)


def pixels_of(tallies: Sequence[Tally | None]) -> dict[str, Any]:
    """Accuracy and mIoU over the labelled pixels of all judged images, and the mean share of wrong pixels per image
    (APSR). The intervals treat images, not pixels, as independent."""
    found = [tally for tally in tallies if tally is not None]
    counts = np.array([sum(labelled for _, labelled, _, _ in tally) for tally in found], dtype=np.float64)
    shares = np.array([wrong_pixels(tally) for tally in found], dtype=np.float64)
    return {
        "images": len(found),
        "accuracy": ratio(counts * (1 - shares), counts, float(counts.sum())),
        "mean_iou": finite(mean_iou(found)),
        "wrong": share(shares, Bootstrap(len(found))),
    }


def resisting(
    run: RunFolder, eps: float | str | Mapping[str | float, float | str], attacks: Sequence[AttackInfo]
) -> float:
    """``Run.robust_accuracy`` for these attacks of the run."""
    names = list(dict.fromkeys(info.distance for info in attacks))
    if not isinstance(eps, Mapping) and len(names) == 1:
        eps = {names[0]: eps}
    given = eps if isinstance(eps, Mapping) else {}
    radii = {registry.canonical("distances", name): number(value) for name, value in given.items()}
    if not radii or not radii.keys() <= set(names):
        raise BadInput(
            f"give radii by distance, such as {{'linf': '8/255'}}; this run has attacks in {', '.join(names)}."
        )
    columns = [column for column in columns_of(run) if column.info in attacks]
    found = []
    for name, epsilon in radii.items():
        part = Together([column for column in columns if column.info.distance == name])
        found.append(dict(zip(part.keys, part.resisting(epsilon).tolist(), strict=True)))
    finished = sorted(set.intersection(*map(set, found)))
    if not finished:
        raise StoreError(
            f"{run.folder} has no image yet that attacks in {', '.join(radii)} have finished; resume the run first."
        )
    return mean(np.array([math.prod(part[key] for part in found) for key in finished]))
