"""A run's records to numbers: everything that tables, pages, boards, figures and ``summary.json`` show. No torch here.

A number of an attack is one entry of ``MEASURES``: how it is computed from the records, and the column that shows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import registry
from ..errors import BadInput
from ..radius import Grid, number
from ..runs.failures import StoreError
from ..runs.radii import for_distances, stop_radius
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
    Record,
    Tally,
    mean_iou,
    outcome,
    reach_of,
    wrong_pixels,
)
from ..runs.threat import goal_name, named, sentence, threat_of
from .labels import label_attacks, radius
from .numbers import (
    Array,
    Bootstrap,
    Value,
    area_under_curve,
    geometric_mean,
    mean,
    median,
    optimality,
    quantile,
    reaches,
    robust,
    share,
    value_of,
    worst_case,
    worst_distances,
)
from .table import Column

if TYPE_CHECKING:
    from ..runs.folder import RunFolder

FORMAT = 2
"""Of summary.json: 2 has labels, goals, radii and the worst case, and an attack's fixed epsilon."""
NULL_MEANS = (
    "a distance of null is infinite (nothing found for enough images), except where epsilon is a number: an attack at "
    "that fixed radius has no distances, only robust accuracy there; any other null is not defined for this run"
)
EPSILONS: dict[str, tuple[float, ...]] = {
    "linf": (1 / 255, 2 / 255, 4 / 255, 8 / 255, 0.1, 0.2, 0.3),
    "l2": (0.25, 0.5, 1.0, 1.5, 2.0, 3.0),
    "l1": (2.0, 5.0, 8.0, 12.0, 20.0),
    "l0": (5.0, 10.0, 20.0, 50.0),
}
"""Radii people compare at; a run's own quantiles are added, and ``Run.robust_accuracy`` answers for any other."""
QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
IMAGES, RECORDS = "images", "records"
TENTH = 0.1
"""Below this part of the found distance a certified radius says too little to be shown: "not certified"."""
Best = Mapping[tuple[int, "int | None"], float]


def distances_of(records: Sequence[Record], eight_bit: bool = False) -> Array:
    """The distances that count, in the records' order: 0 already wrong, inf where nothing was found or the verdict
    refutes it."""
    return np.array([record.verified_8bit if eight_bit else record.verified for record in records], dtype=np.float64)


def grid_of(info: AttackInfo, found: Array, step: float) -> Grid:
    """Which distances of an attack lie within a radius, given those ``found`` (N,) and the ``step`` of its run."""
    return Grid.of(info.distance, step, found[~np.isnan(found)].tolist())


