"""The sections of a page that are tables: certified bounds, transfer, features, classes. No torch here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..radius import readable
from ..runs.store.records import SUCCESS
from ..runs.threat import resisted_by
from ..wilson import wilson
from .labels import distance_name
from .numbers import TIE, Bootstrap, median, share, value_of
from .pictures import class_name
from .results import Results
from .subjects import Group, Subject, group_name, groups_of
from .summary import TENTH, certified_accuracy
from .table import Column, Row, Table, brief, percent, plain
from .transfer import matrix, matrix_table

if TYPE_CHECKING:
    from ..data.features import Features

MOST_CLASSES, MOST_ROWS, MOST_FEATURES = 20, 2000, 20


@dataclass(frozen=True)
class Card:
    """A part of a section: a heading, a paragraph, tables, and a note."""

    title: str = ""
    text: str = ""
    tables: tuple[Table, ...] = ()
    note: str = ""

    def json(self) -> dict[str, Any]:
        tables = [{"title": table.title, "rows": table.rows} for table in self.tables]
        found: dict[str, Any] = plain({"title": self.title, "text": self.text, "tables": tables})
        return found


@dataclass(frozen=True)
class Section:
    """Cards under a heading; ``name`` is used in the page's navigation."""

    key: str
    name: str
    title: str
    cards: tuple[Card, ...]
    hint: str = ""


def sections_of(subjects: Sequence[Subject]) -> list[Section]:
    """The sections with content."""

    def of_all(make: Callable[[Subject], Iterable[Card]]) -> tuple[Card, ...]:
        names = {id(subject): f"{subject.name}: " if len(subjects) > 1 else "" for subject in subjects}
        made = ((names[id(subject)], card) for subject in subjects for card in make(subject))
        return tuple(replace(card, title=name + card.title) for name, card in made)

    found = (
        Section("brackets", "Brackets", "Certified and found distances", of_all(brackets_of)),
        Section("transfer", "Transfer", "Transfer", transfer_of(subjects)),
        Section("features", "Features", "Features", of_all(features_of)),
        Section(
            "classes",
            "Classes",
            "Class by class",
            of_all(classes_of),
            "From the smallest change that any attack of a block found for each image; attacks at a fixed radius are "
            "left out here.",
        ),
    )
    return [section for section in found if section.cards]


def brackets_of(subject: Subject) -> Iterable[Card]:
    """For each distance with certified radii, certified and robust accuracy."""
    for (distance, goal), together in subject.groups.items():
        radii = {} if goal else subject.certified(distance)
        if not radii:
            continue
        nearest = np.fmin.reduce([column.by_image for column in together.attacks])
        pairs = [
            (radii[info.index], found)
            for info, found in zip(subject.images, nearest.tolist(), strict=True)
            if info.index in radii and info.correct and 0 < found < math.inf
        ]
        parts = np.array([min(certified / found, 1.0) for certified, found in pairs])
        middle, below = median(parts), int((parts < TENTH).sum())
        if middle >= TENTH:
            text = (
                "The smallest change of each image lies between its certified radius and the found distance: in the "
                f"median of {len(pairs)} images the certified radius is {percent(middle)} % of the found distance."
            ) + (f" For {below} of them it is below a tenth: not certified." if below else "")
        else:
            text = (
                f"Not certified: the bound is below a tenth of the found distance in the median of {len(pairs)} "
                "images, too little to say anything. Bounds are tight for networks trained for them and for shallow "
                "ones."
            )
        epsilons = sorted({epsilon for column in together.attacks for epsilon in column.radii})
        proven = certified_accuracy(np.array(list(radii.values())), epsilons)
        rows: list[Row] = [
            {"within": readable(epsilon, distance), "certified": low, "robust": high}
            for epsilon, low, high in zip(epsilons, proven, together.robust_accuracy(epsilons), strict=True)
            if high["value"] is not None
        ]
        columns = (
            Column("within", "Within"),
            Column("certified", "Certified accuracy (at least)", "share"),
            Column("robust", "Robust accuracy (at most)", "share"),
        )
        table = Table(columns, rows, "Certified and robust accuracy", kind="certified")
        yield Card(distance_name(distance).label, text, (table,))


def transfer_of(subjects: Sequence[Subject]) -> tuple[Card, ...]:
    """The transfer matrix of all runs, if their images were tested on other models."""
    made = matrix([run for subject in subjects for run in subject.runs])
    if made is None:
        return ()
    untargeted = resisted_by({goal for _, goal in groups_of(subjects)}) == "robust accuracy"
    text = "Of the images that were found with the model of a row, the share in % that " + (
        "fools the model of a column too, among those it gets right unattacked."
        if untargeted
        else "reaches the goal with the model of a column too, among those that do not reach it unattacked."
    )
    note = "With 95 % intervals; a cell's tooltip says over how many images."
    return (Card("", text, (matrix_table(made),), note),)


