"""Two runs side by side, image by image: ratio of medians with its interval, wins and losses, which images changed. No torch here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BadInput
from .numbers import Array, Bootstrap, mean, median, percentiles
from .subjects import Column, Subject, labelled, load
from .tables import number, percent, text_table

NOTE = (
    "ratio: median after / median before, over all images of both runs; below 1 the second run found smaller changes."
)
TIE = 1e-3
"""Distances closer than one in a thousand are a tie: that is what float32 and another batch size can do."""


@dataclass(frozen=True)
class Changed:
    """An image whose result is not the same in the two runs; an infinite distance: nothing was found."""

    id: str
    before: float
    after: float

    @property
    def ratio(self) -> float:
        """after / before; infinite where only the first found something, 0 where only the second did."""
        if math.isinf(self.before) or math.isinf(self.after):
            return 1.0 if self.before == self.after else math.inf if math.isinf(self.after) else 0.0
        return self.after / self.before if self.before > 0 else (1.0 if self.after == 0 else math.inf)


@dataclass(frozen=True)
class Paired:
    """An attack in both runs, over the images both attacked (the same float32 values, by hash)."""

    attack: str  # its text, or both texts where they differ
    label: str
    distance: str
    images: int
    success: tuple[float, float]
    median: tuple[float, float]
    ratio: float  # of the medians over all images, second / first
    interval: tuple[float, float]
    geometric: float  # mean of the ratios image by image, where both found something
    wins: int  # the second run found the smaller change
    losses: int
    ties: int
    changed: list[Changed]  # by how much worse the second is, worst first

    def worse_by(self) -> float:
        """How much worse the second run is, as a share: of the median, or of the images it no longer finds, whichever is more."""
        lost = self.success[0] - self.success[1]
        if math.isnan(self.ratio):
            return lost
        return max(self.ratio - 1, lost)

    def to_dict(self, changed: int) -> dict[str, Any]:
        """For JSON: infinite and undefined values are null."""
        return {
            "attack": self.attack, "distance": self.distance, "images": self.images, "success_rate": [_plain(value) for value in self.success],
            "median": [_plain(value) for value in self.median], "ratio_of_medians": _plain(self.ratio), "ratio_low": _plain(self.interval[0]),
            "ratio_high": _plain(self.interval[1]), "geometric_mean_ratio": _plain(self.geometric), "wins": self.wins, "losses": self.losses,
            "ties": self.ties, "worse_by": _plain(self.worse_by()),
            "changed": [{"id": one.id, "before": _plain(one.before), "after": _plain(one.after)} for one in self.changed[:changed]],
        }  # fmt: skip


def compare(
    first: str | Path, second: str | Path, pairs: Sequence[tuple[str, str]] = (), seed: int = 0
) -> list[Paired]:
    """Every attack that both runs hold (by its text, or as ``pairs`` of texts say), paired by the images' hashes."""
    one, two = _single(first), _single(second)
    matched = _match(one, two, pairs)
    places = {info.sha256: info.index for info in two.images}
    shared = [(info.index, places[info.sha256], info.id) for info in one.images if info.sha256 in places]
    if not shared:
        raise BadInput(
            f"{first} and {second} have no image in common (images are matched by their contents); compare runs on the same data."
        )
    labels = labelled([one])
    return [_pair(before, after, labels[id(before)].label, shared, seed) for before, after in matched]


def _single(folder: str | Path) -> Subject:
    return load([folder])[0]


def _match(one: Subject, two: Subject, pairs: Sequence[tuple[str, str]]) -> list[tuple[Column, Column]]:
    here, there = ({column.info.text: column for column in subject.columns} for subject in (one, two))
    for pair in pairs:
        for text, known, place in zip(pair, (here, there), ("first", "second"), strict=True):
            if text not in known:
                raise BadInput(f"the {place} run has no attack {text!r}; it has {', '.join(known) or 'none'}.")
    wanted = list(pairs) or [(text, text) for text in here if text in there]
    if not wanted:
        raise BadInput("the two runs have no attack in common; name which to compare with --pair \"text in the first=>text in the second\". "
                       f"The first has {', '.join(here) or 'none'}; the second {', '.join(there) or 'none'}.")  # fmt: skip
    for left, right in wanted:
        if here[left].info.distance != there[right].info.distance:
            raise BadInput(f"{left} and {right} minimise different distances; choose attacks of the same distance.")
    return [(here[left], there[right]) for left, right in wanted]