@dataclass(frozen=True)
class Measured:
    """One attack's records as arrays (N,), one entry per record: what its measures are computed from."""

    info: AttackInfo
    records: Sequence[Record]
    best: Best | None = None  # smallest distance known for each (image, target), from this run or from many
    epsilons: Sequence[float] = ()  # radii to give robust accuracy at, besides the usual ones
    seed: int = 0
    certified: Mapping[int, float] | None = None  # certified radius by image, None where nothing was certified
    step: float = 0.0  # spacing of the grid that the run worked on, 0 for none
    stop: float = 0.0  # images stopped once they were broken within this radius; nothing is known of smaller ones

    @cached_property
    def distances(self) -> Array:
        return distances_of(self.records)

    @cached_property
    def smallest(self) -> Array:
        """The distances of an attack that looks for the smallest change; none at a fixed radius."""
        return self.distances if self.info.minimal else np.full(0, np.nan)

    @property
    def complete(self) -> bool:
        """Whether the whole curve is known: the attack looks for the smallest change and no image stopped early."""
        return self.info.minimal and not self.stop

    @cached_property
    def smallest_8bit(self) -> Array:
        return distances_of(self.records, eight_bit=True) if self.info.minimal else np.full(0, np.nan)

    @cached_property
    def attacked(self) -> Any:
        return np.array([record.attacked for record in self.records], dtype=bool)

    @cached_property
    def draw(self) -> Bootstrap:
        return Bootstrap([record.image for record in self.records], self.seed)

    @cached_property
    def reach(self) -> float:
        """The fixed radius of the attack, infinite for one that looks for the smallest change."""
        return reach_of(self.info, self.distances)

    @cached_property
    def grid(self) -> Grid:
        return grid_of(self.info, self.distances, self.step)

    @cached_property
    def radii(self) -> list[float]:
        """Where robust accuracy is given: for an attack at a fixed epsilon there alone."""
        if math.isfinite(self.reach):
            return [self.reach]
        found = self.distances[np.isfinite(self.distances) & (self.distances > 0)]
        own = [float(f"{np.quantile(found, at):.3g}") for at in (0.1, 0.25, 0.5, 0.75, 0.9)] if len(found) else []
        usual = {0.0, *EPSILONS.get(self.info.distance, ()), *own, *map(float, self.epsilons)}
        return sorted(epsilon for epsilon in usual if epsilon == 0 or reaches(epsilon, self.stop))

    @cached_property
    def certified_radii(self) -> Array | None:
        """Each record's certified radius, NaN where there is none; None for targeted attacks and without any."""
        if self.certified is None or self.info.targeted:
            return None
        return np.array([self.certified.get(record.image, math.nan) for record in self.records], dtype=np.float64)

    def share(self, flags: Any) -> Value:
        return share(np.asarray(flags, dtype=np.float64), self.draw)

    def share_of(self, flags: Any, keep: Any) -> Value:
        """The share of ``flags`` among the records of ``keep``, with its interval."""
        images = [record.image for record, kept in zip(self.records, keep, strict=True) if kept]
        return share(np.asarray(flags, dtype=np.float64)[keep], Bootstrap(images, self.seed))

    def median(self, values: Array, keep: Any = None) -> Value:
        """The median of ``values`` (those of ``keep``) with its interval; empty for an attack at a fixed radius."""
        kept = values if keep is None or not len(values) else values[keep]
        low, high = self.draw.of_median(values, keep if len(values) else None)
        middle, low, high = (self.answered(value) for value in (median(kept), low, high))
        return value_of(middle, (low, high))

    def answered(self, distance: float) -> float:
        """A quantile of the distances; NaN where images stopped before it was known how small it is."""
        return math.nan if 0 < distance <= self.grid.limit(self.stop) else distance

    def cost(self, name: str) -> dict[str, float | int | None]:
        """Passes per attacked image, as the paper counts."""
        counts = [getattr(record, name) for record in self.records if record.attacked]
        array = np.array(counts, dtype=np.float64)
        return {
            "mean": finite(mean(array)),
            "median": finite(median(array)),
            "max": int(max(counts, default=0)),
            "total": int(sum(counts)),
        }


@dataclass(frozen=True)
class Measure:
    """A number of an attack. ``of`` computes what ``summary.json`` holds under the column's name, None where it is not
    defined; ``cell`` reads the table's cell from an attack's part of the summary."""

    column: Column
    of: Callable[[Measured], Any] | None = None
    cell: Callable[[dict[str, Any]], Any] | None = None

    def read(self, part: dict[str, Any]) -> Any:
        return part.get(self.column.name) if self.cell is None else self.cell(part)


def _cells(name: str, inner: str) -> Callable[[dict[str, Any]], Any]:
    """Reads ``part[name][inner]``, None where the part lacks it."""
    return lambda part: (part.get(name) or {}).get(inner)


def _median(name: str) -> Callable[[dict[str, Any]], Any]:
    """Reads a median; one without a finite value is infinite where the attack looks for the smallest change."""

    def read(part: dict[str, Any]) -> Any:
        value = part[name]
        if value["value"] is not None:
            return value
        if (stop := part.get("stop_within")) and part["success_rate"]["value"] > 0.5:
            return f"\u2264 {radius(stop, part['distance'])}"
        return math.inf if part["minimal"] and part["records"] else None

    return read


def _statuses(a: Measured) -> dict[str, int]:
    """How many ended how; at a fixed epsilon ``robust`` takes the place of ``failed``."""
    found = [outcome(record, a.info) for record in a.records]
    names = STATUSES if a.info.minimal else (ALREADY_WRONG, SUCCESS, ROBUST, INVALID)
    return {status: found.count(status) for status in names}


def _robust(a: Measured) -> list[dict[str, float | None]]:
    return [{"epsilon": epsilon, **share(robust(a.distances, epsilon, a.reach, a.grid), a.draw)} for epsilon in a.radii]


