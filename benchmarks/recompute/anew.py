"""The arithmetic of `recompute.py`: an attack's exported records to numbers, with NumPy and code of its own."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

TOLERANCE = 1e-9  # relative: both sides work in double precision
RESAMPLES = 1000
Rows = list[dict[str, str]]


class Check:
    """Counts what is compared, and keeps what differs."""

    def __init__(self) -> None:
        self.compared: dict[str, int] = defaultdict(int)
        self.differences: list[str] = []

    def same(self, where: str, what: str, mine: Any, theirs: Any, exact: bool = True) -> None:
        self.compared[where] += 1
        if isinstance(mine, float) and not np.isfinite(mine):
            mine = None
        if mine is None or theirs is None or isinstance(mine, str):
            equal = mine == theirs
        else:
            equal = abs(mine - theirs) <= TOLERANCE * max(1.0, abs(mine)) if exact else mine == theirs
        if not equal:
            self.differences.append(f"{where}: {what} is {theirs!r}, recomputed {mine!r}")


# The arithmetic, anew.


def quantile(values: np.ndarray, at: float) -> float:
    if not len(values):
        return np.nan
    ordered, place = np.sort(values), at * (len(values) - 1)
    low, share = int(place), place - int(place)
    if share == 0 or ordered[low] == ordered[low + 1]:
        return float(ordered[low])
    return float(ordered[low] * (1 - share) + ordered[low + 1] * share)


def ends(drawn: np.ndarray) -> tuple[float, float]:
    return quantile(drawn, 0.025), quantile(drawn, 0.975)


def share(flags: np.ndarray, images: list[int] | None = None) -> dict[str, float]:
    """A share with Wilson's interval, whose ends are the roots of (1 + z^2/n) p^2 - (2 s + z^2/n) p + s^2; n is the
    number of images, or what gives the share the variance it has over images, where these have several flags each."""
    if not len(flags):
        return {"value": np.nan, "low": np.nan, "high": np.nan}
    value, count = float(np.mean(flags)), float(len(flags))
    if images is not None and len(set(images)) < len(images):
        places: dict[int, list[float]] = defaultdict(list)
        for image, flag in zip(images, flags, strict=True):
            places[image].append(float(flag) - value)
        variance = sum(sum(part) ** 2 for part in places.values()) / count**2
        few = float(len(places))
        count = min(max(value * (1 - value) / variance, few), count) if variance else count if 0 < value < 1 else few
    z = 1.959964**2 / count
    a, b, c = 1 + z, -(2 * value + z), value**2
    root = np.sqrt(max(b * b - 4 * a * c, 0.0))
    low, high = (-b - root) / (2 * a), (-b + root) / (2 * a)
    return {"value": value, "low": low if value > 0 else 0.0, "high": high if value < 1 else 1.0}


def middle_over_images(values: np.ndarray, images: list[int], known: list[int]) -> dict[str, float]:
    """A median of several values per image, with the interval of resampling the images ``known``."""
    parts = [values[[place for place, image in enumerate(images) if image == one]] for one in known]
    generator = np.random.default_rng(0)
    drawn = [
        quantile(np.concatenate([parts[place] for place in pick]), 0.5)
        for pick in (generator.integers(0, len(known), size=len(known), dtype=np.int32) for _ in range(RESAMPLES))
    ]
    middles = np.array([value for value in drawn if not np.isnan(value)])
    low, high = ends(middles)
    return {"value": quantile(values, 0.5), "low": low, "high": high}


def middle(values: np.ndarray, keep: np.ndarray | None = None) -> dict[str, float]:
    """A median with its interval: the middle of m draws lies where the k-th of m uniform numbers does."""
    source, images = np.sort(values if keep is None else values[keep]), len(values)
    if not len(source):
        return {"value": np.nan, "low": np.nan, "high": np.nan}
    generator = np.random.default_rng((0, 3))
    sizes = generator.binomial(images, len(source) / images, RESAMPLES)
    sizes = sizes[sizes > 0]
    rank = (sizes + 1) // 2
    lower = generator.beta(rank, sizes + 1 - rank)
    step = 1 - generator.random(len(sizes)) ** (1 / np.maximum(sizes - rank, 1))
    upper = np.where(sizes % 2 == 1, lower, lower + (1 - lower) * step)
    pick = [source[np.minimum((place * len(source)).astype(int), len(source) - 1)] for place in (lower, upper)]
    with np.errstate(invalid="ignore"):
        low, high = ends(np.where(pick[0] == pick[1], pick[0], (pick[0] + pick[1]) / 2))
    return {"value": quantile(source, 0.5), "low": low, "high": high}


def within(distance: Any, radius: float) -> Any:
    """Whether a distance counts as within a radius: float32 rounding does not put it outside."""
    return distance <= radius * (1 + 1e-5) + 2.0**-23 * (radius > 0)


class Attack:
    """One attack's exported records."""

    def __init__(self, rows: Rows):
        self.rows, self.text, self.distance = rows, rows[0]["attack"], rows[0]["distance_name"]
        self.epsilon = float(rows[0]["epsilon"]) if rows[0]["epsilon"] else None
        self.keys = [(int(row["image"]), int(row["target"] or -1)) for row in rows]
        self.images = [image for image, _ in self.keys]
        self.attacked = np.array([row["status"] != "already-wrong" for row in rows])
        self.verified = np.array([self._verified(row, "") for row in rows])
        self.coarse = np.array([self._verified(row, "_8bit") for row in rows])

    @staticmethod
    def _verified(row: dict[str, str], kind: str) -> float:
        if row["status"] not in ("already-wrong", "success") or row[f"fooled{kind}"] != "True":
            return np.inf
        return 0.0 if row["status"] == "already-wrong" else float(row[f"measured{kind}"])

    def column(self, name: str, attacked: bool = False) -> np.ndarray:
        return np.array(
            [float(row[name]) for row, mine in zip(self.rows, self.attacked, strict=True) if mine or not attacked]
        )

    def robust(self, radius: float) -> np.ndarray | None:
        if self.epsilon is None:
            return ~within(self.verified, radius)
        return np.isinf(self.verified) if abs(radius - self.epsilon) <= 1e-5 * radius else None

    def numbers(self) -> dict[str, Any]:
        found = {
            "success_rate": self.share(np.isfinite(self.verified)),
            "success_rate_8bit": self.share(np.isfinite(self.coarse)),
            "forwards": self.column("forwards", True).mean(),
            "backwards": self.column("backwards", True).mean(),
            "seconds": self.column("seconds").mean(),
        }
        none = {"value": np.nan, "low": np.nan, "high": np.nan}
        smallest = self.epsilon is None
        found["median_all"] = self.middle(self.verified) if smallest else none
        found["median_attacked"] = self.middle(self.verified, self.attacked) if smallest else none
        found["median_all_8bit"] = self.middle(self.coarse) if smallest else none
        return found

    def share(self, flags: np.ndarray) -> dict[str, float]:
        return share(flags, self.images if len(flags) else None)

    def middle(self, values: np.ndarray, keep: np.ndarray | None = None) -> dict[str, float]:
        if len(set(self.images)) == len(self.images):
            return middle(values, keep)
        kept = np.ones(len(values), dtype=bool) if keep is None else keep
        known = sorted(set(self.images))
        return middle_over_images(
            values[kept], [image for image, here in zip(self.images, kept, strict=True) if here], known
        )

    def optimality(self, best: dict[tuple[int, int], float]) -> float:
        """1 - (area under this curve - area under the best one) / (area under no attack's - that)."""
        if self.epsilon is not None:
            return np.nan
        known = np.minimum([best.get(key, np.inf) for key in self.keys], self.verified)
        if not np.isfinite(known).any() or (top := known[np.isfinite(known)].max()) <= 0:
            return np.nan
        ideal, here = np.minimum(known, top).mean(), np.minimum(self.verified, top).mean()
        scale = self.attacked.mean() * top - ideal
        return 1 - (here - ideal) / scale if scale > 1e-12 * top else np.nan


