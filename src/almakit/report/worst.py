"""Attacks together: robust accuracy against the worst case, and the radii it is given at. No torch here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .. import registry
from ..errors import BadInput
from ..radius import Grid, number
from ..runs.failures import StoreError
from ..runs.store.records import AttackInfo, Record, reach_of
from .numbers import Array, Bootstrap, mean, median, share, worst_case, worst_distances

if TYPE_CHECKING:
    from ..runs.folder import RunFolder

EPSILONS: dict[str, tuple[float, ...]] = {
    "linf": (1 / 255, 2 / 255, 4 / 255, 8 / 255, 0.1, 0.2, 0.3),
    "l2": (0.25, 0.5, 1.0, 1.5, 2.0, 3.0),
    "l1": (2.0, 5.0, 8.0, 12.0, 20.0),
    "l0": (5.0, 10.0, 20.0, 50.0),
}
"""Radii people compare at; a run's own quantiles are added, and ``Run.robust_accuracy`` answers for any other."""


def distances_of(records: Sequence[Record], eight_bit: bool = False) -> Array:
    """The distances that count, in the records' order: 0 already wrong, inf where nothing was found or the verdict
    refutes it."""
    return np.array([record.verified_8bit if eight_bit else record.verified for record in records], dtype=np.float64)


def grid_of(info: AttackInfo, found: Array, step: float) -> Grid:
    """Which distances of an attack lie within a radius, given those ``found`` (N,) and the ``step`` of its run."""
    return Grid.of(info.distance, step, found[~np.isnan(found)].tolist())


@dataclass(frozen=True)
class Together:
    """The attacks of one distance and goal on the same images: what they leave standing together, the worst case."""

    keys: list[tuple[int, int]]  # (image, target or -1) of each place
    found: list[
        Array
    ]  # (N,) for each attack: verified distances by image (and target), NaN where it has not been there yet
    reaches: list[float]  # for each attack: its fixed radius, or infinity
    grid: Grid  # which distances lie within a radius

    @classmethod
    def of(cls, attacks: Sequence[tuple[AttackInfo, Sequence[Record]]], step: float = 0.0) -> Together:
        """``step``: the spacing of the grid that all the attacks worked on, 0 where there is none."""
        keys = sorted({_key(record) for _, records in attacks for record in records})
        places = {key: place for place, key in enumerate(keys)}
        found = []
        for _, records in attacks:
            values = np.full(len(keys), np.nan)
            values[[places[_key(record)] for record in records]] = distances_of(records)
            found.append(values)
        grid = grid_of(attacks[0][0], np.concatenate(found), step)
        return cls(keys, found, [reach_of(info, distances_of(records)) for info, records in attacks], grid)

    def share(self, epsilon: float) -> float:
        """The share of images that resist every attack within ``epsilon``; NaN where no attack says anything about
        it."""
        return mean(worst_case(self.found, self.reaches, epsilon, self.grid))

    def rows(self, radii: Sequence[float], seed: int = 0) -> list[dict[str, float | None]]:
        draw = Bootstrap([image for image, _ in self.keys], seed)
        return [
            {"epsilon": epsilon, **share(worst_case(self.found, self.reaches, epsilon, self.grid), draw)}
            for epsilon in radii
        ]


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
    usual = EPSILONS.get(distance) or _round_medians(minimal)
    clean, scores = [group.share(0.0) for group in minimal], []
    for epsilon in usual:
        left = [group.share(epsilon) for group in minimal]
        if any(0 < here < start for here, start in zip(left, clean, strict=True)):
            scores.append(
                (mean(np.array([abs(here - start / 2) for here, start in zip(left, clean, strict=True)])), epsilon)
            )
    return sorted(fixed | {epsilon for _, epsilon in sorted(scores)[:2]})


def _round_medians(groups: Sequence[Together]) -> list[float]:
    """For a distance without usual radii: the worst case's median to one digit."""
    middles = [
        median(worst[~np.isnan(worst)]) for group in groups for worst in [worst_distances(group.found, group.reaches)]
    ]
    return sorted({float(f"{middle:.1g}") for middle in middles if math.isfinite(middle) and middle > 0})


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
    radii = {registry.canonical("distances", name): number(radius) for name, radius in eps.items()}
    if not radii:
        raise BadInput(f"give a radius for at least one of the distances of this run's attacks: {', '.join(names)}.")
    for name in radii:
        if name not in names:
            raise BadInput(f"this run has no attack in {name}; it has {', '.join(names)}.")
    stands: dict[tuple[int, int], float] = {}
    parts = [
        Together.of([(info, run.records_of(info.index)) for info in attacks if info.distance == name], run.step)
        for name in radii
    ]
    seen = set.intersection(*(set(part.keys) for part in parts))
    if not seen:
        raise StoreError(
            f"{run.folder} has no image yet that attacks in {', '.join(radii)} have finished; resume the run first."
        )
    for part, radius in zip(parts, radii.values(), strict=True):
        for key, here in zip(part.keys, worst_case(part.found, part.reaches, radius, part.grid), strict=True):
            stands[key] = here * stands.get(key, 1.0)
    return mean(np.array([stands[key] for key in sorted(seen)]))