def _known(a: Measured) -> Array:
    """The smallest distance known for each record, from any attack."""
    best = a.best or {}
    values = [best.get((record.image, record.target), math.inf) for record in a.records]
    return np.minimum(np.array(values, dtype=np.float64), a.distances)


def _optimality(a: Measured) -> dict[str, float | None] | None:
    if a.best is None or not a.complete:
        return None
    known = _known(a)
    xi, furthest = optimality(a.distances, known, 1 - mean((~a.attacked).astype(np.float64)))
    value = finite(mean(np.minimum(known, furthest)))
    return {"value": finite(xi), "d_max": finite(furthest), "mean_best": value}


def _area(a: Measured) -> dict[str, float | None] | None:
    """The area under the curve up to d_max, the largest best known distance."""
    if a.best is None or not a.complete:
        return None
    known = _known(a)
    finite_ones = known[np.isfinite(known)]
    furthest = float(finite_ones.max()) if len(finite_ones) else math.nan
    area = area_under_curve(a.distances, furthest) if furthest > 0 else math.nan
    return {
        "value": finite(area),
        "up_to": finite(furthest),
        "normalised": finite(area / furthest if furthest > 0 else math.nan),
    }


def _history(a: Measured) -> list[dict[str, float | None]] | None:
    """The median best distance of the attacked images after each of ``PASSES`` forwards; None where no record kept any.

    A median of null: nothing found for half of them by then.
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


def _certified(a: Measured) -> dict[str, Any] | None:
    """What the certified radii say about the attack's distances."""
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
    """The share of the ``radii`` (N,) that reach each epsilon; at 0, of those above it."""
    draw = Bootstrap(len(radii))
    return [
        {"epsilon": epsilon, **share((radii >= epsilon if epsilon > 0 else radii > 0).astype(np.float64), draw)}
        for epsilon in epsilons
    ]


def _certified_cell(part: dict[str, Any]) -> Any:
    found = part.get("certified")
    if found is None:
        return None
    return "not certified" if found["share"] is None or found["share"] < TENTH else found["median_attacked"]


def _gap_cell(part: dict[str, Any]) -> Any:
    found = part.get("certified")
    return None if found is None or found["share"] is None or found["share"] < TENTH else 1 - found["share"]


def _best_target(a: Measured) -> dict[str, Any] | None:
    """With all targets tried: each image by its nearest target."""
    nearest: dict[int, float] = {}
    for record in a.records:
        nearest[record.image] = min(nearest.get(record.image, math.inf), record.verified)
    if len(nearest) == len(a.records):
        return None
    values = np.array([nearest[image] for image in sorted(nearest)], dtype=np.float64)
    return {
        "success_rate": finite(mean(np.isfinite(values).astype(np.float64))),
        "median": finite(median(values)),
        "mean": finite(mean(values)),
    }