def classes_of(subject: Subject) -> Iterable[Card]:
    """For each distance and goal, the robustness of the classes and the attacks with the smallest distance; nothing if
    images have no class."""
    if any(run.segmentation or run.aimed for run in subject.runs):
        return
    for group in subject.groups:
        columns = [column for column in subject.of_group(group) if column.info.minimal]
        if columns:
            yield _classes(subject, group, columns)


def _classes(subject: Subject, group: Group, columns: Sequence[Results]) -> Card:
    distances = np.array([column.by_image for column in columns])  # (attacks, images)
    best = np.fmin.reduce(distances)
    there = ~np.isnan(best)
    true = np.array([info.label for info in subject.images])
    right = np.array([info.correct for info in subject.images], dtype=np.float64)
    sizes = Counter(true[there].tolist())
    radii, grid, rows = subject.radii[group[0]], subject.groups[group].grid, []
    for label in sorted(label for label, _ in sizes.most_common(MOST_CLASSES)):
        here = (true == label) & there
        draw, mine = Bootstrap(int(here.sum())), best[here]
        row: Row = {"class": class_name(subject, label), "images": len(mine), "clean": share(right[here], draw)}
        row |= {f"at {epsilon}": share(mine > grid.limit(epsilon), draw) for epsilon in radii}
        rows.append(row | {"median": median(mine)})
    heads = (
        Column("class", "True class"),
        Column("images", "Images", "count"),
        Column("clean", "Clean", "share"),
        Column("median", "Median", "distance"),
        *(Column(f"at {at}", f"\u03b5 \u2264 {readable(at, group[0])}", "share") for at in radii),
    )
    tables = [Table(heads, rows, "Robustness of each class", kind="classes")]
    if len(columns) > 1:
        open_ = np.isfinite(best) & (best > 0)  # without misclassified clean images
        with np.errstate(invalid="ignore"):
            nearest = (distances <= best * (1 + TIE)) & open_
        tables.append(_nearest([column.label.label for column in columns], nearest.sum(1), int(open_.sum())))
    left_out = len(sizes) - len(rows)
    note = f"{left_out} classes with fewer images are not shown." if left_out else ""
    return Card(group_name(group), "", tuple(tables), note)


def _nearest(names: Sequence[str], counts: Any, images: int) -> Table:
    """The number of images on which each attack has the smallest distance."""
    rows: list[Row] = [
        {"attack": name, "images": count, "share": value_of(count / images, wilson(count / images, images))}
        for name, count in zip(names, counts.tolist(), strict=True)
        if images
    ]
    columns = (Column("attack", "Attack"), Column("images", "Images", "count"), Column("share", "Share", "share"))
    return Table(columns, rows, "Nearest on how many images (ties count for all)", kind="winners")


def features_of(subject: Subject) -> Iterable[Card]:
    """For each attack on inputs other than images, how often each feature changes among its verified successes, and how
    far in its own units; the most often changed first."""
    features = subject.runs[0].features
    for column in subject.columns if features is not None else ():
        records = [row for row in column.rows.values() if row.status == SUCCESS and not row.refuted]
        stored = [record for record in records if record.slot is not None]
        kept = min(len(stored), MOST_ROWS)
        sample = [stored[place * len(stored) // kept] for place in range(kept)]
        if features is None or not sample:
            yield Card(column.info.text, "No successes.")
            continue
        clean = column.run.originals([record.image for record in sample])
        yield _changed(column.info.text, clean, column.run.adversarials(sample), features)


def _changed(attack: str, clean: Any, points: Any, features: Features) -> Card:
    # Both on the same grid of floats: what is unchanged in [0, 1] is unchanged in its own units.
    before, after = (features.own(values.astype(points.dtype)).reshape(len(points), -1) for values in (clean, points))
    moved = after - before
    changed = (moved != 0).astype(np.float64)
    rows: list[Row] = []
    for place in np.argsort(-changed.mean(0), kind="stable")[:MOST_FEATURES]:
        steps = moved[changed[:, place] > 0, place]
        if len(steps):
            row: Row = {"name": features.name(int(place)), "share": share(changed[:, place], Bootstrap(len(moved)))}
            row |= {"median": float(np.median(np.abs(steps))), "largest": float(np.abs(steps).max())}
            row |= {"up": share((steps > 0).astype(np.float64), Bootstrap(len(steps)))}
            row |= {"range": f"{brief(features.lo.flat[place])} to {brief(features.hi.flat[place])}"}
            rows.append(row)
    columns = (
        Column("name", "Feature"),
        Column("share", "Changed in % of successes", "share"),
        Column("median", "Median change (own units)", "number"),
        Column("largest", "Largest", "number"),
        Column("up", "Upwards", "share"),
        Column("range", "Range"),
    )
    count = features.lo.size
    text = (
        f"In {len(moved)} verified successes {brief(float(changed.sum(1).mean()))} of {count} features change in the "
        "mean."
    )
    note = f"Those that change most often, at most {MOST_FEATURES}." if len(rows) < count else ""
    return Card(attack, text, (Table(columns, rows, "Features that change", kind="features"),), note)