def best_known(attacks: list[Attack]) -> dict[str, dict[tuple[int, int], float]]:
    """Distance -> (image, target) -> the smallest distance any verified image has in it, whichever attack found it."""
    best: dict[str, dict[tuple[int, int], float]] = {attack.distance: {} for attack in attacks}
    for attack in attacks:
        for key, row, verified, attacked in zip(
            attack.keys, attack.rows, attack.verified, attack.attacked, strict=True
        ):
            for name, known in best.items():
                value = verified if name == attack.distance else float(row[name]) if row.get(name) else np.inf
                if np.isfinite(verified):
                    known[key] = min(known.get(key, np.inf), value if attacked else 0.0)
    return best


def images_of(attacks: list[Attack]) -> list[int]:
    """The image of each place of ``worst``."""
    return [image for image, _ in sorted({key for attack in attacks for key in attack.keys})]


def worst(attacks: list[Attack], radius: float) -> np.ndarray | None:
    """Which images (and targets) resist every attack within a radius; None where no attack says anything about it."""
    if not any(attack.robust(radius) is not None for attack in attacks):
        return None
    stands: dict[tuple[int, int], bool] = {}
    for attack in attacks:
        for key, verified in zip(attack.keys, attack.verified, strict=True):
            inside = (
                within(verified, radius)
                if attack.epsilon is None or verified == 0
                else np.isfinite(verified) and attack.epsilon <= radius * (1 + 1e-5)
            )
            stands[key] = stands.get(key, True) and not inside
    return np.array([stands[key] for key in sorted(stands)])


def read(folder: Path) -> list[Attack]:
    by_attack: dict[str, Rows] = {}
    with (folder / "records.csv").open(newline="") as opened:
        for row in csv.DictReader(opened):
            by_attack.setdefault(row["attack"], []).append(row)
    return [Attack(rows) for rows in by_attack.values()]
