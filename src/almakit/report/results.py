"""Records as arrays of distances: of one attack, and of all attacks of a distance and goal. No torch here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..radius import Grid, same
from ..runs.radii import stop_radius
from ..runs.store.records import AttackInfo, Record, reach_of
from ..runs.threat import Threat, threat_of
from .labels import UNLABELLED, AttackLabel
from .numbers import Array, Bootstrap, Value, mean, median, share, value_of

if TYPE_CHECKING:
    from ..runs.folder import RunFolder

EPSILONS: dict[str, tuple[float, ...]] = {
    "linf": (1 / 255, 2 / 255, 4 / 255, 8 / 255, 0.1, 0.2, 0.3),
    "l2": (0.25, 0.5, 1.0, 1.5, 2.0, 3.0),
    "l1": (2.0, 5.0, 8.0, 12.0, 20.0),
    "l0": (5.0, 10.0, 20.0, 50.0),
}
"""Usual radii of robust accuracy. A run's own quantiles are added; ``Run.robust_accuracy`` takes any other radius."""
Best = Mapping[tuple[int, "int | None"], float]
"""The smallest known distance of each (image, target)."""
LARGEST = float(np.finfo(np.float64).max)
UNDEFINED: Value = {"value": None, "low": None, "high": None}


@dataclass
class Results:
    """The records of one attack of a run as arrays (N,), one entry per record. ``numbers``: its part of the run's
    summary. ``label``: its label in the report.

    ``best``: the smallest known distances over all attacks. ``epsilons``: the radii of the tables. ``certified``: the
    certified radius by image. ``step``: the spacing of the run's grid, 0 without a grid. ``stop``: the radius within
    which broken images stop; there are no results for smaller radii.
    """

    info: AttackInfo
    records: Sequence[Record]
    run: RunFolder
    best: Best | None = None
    epsilons: Sequence[float] = ()
    certified: Mapping[int, float] | None = None
    step: float = 0.0
    stop: float = 0.0
    numbers: dict[str, Any] = field(default_factory=dict)
    label: AttackLabel = UNLABELLED

    @cached_property
    def distances(self) -> Array:
        """The verified distances: 0 for a misclassified clean image, infinite if the attack failed or the verdict
        refutes its success."""
        return np.array([record.verified for record in self.records], dtype=np.float64)

    @cached_property
    def distances_8bit(self) -> Array:
        """The same after rounding to 8 bits."""
        return np.array([record.verified_8bit for record in self.records], dtype=np.float64)

    @property
    def complete(self) -> bool:
        """Whether the full curve is known: the attack minimises the distance and no image stopped early."""
        return self.info.minimal and not self.stop

    @cached_property
    def attacked(self) -> Any:
        return np.array([record.attacked for record in self.records], dtype=bool)

    @cached_property
    def draw(self) -> Bootstrap:
        return Bootstrap([record.image for record in self.records])

    @cached_property
    def reach(self) -> float:
        """The fixed radius of the attack; infinite for an attack that minimises the distance."""
        return reach_of(self.info, self.distances)

    @property
    def gradient_free(self) -> bool:
        """Whether the attack used no gradient of the model, because it needs none or a surrogate provided them."""
        return bool(self.attacked.any()) and not any(
            record.backwards and not record.surrogate_forwards for record in self.records
        )

    @cached_property
    def grid(self) -> Grid:
        """Decides which distances are within a radius."""
        return Grid.of(self.info.distance, self.step, self.distances.tolist())

    @cached_property
    def radii(self) -> list[float]:
        """The radii at which robust accuracy is given: for an attack at a fixed epsilon, only this one."""
        if math.isfinite(self.reach):
            return [self.reach]
        found = self.distances[np.isfinite(self.distances) & (self.distances > 0)]
        own = [float(f"{np.quantile(found, at):.3g}") for at in (0.1, 0.25, 0.5, 0.75, 0.9)] if len(found) else []
        usual = {0.0, *EPSILONS.get(self.info.distance, ()), *own, *map(float, self.epsilons)}
        return sorted(epsilon for epsilon in usual if self.knows(epsilon))

    def knows(self, epsilon: float) -> bool:
        """Whether the attack gives a result at this radius; an attack at a fixed radius does so only there."""
        if math.isfinite(self.reach):
            return same(epsilon, self.reach)
        return epsilon == 0 or epsilon >= self.stop or same(epsilon, self.stop)

    def counted(self, distances: Array) -> Array:
        """The smallest radius at which each image counts as broken; for an attack at a fixed radius, this radius."""
        if math.isinf(self.reach):
            return distances
        return np.where(np.isfinite(distances) & (distances > 0), self.reach, distances)

    @cached_property
    def certified_radii(self) -> Array | None:
        """The certified radius of each record, NaN if it has none; None for targeted attacks and without
        certificates."""
        if self.certified is None or self.info.targeted:
            return None
        return np.array([self.certified.get(record.image, math.nan) for record in self.records], dtype=np.float64)

    @cached_property
    def known(self) -> Array:
        """The smallest known distance of each record, from any attack."""
        best = self.best or {}
        values = [best.get((record.image, record.target), math.inf) for record in self.records]
        return np.minimum(np.array(values, dtype=np.float64), self.distances)

    @cached_property
    def rows(self) -> dict[int, Record]:
        """The record of each image by its index; with several targets, that of the nearest."""
        found: dict[int, Record] = {}
        for record in self.records:
            if record.image not in found or record.verified < found[record.image].verified:
                found[record.image] = record
        return found

    @cached_property
    def by_image(self) -> Array:
        """The distance of each image of the run, NaN if it is not finished."""
        images = (image.index for image in self.run.images)
        values = [self.rows[index].verified if index in self.rows else math.nan for index in images]
        return np.array(values, dtype=np.float64)

    @property
    def threat(self) -> Threat:
        return threat_of(self.run.spec)

    @property
    def group(self) -> tuple[str, str]:
        """(distance, goal). Only attacks with equal groups share a table, chart or comparison."""
        return self.info.distance, self.threat.goal

    def share(self, flags: Any, keep: Any = None) -> Value:
        """The share of ``flags`` (N,), or of those selected by ``keep`` (N,), with its interval."""
        values = np.asarray(flags, dtype=np.float64)
        if keep is None:
            return share(values, self.draw)
        return share(values[keep], Bootstrap([record.image for record, kept in zip(self.records, keep) if kept]))

    def median(self, values: Array, keep: Any = None) -> Value:
        """The median of the distances ``values`` (N,), or of those selected by ``keep`` (N,), with its interval;
        undefined for an attack at a fixed radius."""
        if not self.info.minimal:
            return UNDEFINED
        kept = values if keep is None else values[keep]
        middle, low, high = (self.answered(value) for value in (median(kept), *self.draw.of_median(values, keep)))
        return value_of(middle, (low, high))

    def answered(self, distance: float) -> float:
        """A quantile of the distances; NaN if it is below the radius at which images stop."""
        return math.nan if 0 < distance <= self.grid.limit(self.stop) else distance


