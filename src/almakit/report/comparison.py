"""Two runs side by side: ratio of medians with its interval, wins and losses, which images changed; and how it is
shown. No torch here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..runs.store.fields import finite
from .tables import number, percent, text_table

NOTE = (
    "ratio: median after / median before, over all images of both runs; below 1 the second run found smaller changes."
)


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
    """An attack in both runs, over the images both attacked (the same float32 values, by hash, and label)."""

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
        """How much worse the second run is, as a share: of the median, or of the images it no longer finds, whichever
        is more."""
        lost = self.success[0] - self.success[1]
        if math.isnan(self.ratio):
            return lost
        return max(self.ratio - 1, lost)

    def to_dict(self, changed: int) -> dict[str, Any]:
        """For JSON: infinite and undefined values are null."""
        return {
            "attack": self.attack,
            "distance": self.distance,
            "images": self.images,
            "success_rate": [finite(value) for value in self.success],
            "median": [finite(value) for value in self.median],
            "ratio_of_medians": finite(self.ratio),
            "ratio_low": finite(self.interval[0]),
            "ratio_high": finite(self.interval[1]),
            "geometric_mean_ratio": finite(self.geometric),
            "wins": self.wins,
            "losses": self.losses,
            "ties": self.ties,
            "worse_by": finite(self.worse_by()),
            "changed": [
                {"id": one.id, "before": finite(one.before), "after": finite(one.after)}
                for one in self.changed[:changed]
            ],
        }


@dataclass(frozen=True)
class Side:
    """What one of the two runs is, for the head of a comparison."""

    folder: str
    model: str
    weights: str | None
    model_sha256: str | None
    data: str
    images: int
    goal: str
    threat_model: str
    versions: str

    def __str__(self) -> str:
        weights = f" (weights {self.weights[:12]}, identity {str(self.model_sha256)[:12]})" if self.weights else ""
        return (
            f"{self.folder}: {self.model}{weights} on {self.data}, {self.images} images; {self.threat_model}; "
            f"{self.versions}"
        )


@dataclass(frozen=True)
class Comparison:
    """Two runs and the attacks that were paired."""

    before: Side
    after: Side
    pairs: list[Paired]


def table(comparison: Comparison, show: int = 10) -> str:
    """The comparison for a terminal, headed by what is compared."""
    found = comparison.pairs
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
    rows = [
        (
            one.attack,
            one.images,
            *map(percent, one.success),
            *map(_figure, one.median),
            _figure(one.ratio),
            " to ".join(map(_figure, one.interval)),
            one.wins,
            one.losses,
            one.ties,
        )
        for one in found
    ]
    lines = [f"before  {comparison.before}", f"after   {comparison.after}", "", text_table(header, rows), "", NOTE]
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


def _figure(value: float) -> str:
    """A dash where there is none: an attack at a fixed radius has no median."""
    return "-" if math.isnan(value) else number(value)