def _pair(before: Column, after: Column, label: str, shared: Sequence[tuple[int, int, str]], seed: int) -> Paired:
    both = [(before.rows[i], after.rows[j], name) for i, j, name in shared if i in before.rows and j in after.rows]
    if not both:
        raise BadInput(f"no image was attacked by {before.info.text} in both runs yet; let them go on first.")
    x = np.array([one.proven for one, _, _ in both], dtype=np.float64)
    y = np.array([two.proven for _, two, _ in both], dtype=np.float64)
    with np.errstate(invalid="ignore"):
        tie = (x == y) | (np.abs(x - y) <= TIE * np.maximum(x, y))
    win, loss = ~tie & (y < x), ~tie & (y > x)
    changed = [Changed(name, float(x[k]), float(y[k])) for k, (_, _, name) in enumerate(both) if not tie[k]]
    changed.sort(key=lambda one: (-one.ratio, one.id))
    found = np.isfinite(x) & np.isfinite(y) & (x > 0) & (y > 0)
    ratio, interval = ratio_of_medians(x, y, seed)
    text = before.info.text if before.info.text == after.info.text else f"{before.info.text} -> {after.info.text}"
    return Paired(
        text, label, before.info.distance, len(both), (mean(np.isfinite(x).astype(np.float64)), mean(np.isfinite(y).astype(np.float64))),
        (median(x), median(y)), ratio, interval, float(np.exp(np.mean(np.log(y[found] / x[found])))) if found.any() else math.nan,
        int(win.sum()), int(loss.sum()), int(tie.sum()), changed,
    )  # fmt: skip


def ratio_of_medians(x: Array, y: Array, seed: int = 0) -> tuple[float, tuple[float, float]]:
    """median(y)/median(x) of paired distances (N,) and its interval over resampled pairs; NaN where it is not defined."""
    ratio = _ratio(median(x), median(y))
    if not len(x):
        return ratio, (math.nan, math.nan)
    drawn = np.array([_ratio(median(x[pick]), median(y[pick])) for pick in Bootstrap(len(x), seed).picks()])
    drawn = drawn[~np.isnan(drawn)]
    return ratio, percentiles(drawn) if len(drawn) else (math.nan, math.nan)


def _ratio(before: float, after: float) -> float:
    if (
        math.isnan(before)
        or math.isnan(after)
        or (math.isinf(before) and math.isinf(after))
        or (before == 0 and after == 0)
    ):
        return math.nan
    return math.inf if before == 0 else after / before


def table(found: Sequence[Paired], show: int = 10) -> str:
    """The comparison for a terminal."""
    header = (
        "attack",
        "images",
        "success % before",
        "after",
        "median before",
        "after",
        "ratio",
        "95 % interval",
        "smaller",
        "larger",
        "equal",
    )
    rows = [(one.attack, one.images, *map(percent, one.success), *map(number, one.median), number(one.ratio),
             f"{number(one.interval[0])} to {number(one.interval[1])}", one.wins, one.losses, one.ties) for one in found]  # fmt: skip
    lines = [text_table(header, rows), "", NOTE]
    for one in found:
        if one.changed and show:
            worst = one.changed[:show]
            which = f", the {len(worst)} worst:" if len(worst) < len(one.changed) else ":"
            lines += ["", f"{one.attack}: {len(one.changed)} images changed{which}"]
            lines.append(
                text_table(
                    ("image", "before", "after", "ratio"),
                    [(c.id, *map(number, (c.before, c.after, c.ratio))) for c in worst],
                )
            )
    return "\n".join(lines)


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