def columns_of(run: RunFolder) -> list[Results]:
    """The attacks of a run."""
    found = []
    for info in run.attacks:
        stop = stop_radius(run.spec.stop_within, info.distance) or 0.0
        certified = run.certified.get(info.distance)
        records = run.records_of(info.index)
        found.append(Results(info, records, run, certified=certified, step=run.step, stop=stop))
    return found


class Together:
    """Attacks of one distance and goal on the same images: the worst case over all of them."""

    def __init__(self, attacks: Sequence[Results]):
        self.attacks = attacks
        keys = sorted({_key(record) for attack in attacks for record in attack.records})
        places = {key: place for place, key in enumerate(keys)}
        self.keys = keys  # (image, target or -1) of each entry
        self.found: list[Array] = []  # verified distances (N,) of each attack, NaN for unfinished images
        for attack in attacks:
            values = np.full(len(keys), np.nan)
            values[[places[_key(record)] for record in attack.records]] = attack.distances
            self.found.append(values)
        steps = {attack.step for attack in attacks}
        known = np.concatenate(self.found)
        step = steps.pop() if len(steps) == 1 else 0.0
        self.grid = Grid.of(attacks[0].info.distance, step, known[~np.isnan(known)].tolist())

    @cached_property
    def draw(self) -> Bootstrap:
        return Bootstrap([image for image, _ in self.keys])

    def resisting(self, epsilon: float) -> Array:
        """1 for each image that resists every attack within ``epsilon``, shape (N,); NaN if no attack gives a result at
        this radius."""
        if not any(attack.knows(epsilon) for attack in self.attacks):
            return np.full(len(self.keys), np.nan)
        return (self.curve > self.grid.limit(epsilon)).astype(np.float64)

    def robust_accuracy(self, radii: Sequence[float]) -> list[dict[str, Any]]:
        """The share of images that resist every attack at each radius, with its interval."""
        return [{"epsilon": epsilon, **share(self.resisting(epsilon), self.draw)} for epsilon in radii]

    def share(self, epsilon: float) -> float:
        return mean(self.resisting(epsilon))

    @property
    def start(self) -> float:
        """The radius at which the curve begins: images of every attack stop within it."""
        return min((attack.stop for attack in self.attacks if attack.info.minimal), default=0.0)

    @cached_property
    def curve(self) -> Array:
        """The smallest radius at which some attack breaks each image, shape (N,)."""
        counted = [attack.counted(values) for attack, values in zip(self.attacks, self.found, strict=True)]
        return np.asarray(np.fmin.reduce(counted), dtype=np.float64)

    @property
    def minimal(self) -> bool:
        """Whether any attack minimises the distance, so that there is a curve."""
        return any(math.isinf(attack.reach) for attack in self.attacks)

    def median(self) -> Value:
        """The median of the smallest distances over all attacks; undefined if images stopped early."""
        free = [values for values, attack in zip(self.found, self.attacks) if attack.info.minimal]
        if any(attack.stop for attack in self.attacks) or not free:
            return UNDEFINED
        nearest = np.fmin.reduce(free)
        there = ~np.isnan(nearest)
        draw = Bootstrap([image for (image, _), here in zip(self.keys, there) if here])
        return value_of(median(nearest[there]), draw.of_median(nearest[there]))

    @property
    def masked(self) -> int:
        """The number of images that an attack without the model's gradients breaks and no attack with them breaks
        within the same radius, which is a sign of masked gradients."""
        broken = np.zeros(len(self.keys), dtype=bool)
        along = [(attack, values) for attack, values in zip(self.attacks, self.found) if not attack.gradient_free]
        for attack, values in zip(self.attacks, self.found):
            rivals = [
                np.where(np.isinf(other), math.inf, 0.0) if not rival.info.minimal else other
                for rival, other in along
                if rival.info.minimal or same(rival.reach, attack.reach)
            ]
            if attack.gradient_free and rivals:
                nearest = np.fmin.reduce(rivals)
                broken |= np.isfinite(values) & (nearest > min(self.grid.limit(attack.reach), LARGEST))
        return len({image for (image, _), here in zip(self.keys, broken) if here})


