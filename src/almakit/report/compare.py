"""Two runs paired, attack by attack and image by image: ratio of medians with its interval, wins and losses, and which
images changed. No torch here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BadInput
from ..radius import same
from ..runs.store.fields import finite
from ..runs.store.records import ImageInfo
from ..runs.threat import goal_name, sentence, threat_of
from ..wilson import wilson
from .numbers import Array, Bootstrap, mean, median, percentiles
from .results import Column
from .subjects import Subject, labelled, load
from .table import Column as TableColumn
from .table import Table

TIE = 1e-3
"""Distances closer than one in a thousand are a tie: that is what float32 and another batch size can do."""


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


def side(subject: Subject) -> Side:
    """The one run of a subject."""
    run, summary = subject.runs[0], subject.summaries[0]
    environment = summary.get("environment") or {}
    versions = f"almakit {environment.get('almakit', '?')}, torch {environment.get('torch', '?')}"
    data = str(run.meta.get("data") or run.spec.data)
    return Side(
        str(run.folder),
        str(run.meta.get("model") or run.spec.model),
        run.meta.get("weights_sha256"),
        run.model_sha256,
        data,
        len(subject.images),
        goal_name(threat_of(run.spec).goal),
        sentence(threat_of(run.spec)),
        versions,
    )


def compare(
    first: str | Path,
    second: str | Path,
    pairs: Sequence[tuple[str, str]] = (),
    seed: int = 0,
    across: Sequence[str] = (),
    canonical: Callable[[str], str | None] = lambda text: text,
) -> Comparison:
    """Every attack that both runs hold (by its text, or as ``pairs`` of texts say), paired by the images' hashes and
    labels.

    Runs on different models or with different goals are refused unless ``across`` holds "models" or "goals": their
    numbers answer different questions. ``canonical`` writes an attack's text as runs store it.
    """
    one, two = load([first])[0], load([second])[0]
    before, after = side(one), side(two)
    if "models" not in across and (before.model_sha256 or before.model) != (after.model_sha256 or after.model):
        why = ", whose weights are equal and whose code, preprocessing or settings differ"
        raise BadInput(
            f"the runs attack different models{why if before.weights and before.weights == after.weights else ''}: "
            f"{before}; {after}. To compare models, give --across models."
        )
    if "goals" not in across and before.goal != after.goal:
        raise BadInput(
            f"the runs have different goals: {first} is {before.goal}, {second} is {after.goal}. To compare goals, "
            "give --across goals."
        )
    matched = _match(one, two, pairs, canonical)
    places = {content: info.index for content, info in _by_content(two).items()}
    shared = [(info.index, places[content], info.id) for content, info in _by_content(one).items() if content in places]
    if not shared or one.runs[0].meta.get("features") != two.runs[0].meta.get("features"):
        raise BadInput(
            f"{first} and {second} have no image in common (images are matched by their contents and labels); compare "
            "runs on the same data."
        )
    labels = labelled([one])
    if "goals" not in across:
        _same_targets(matched, shared)
    return Comparison(
        before, after, [_pair(left, right, labels[id(left)].label, shared, seed) for left, right in matched]
    )


def _by_content(subject: Subject) -> dict[tuple[str, int, int], ImageInfo]:
    """The images by contents, label, and how many equal ones come before."""
    found: dict[tuple[str, int, int], ImageInfo] = {}
    before: Counter[tuple[str, int]] = Counter()
    for info in subject.images:
        found[info.sha256, info.label, before[info.content]] = info
        before[info.content] += 1
    return found


def _same_targets(matched: Sequence[tuple[Column, Column]], shared: Sequence[tuple[int, int, str]]) -> None:
    for before, after in matched:
        if before.many_targets:
            continue  # the nearest of all targets may well be another
        for i, j, name in shared:
            if i in before.rows and j in after.rows and before.rows[i].target != after.rows[j].target:
                raise BadInput(
                    f"the runs aim at different classes (image {name}: {before.rows[i].target} and "
                    f"{after.rows[j].target}); to compare them all the same, give --across goals."
                )


def _match(
    one: Subject, two: Subject, pairs: Sequence[tuple[str, str]], canonical: Callable[[str], str | None]
) -> list[tuple[Column, Column]]:
    here, there = ({column.info.text: column for column in subject.columns} for subject in (one, two))
    wanted = [
        (_known(left, here, "first", canonical), _known(right, there, "second", canonical)) for left, right in pairs
    ]
    wanted = wanted or [(text, text) for text in here if text in there]
    if not wanted:
        raise BadInput(
            'the two runs have no attack in common; name which to compare with --pair "text in the '
            'first=>text in the second". '
            f"The first has {', '.join(here) or 'none'}; the second {', '.join(there) or 'none'}."
        )
    for left, right in wanted:
        if here[left].info.distance != there[right].info.distance:
            raise BadInput(f"{left} and {right} minimise different distances; choose attacks of the same distance.")
        if not same(here[left].reach, there[right].reach):
            raise BadInput(
                f"{left} and {right} do not look equally far: one works at a fixed radius that is not the other's; "
                "choose two that look for the smallest change, or two of the same radius."
            )
    return [(here[left], there[right]) for left, right in wanted]


def _known(text: str, known: Mapping[str, Column], place: str, canonical: Callable[[str], str | None]) -> str:
    """The stored text of the attack that ``text`` writes, as it was typed at ``almakit run`` or as it is stored."""
    written = canonical(text)
    for stored in known:
        if text == stored or (written is not None and written in (stored, canonical(stored))):
            return stored
    raise BadInput(f"the {place} run has no attack {text!r}; it has {', '.join(known) or 'none'}.")


def _pair(before: Column, after: Column, label: str, shared: Sequence[tuple[int, int, str]], seed: int) -> Paired:
    both = [(before.rows[i], after.rows[j], name) for i, j, name in shared if i in before.rows and j in after.rows]
    if not both:
        raise BadInput(f"no image was attacked by {before.info.text} in both runs yet; let them go on first.")
    x = np.array([one.verified for one, _, _ in both], dtype=np.float64)
    y = np.array([two.verified for _, two, _ in both], dtype=np.float64)
    fixed = math.isfinite(before.reach)
    if fixed:  # at a fixed radius an image is broken or not: how far inside says nothing
        x, y = (np.where(np.isfinite(values) & (values > 0), before.reach, values) for values in (x, y))
    with np.errstate(invalid="ignore"):
        tie = (x == y) | (np.abs(x - y) <= TIE * np.maximum(x, y))
    win, loss = ~tie & (y < x), ~tie & (y > x)
    changed = [Changed(name, float(x[k]), float(y[k])) for k, (_, _, name) in enumerate(both) if not tie[k]]
    changed.sort(key=lambda one: (-one.ratio, one.id))
    found = np.isfinite(x) & np.isfinite(y) & (x > 0) & (y > 0)
    ratio, interval = (math.nan, (math.nan, math.nan)) if fixed else ratio_of_medians(x, y, seed)
    middle = (math.nan, math.nan) if fixed else (median(x), median(y))
    text = before.info.text if before.info.text == after.info.text else f"{before.info.text} -> {after.info.text}"
    return Paired(
        text,
        label,
        before.info.distance,
        len(both),
        (mean(np.isfinite(x).astype(np.float64)), mean(np.isfinite(y).astype(np.float64))),
        middle,
        ratio,
        interval,
        float(np.exp(np.mean(np.log(y[found] / x[found])))) if found.any() and not fixed else math.nan,
        int(win.sum()),
        int(loss.sum()),
        int(tie.sum()),
        changed,
    )


def ratio_of_medians(x: Array, y: Array, seed: int = 0) -> tuple[float, tuple[float, float]]:
    """median(y)/median(x) of paired distances (N,) and its interval over resampled pairs; NaN where it is not
    defined."""
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


COLUMNS = (
    TableColumn("attack", "attack"),
    TableColumn("images", "images", "count"),
    TableColumn("success_before", "success before", "share"),
    TableColumn("success_after", "success after", "share"),
    TableColumn("median_before", "median before", "distance"),
    TableColumn("median_after", "median after", "distance"),
    TableColumn("ratio", "ratio", "distance"),
    TableColumn("wins", "smaller", "count"),
    TableColumn("losses", "larger", "count"),
    TableColumn("ties", "equal", "count"),
)
CHANGED = (
    TableColumn("image", "image"),
    TableColumn("before", "before", "distance"),
    TableColumn("after", "after", "distance"),
    TableColumn("ratio", "ratio", "distance"),
)


def table(comparison: Comparison, show: int = 10) -> str:
    """The comparison for a terminal, headed by what is compared."""
    rows = []
    for one in comparison.pairs:
        values = (*map(_share, one.success, (one.images,) * 2), *one.median)
        ratio = {"value": one.ratio, "low": one.interval[0], "high": one.interval[1]}
        numbers = (one.attack, one.images, *values, one.ratio if math.isnan(one.ratio) else ratio)
        numbers += (one.wins, one.losses, one.ties)
        rows.append({column.name: value for column, value in zip(COLUMNS, numbers, strict=True)})
    lines = [
        f"before  {comparison.before}",
        f"after   {comparison.after}",
        "",
        Table(COLUMNS, rows).text(width=0),
        "",
        NOTE,
    ]
    for one in comparison.pairs:
        if one.changed and show:
            worst = one.changed[:show]
            which = f", the {len(worst)} worst:" if len(worst) < len(one.changed) else ":"
            lines += ["", f"{one.attack}: {len(one.changed)} images changed{which}"]
            changed = [{"image": c.id, "before": c.before, "after": c.after, "ratio": c.ratio} for c in worst]
            lines.append(Table(CHANGED, changed).text())
    return "\n".join(lines)


def _share(value: float, images: int) -> dict[str, float]:
    low, high = wilson(value, images)
    return {"value": value, "low": low, "high": high}
