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
from ..runs.threat import goal_name, threat_of
from .classes import TIE
from .numbers import Array, Bootstrap, median, percentiles
from .results import Column, Results
from .subjects import Subject, load
from .summary import MEASURES, attack_summary
from .table import Column as TableColumn
from .table import Row, Table

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
        if self.before == self.after:
            return 1.0
        return math.inf if self.before == 0 or math.isinf(self.after) else self.after / self.before


@dataclass(frozen=True)
class Paired:
    """An attack in both runs, over the images both attacked (the same float32 values, by hash, and label)."""

    attack: str  # its text, or both texts where they differ
    distance: str
    images: int
    parts: tuple[dict[str, Any], dict[str, Any]]  # the attack's summary in each run, over these images
    ratio: float  # of the medians over all images, second / first
    interval: tuple[float, float]
    geometric: float  # mean of the ratios image by image, where both found something
    wins: int  # the second run found the smaller change
    losses: int
    ties: int
    changed: list[Changed]  # by how much worse the second is, worst first

    @property
    def success(self) -> list[float]:
        return [part["success_rate"]["value"] for part in self.parts]

    def worse_by(self) -> float:
        """How much worse the second run is, as a share: of the median, or of the images it no longer finds, whichever
        is more."""
        lost = self.success[0] - self.success[1]
        return lost if math.isnan(self.ratio) else max(self.ratio - 1, lost)

    def to_dict(self, changed: int) -> dict[str, Any]:
        """For JSON: infinite and undefined values are null."""
        return {
            "attack": self.attack,
            "distance": self.distance,
            "images": self.images,
            "success_rate": self.success,
            "median": [part["median_all"]["value"] for part in self.parts],
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

    @classmethod
    def of(cls, subject: Subject) -> Side:
        """The one run of a subject."""
        run, summary = subject.runs[0], subject.summaries[0]
        facts, environment = summary["run"], summary["environment"] or {}
        return cls(
            str(run.folder),
            str(facts["model"] or run.spec.model),
            facts["weights_sha256"],
            facts["model_sha256"],
            str(facts["data"] or run.spec.data),
            len(subject.images),
            goal_name(threat_of(run.spec).goal),
            facts["threat_model"],
            f"almakit {environment.get('almakit', '?')}, torch {environment.get('torch', '?')}",
        )

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
    before, after = Side.of(one), Side.of(two)
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
    if "goals" not in across:
        _same_targets(matched, shared)
    return Comparison(before, after, [_pair(left, right, shared, seed) for left, right in matched])


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


def _pair(before: Column, after: Column, shared: Sequence[tuple[int, int, str]], seed: int) -> Paired:
    both = [(before.rows[i], after.rows[j], name) for i, j, name in shared if i in before.rows and j in after.rows]
    if not both:
        raise BadInput(f"no image was attacked by {before.info.text} in both runs yet; let them go on first.")
    one = Results(before.info, [record for record, _, _ in both], step=before.step)
    two = Results(after.info, [record for _, record, _ in both], step=after.step)
    x, y, fixed = one.distances, two.distances, not before.info.minimal
    if fixed:  # at a fixed radius an image is broken or not: how far inside says nothing
        x, y = (np.where(np.isfinite(values) & (values > 0), before.reach, values) for values in (x, y))
    with np.errstate(invalid="ignore"):
        tie = (x == y) | (np.abs(x - y) <= TIE * np.maximum(x, y))
    changed = [Changed(name, float(x[k]), float(y[k])) for k, (_, _, name) in enumerate(both) if not tie[k]]
    changed.sort(key=lambda image: (-image.ratio, image.id))
    found = np.isfinite(x) & np.isfinite(y) & (x > 0) & (y > 0)
    ratio, interval = (math.nan, (math.nan, math.nan)) if fixed else ratio_of_medians(x, y, seed)
    return Paired(
        " -> ".join(dict.fromkeys([before.info.text, after.info.text])),
        before.info.distance,
        len(both),
        (attack_summary(one), attack_summary(two)),
        ratio,
        interval,
        float(np.exp(np.mean(np.log(y[found] / x[found])))) if found.any() and not fixed else math.nan,
        int((~tie & (y < x)).sum()),
        int((~tie & (y > x)).sum()),
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
    if before == after:
        return math.nan if before == 0 or math.isinf(before) else 1.0
    return math.inf if before == 0 else after / before


COLUMNS = (
    TableColumn("attack", "attack"),
    TableColumn("images", "images", "count"),
    TableColumn("success_before", "success before", "share"),
    TableColumn("success_after", "success after", "share"),
    TableColumn("median_before", "median before", "distance", interval=False),
    TableColumn("median_after", "median after", "distance", interval=False),
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
MEDIAN = next(measure for measure in MEASURES if measure.name == "median")


def table(comparison: Comparison, show: int = 10) -> str:
    """The comparison for a terminal, headed by what is compared."""
    rows: list[Row] = []
    for one in comparison.pairs:
        ratio = {"value": one.ratio, "low": one.interval[0], "high": one.interval[1]}
        row: Row = vars(one) | {"ratio": None if math.isnan(one.ratio) else ratio}
        for when, part in zip(("before", "after"), one.parts, strict=True):
            row |= {f"success_{when}": part["success_rate"], f"median_{when}": MEDIAN.read(part)}
        rows.append(row)
    lines = [
        f"before  {comparison.before}",
        f"after   {comparison.after}",
        "",
        Table(COLUMNS, rows).text(width=120),
        "",
        NOTE,
    ]
    for one in comparison.pairs:
        if one.changed and show:
            worst = one.changed[:show]
            which = f", the {len(worst)} worst:" if len(worst) < len(one.changed) else ":"
            lines += ["", f"{one.attack}: {len(one.changed)} images changed{which}"]
            changed: list[Row] = [vars(image) | {"image": image.id, "ratio": image.ratio} for image in worst]
            lines.append(Table(CHANGED, changed).text())
    return "\n".join(lines)