def _key(record: Record) -> tuple[int, int]:
    return record.image, -1 if record.target is None else record.target


def best_known(attacks: Sequence[Results]) -> dict[str, dict[tuple[int, int | None], float]]:
    """d* by distance: the smallest verified distance of each (image, target) over all attacks.

    Every verified image counts in all distances in which it was measured, because an attack in l1 may find the smallest
    l2 distance.
    """
    best: dict[str, dict[tuple[int, int | None], float]] = {attack.info.distance: {} for attack in attacks}
    for attack in attacks:
        for record in attack.records:
            if not math.isfinite(record.verified):
                continue
            key = (record.image, record.target)
            values = dict(record.measures) | {attack.info.distance: record.measured}
            for name, known in best.items():
                value = values.get(name) if record.attacked else 0.0
                if value is not None and value < known.get(key, math.inf):
                    known[key] = value
    return best


def chosen_radii(distance: str, groups: Sequence[Together]) -> list[float]:
    """The default radii of tables: the fixed radii of attacks and the two most informative usual ones.

    At these, the worst case is nearest to half of its value at radius 0, on average over the ``groups``.
    """
    fixed = {attack.reach for group in groups for attack in group.attacks if math.isfinite(attack.reach)}
    minimal = [group for group in groups if group.minimal]
    clean, scores = np.array([group.share(0.0) for group in minimal]), []
    for epsilon in EPSILONS.get(distance) or _round_medians(minimal):
        left = np.array([group.share(epsilon) for group in minimal])
        if bool(((left > 0) & (left < clean)).any()):
            scores.append((mean(np.abs(left - clean / 2)), epsilon))
    return sorted(fixed | {epsilon for _, epsilon in sorted(scores)[:2]})


def _round_medians(groups: Sequence[Together]) -> list[float]:
    """For a distance without usual radii, the worst case's median rounded to one digit."""
    middles = [median(group.curve) for group in groups]
    return sorted({float(f"{middle:.1g}") for middle in middles if math.isfinite(middle) and middle > 0})