MEASURES: tuple[Measure, ...] = (
    Measure(Column("images", "images", "count", "detail", order="down"), lambda a: len({r.image for r in a.records})),
    Measure(
        Column(
            "success_rate",
            "success",
            "share",
            help="share for which the attack found a success, confirmed by a "
            "fresh forward pass; images that are wrong without an attack count",
            order="down",
        ),
        lambda a: a.share(np.isfinite(a.distances)),
    ),
    Measure(
        Column(
            "median",
            "median distance",
            "distance",
            help="median distance, with its 95 % interval: images that are wrong "
            "without an attack count 0, those without a success count infinity",
            order="up",
            bold="smallest",
        ),
        cell=_median("median_all"),
    ),
    Measure(
        Column(
            "median_attacked",
            "median, attacked",
            "distance",
            "detail",
            help="median distance over the images that are right without an attack",
            order="up",
            interval=False,
        ),
        lambda a: a.median(a.smallest, a.attacked),
        _median("median_attacked"),
    ),
    Measure(
        Column("forwards", "forward passes", "count", help="forward passes per attacked image", order="up"),
        lambda a: a.cost("forwards"),
        _cells("forwards", "mean"),
    ),
    Measure(
        Column("backwards", "backward passes", "count", help="backward passes per attacked image", order="up"),
        lambda a: a.cost("backwards"),
        _cells("backwards", "mean"),
    ),
    Measure(
        Column(
            "surrogate_forwards",
            "surrogate's forwards",
            "count",
            help="forward passes of the surrogate, which all backward passes belong to",
            order="up",
        ),
        lambda a: a.cost("surrogate_forwards") if any(r.surrogate_forwards is not None for r in a.records) else None,
        _cells("surrogate_forwards", "mean"),
    ),
    Measure(
        Column(
            "distance_gradients",
            "distance gradients",
            "count",
            help="gradients of the distance per attacked image; lp norms, whose gradient is a formula, are not counted",
            order="up",
        ),
        lambda a: a.cost("distance_gradients") if all(r.distance_gradients is not None for r in a.records) else None,
        _cells("distance_gradients", "mean"),
    ),
    Measure(
        Column("seconds_per_image", "seconds per image", "number", help="seconds per image", order="up"),
        cell=_cells("seconds", "per_image"),
    ),
    Measure(
        Column(
            "optimality",
            "optimality",
            "share",
            "detail",
            help="100 %: as small as the smallest distance known for each image; 0 %: as if nothing were found",
            order="down",
        ),
        _optimality,
        _cells("optimality", "value"),
    ),
    Measure(
        Column(
            "success_rate_8bit",
            "success, 8-bit",
            "share",
            "detail",
            help="success after rounding to 8 bits",
            order="down",
        ),
        lambda a: a.share(np.isfinite(distances_of(a.records, eight_bit=True))),
    ),
    Measure(
        Column(
            "median_8bit",
            "median, 8-bit",
            "distance",
            "detail",
            help="median distance after rounding to 8 bits",
            order="up",
            interval=False,
        ),
        cell=_median("median_all_8bit"),
    ),
    Measure(
        Column(
            "certified",
            "certified \u2265",
            "distance",
            csv=False,
            help="median radius, over the images the attack "
            "had to work on, within which the model provably keeps its class; not certified: less than a tenth of "
            "the distance found",
            order="down",
        ),
        _certified,
        _certified_cell,
    ),
    Measure(
        Column(
            "gap",
            "gap",
            "share",
            csv=False,
            help="how much of the distance found lies above the certified radius, in the median",
            order="up",
        ),
        cell=_gap_cell,
    ),
    Measure(
        Column(
            "certified_equal",
            "certified = found",
            "share",
            help="share of the attacked images whose certified radius and found distance differ by less than 1 %",
            order="down",
        ),
        lambda a: None if a.certified_radii is None else a.share_of(a.certified_radii > 0.99 * a.distances, a.attacked),
    ),
    Measure(Column("certified_median", "certified", "distance", "csv"), cell=_cells("certified", "median_attacked")),
    Measure(Column("certified_share", "certified / found", "share", "csv"), cell=_cells("certified", "share")),
)
"""The measures that tables show, in their order."""


def attack_summary(
    info: AttackInfo,
    records: Sequence[Record],
    best: Best | None = None,
    epsilons: Sequence[float] = (),
    seed: int = 0,
    certified: Mapping[int, float] | None = None,
    step: float = 0.0,
    stop: float = 0.0,
) -> dict[str, Any]:
    """The numbers of one attack; the arguments are the fields of ``Measured``."""
    a = Measured(info, records, best, epsilons, seed, certified, step, stop)
    found = np.isfinite(a.distances)
    summary: dict[str, Any] = {
        "attack": info.text,
        "name": info.text,  # with what is unusual in the threat model, where a run is known
        "title": info.title,
        "distance": info.distance,
        "minimal": info.minimal,
        "targeted": info.targeted,
        "records": len(records),
        # What medians, shares and robust accuracy are over.
        "over": RECORDS if len({record.image for record in records}) < len(records) else IMAGES,
        "attacked": int(a.attacked.sum()),
        "status": _statuses(a),
        "refuted": sum(record.refuted for record in records),
        "success_rate_attacked": finite(mean(found[a.attacked].astype(np.float64))),
        "median_all": a.median(a.smallest),
        "median_all_8bit": a.median(a.smallest_8bit),
        "mean_all": value_of(mean(a.smallest), a.draw.of_mean(a.smallest))
        if a.complete
        else value_of(math.nan, (math.nan, math.nan)),
        "mean_attacked": finite(mean(a.smallest[a.attacked])) if a.complete else None,
        "mean_found": finite(mean(a.smallest[a.attacked & found])) if a.complete else None,
        "quantiles_all": [{"at": at, "value": finite(a.answered(quantile(a.smallest, at)))} for at in QUANTILES]
        if info.minimal
        else [],
        "epsilon": finite(a.reach),  # the fixed radius of the attack; None: it looks for the smallest change
        "robust_accuracy": _robust(a),
        "seconds": {
            "per_image": finite(mean(np.array([record.seconds for record in records]))),
            "total": finite(sum(record.seconds for record in records)),
        },
    }
    more = {"stop_within": stop or None, "area": _area(a), "course": _history(a), "best_target": _best_target(a)}
    more |= {measure.column.name: measure.of(a) for measure in MEASURES if measure.of is not None}
    return summary | {name: value for name, value in more.items() if value is not None}


@dataclass(frozen=True)
class Together:
    """The attacks of one distance and goal on the same images: what they leave standing together, the worst case."""

    keys: list[tuple[int, int]]  # (image, target or -1) of each place
    found: list[Array]  # (N,) for each attack: verified distances, NaN where it has not been there yet
    reaches: list[float]  # for each attack: its fixed radius, or infinity
    grid: Grid  # which distances lie within a radius
    stops: list[float]  # for each attack: its images stopped once they were broken within this radius, or 0
    seed: int = 0

    @classmethod
    def of(
        cls,
        attacks: Sequence[tuple[AttackInfo, Sequence[Record]]],
        step: float = 0.0,
        stops: Sequence[float] | None = None,
        seed: int = 0,
    ) -> Together:
        """``step``: the spacing of the grid that all the attacks worked on, 0 where there is none."""
        keys = sorted({_key(record) for _, records in attacks for record in records})
        places = {key: place for place, key in enumerate(keys)}
        found = []
        for _, records in attacks:
            values = np.full(len(keys), np.nan)
            values[[places[_key(record)] for record in records]] = distances_of(records)
            found.append(values)
        grid = grid_of(attacks[0][0], np.concatenate(found), step)
        reaches = [reach_of(info, distances_of(records)) for info, records in attacks]
        return cls(keys, found, reaches, grid, list(stops or [0.0] * len(attacks)), seed)

    @cached_property
    def draw(self) -> Bootstrap:
        return Bootstrap([image for image, _ in self.keys], self.seed)

    def resisting(self, epsilon: float) -> Array:
        """(N,) 1 where every attack is resisted within ``epsilon``; NaN where no attack says anything about it."""
        return worst_case(self.found, self.reaches, epsilon, self.grid, self.stops)

    def share(self, epsilon: float) -> float:
        return mean(self.resisting(epsilon))

    @property
    def start(self) -> float:
        """Where the curve begins: below it every attack's images stopped early."""
        free = [stop for stop, reach in zip(self.stops, self.reaches, strict=True) if math.isinf(reach)]
        return min(free, default=0.0)

    @property
    def curve(self) -> Array:
        """(N,) from which radius on some attack is known to break each image."""
        return worst_distances(self.found, self.reaches)

    def summary(self, radii: Sequence[float]) -> dict[str, Any]:
        """Robust accuracy against all the attacks, and the median of the smallest change that any of them found."""
        free = [values for values, reach in zip(self.found, self.reaches, strict=True) if math.isinf(reach)]
        nearest = worst_distances(free, [math.inf] * len(free)) if free else np.full(len(self.keys), np.nan)
        there = ~np.isnan(nearest)
        draw = Bootstrap([image for (image, _), here in zip(self.keys, there, strict=True) if here], self.seed)
        return {
            "attacks": len(self.reaches),
            "robust_accuracy": [{"epsilon": epsilon, **share(self.resisting(epsilon), self.draw)} for epsilon in radii],
            "median": value_of(median(nearest[there]), draw.of_median(nearest[there]))
            if not any(self.stops)
            else value_of(math.nan, (math.nan, math.nan)),
        }


def _key(record: Record) -> tuple[int, int]:
    return record.image, -1 if record.target is None else record.target


def chosen_radii(distance: str, asked: dict[str, list[float]], groups: Sequence[Together]) -> list[float]:
    """The radii that are columns of tables: those asked for; else the fixed radii of attacks and the two usual ones
    that tell most.

    Those are where the worst case is nearest to half of what stands at radius 0, on average over the ``groups``.
    """
    if distance in asked:
        return asked[distance]
    fixed = {reach for group in groups for reach in group.reaches if math.isfinite(reach)}
    minimal = [group for group in groups if any(map(math.isinf, group.reaches))]
    clean, scores = [group.share(0.0) for group in minimal], []
    for epsilon in EPSILONS.get(distance) or _round_medians(minimal):
        left = [group.share(epsilon) for group in minimal]
        if any(0 < here < start for here, start in zip(left, clean, strict=True)):
            scores.append(
                (mean(np.array([abs(here - start / 2) for here, start in zip(left, clean, strict=True)])), epsilon)
            )
    return sorted(fixed | {epsilon for _, epsilon in sorted(scores)[:2]})


def _round_medians(groups: Sequence[Together]) -> list[float]:
    """For a distance without usual radii: the worst case's median to one digit."""
    middles = [median(worst[~np.isnan(worst)]) for worst in (group.curve for group in groups)]
    return sorted({float(f"{middle:.1g}") for middle in middles if math.isfinite(middle) and middle > 0})


def summarise(run: RunFolder, seed: int = 0) -> dict[str, Any]:
    """The summary of a run folder, as written to ``summary.json``."""
    images, attacks = run.images, run.attacks
    expected = int(run.meta.get("images", len(images)))
    rounds = int(run.meta.get("classes", 0)) - 1 if run.spec.targets == "all" else 1
    best = best_known(run.records, attacks)
    session = run.sessions[0] if run.sessions else {}
    threat = threat_of(run.spec)
    labels = label_attacks(attacks, [threat] * len(attacks))
    together = {distance: _together(run, distance, seed) for distance in best}
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
            stop_of(run, info.distance),
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
                **mine.summary(radii[distance]),
            }
            for distance, mine in together.items()
        ],
        "attacks": parts,
    }


def stop_of(run: RunFolder, distance: str) -> float:
    """The radius within which the run's images stopped once they were broken; 0 where they did not."""
    return stop_radius(run.spec.stop_within, distance) or 0.0


def _together(run: RunFolder, distance: str, seed: int) -> Together:
    mine = [(info, run.records_of(info.index)) for info in run.attacks if info.distance == distance]
    return Together.of(mine, run.step, [stop_of(run, distance)] * len(mine), seed)


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


def resisting(
    run: RunFolder, eps: float | str | Mapping[str | float, float | str], attacks: Sequence[AttackInfo]
) -> float:
    """``Run.robust_accuracy`` over these attacks of the run."""
    names = list(dict.fromkeys(info.distance for info in attacks))
    if not isinstance(eps, Mapping):
        if len(names) > 1:
            raise BadInput(
                f"this run's attacks are in {', '.join(names)}: give radii by distance, such as "
                f"{{{names[0]!r}: {eps!r}}}."
            )
        eps = {names[0]: eps}
    radii = {registry.canonical("distances", name): number(value) for name, value in eps.items()}
    if not radii:
        raise BadInput(f"give a radius for at least one of the distances of this run's attacks: {', '.join(names)}.")
    for name in radii:
        if name not in names:
            raise BadInput(f"this run has no attack in {name}; it has {', '.join(names)}.")
    stands: dict[tuple[int, int], float] = {}
    parts = []
    for name in radii:
        mine = [(info, run.records_of(info.index)) for info in attacks if info.distance == name]
        parts.append(Together.of(mine, run.step, [stop_of(run, name)] * len(mine)))
    seen = set.intersection(*(set(part.keys) for part in parts))
    if not seen:
        raise StoreError(
            f"{run.folder} has no image yet that attacks in {', '.join(radii)} have finished; resume the run first."
        )
    for part, epsilon in zip(parts, radii.values(), strict=True):
        for key, here in zip(part.keys, part.resisting(epsilon), strict=True):
            stands[key] = here * stands.get(key, 1.0)
    return mean(np.array([stands[key] for key in sorted(seen)]))
