"""The sections of a page that are tables: certified bounds, transfer, features, votes, classes. No torch here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..radius import readable
from ..runs.store.records import SUCCESS, Record
from ..runs.threat import resisted_by
from ..wilson import wilson
from .labels import distance_name
from .numbers import TIE, Bootstrap, median, share, value_of
from .pictures import choose, class_name
from .results import Results
from .subjects import Group, Subject, group_name, groups_of
from .summary import TENTH, certified_accuracy
from .table import Column, Row, Table, brief, percent, plain
from .transfer import matrix, matrix_table

if TYPE_CHECKING:
    from ..data.features import Features

MOST_BARS, MOST_CLASSES, MOST_MISTAKES = 60, 20, 15
MOST_ROWS, MOST_FEATURES, MOST_EXAMPLES, MOST_PARTS = 2000, 20, 12, 6


@dataclass(frozen=True)
class Card:
    """A part of a section: a heading, a paragraph, tables, bars of two lengths, and notes."""

    title: str = ""
    text: str = ""
    tables: tuple[Table, ...] = ()
    bars: tuple[tuple[str, float, float], ...] = ()  # (name, certified radius, found distance) of images
    notes: tuple[str, ...] = ()

    def json(self) -> dict[str, Any]:
        tables = [{"title": table.title, "rows": table.rows} for table in self.tables]
        found: dict[str, Any] = plain({"title": self.title, "text": self.text, "tables": tables, "bars": self.bars})
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
        Section("votes", "Votes", "Votes", of_all(votes_of)),
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


# Certified bounds and found distances.


def brackets_of(subject: Subject) -> Iterable[Card]:
    """For each distance with certified radii, certified and robust accuracy, and bars for some images."""
    for (distance, goal), together in subject.groups.items():
        radii = {} if goal else subject.certified(distance)
        if not radii:
            continue
        nearest = np.fmin.reduce([column.by_image for column in together.attacks])
        pairs = sorted(
            (found, radii[info.index], info.id)
            for info, found in zip(subject.images, nearest.tolist(), strict=True)
            if info.index in radii and info.correct and 0 < found < math.inf
        )
        parts = np.array([min(certified / found, 1.0) for found, certified, _ in pairs])
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
        bars = tuple((name, certified, found) for found, certified, name in _sample(pairs, MOST_BARS))
        kind = "A bar for each image of an even sample" if len(bars) < len(pairs) else "A bar for each image"
        note = f"{kind}, by found distance: dark up to the certified radius, light up to the smallest distance found."
        epsilons = sorted({epsilon for column in together.attacks for epsilon in column.radii})
        proven = certified_accuracy(np.array(list(radii.values())), epsilons)
        rows: list[Row] = [
            {"within": readable(epsilon, distance), "certified": low, "robust": high}
            for epsilon, low, high in zip(epsilons, proven, together.robust_accuracy(epsilons), strict=True)
            if high["value"] is not None
        ]
        columns = (
            Column("within", "Within"),
            Column("certified", "Certified accuracy (at least)", "share", order="down"),
            Column("robust", "Robust accuracy (at most)", "share", order="down"),
        )
        table = Table(columns, rows, "Certified and robust accuracy", kind="certified")
        yield Card(distance_name(distance).label, text, (table,), bars, (note,))


def _sample(values: Sequence[Any], most: int) -> list[Any]:
    """At most ``count`` of the values, evenly spread."""
    kept = min(len(values), most)
    return [values[place * len(values) // kept] for place in range(kept)]


# Transfer.


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
    notes = ("With 95 % intervals; a cell's tooltip says over how many images.",)
    return (Card("", text, (matrix_table(made),), (), notes),)


# Classes.


def classes_of(subject: Subject) -> Iterable[Card]:
    """For each distance and goal, the robustness of the classes, their confusions, and the attacks with the smallest
    distance; nothing if images have no class."""
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
    shown = sorted(label for label, _ in sizes.most_common(MOST_CLASSES))
    radii, grid, rows = subject.radii[group[0]], subject.groups[group].grid, []
    for label in shown:
        here = (true == label) & there
        draw, mine = Bootstrap(int(here.sum())), best[here]
        row: Row = {"class": class_name(subject, label), "images": len(mine), "clean": share(right[here], draw)}
        row |= {f"at {epsilon}": share(mine > grid.limit(epsilon), draw) for epsilon in radii}
        rows.append(row | {"median": median(mine)})
    heads = (
        Column("class", "True class"),
        Column("images", "Images", "count", order="down"),
        Column("clean", "Clean", "share", order="down"),
        Column("median", "Median", "distance"),
        *(Column(f"at {at}", f"\u03b5 \u2264 {readable(at, group[0])}", "share", order="down") for at in radii),
    )
    tables = [Table(heads, rows, "Robustness of each class", kind="classes")]
    # Misclassified clean images are left out.
    open_ = np.isfinite(best) & (best > 0)
    mistakes: Counter[tuple[int, int]] = Counter()
    for place in np.flatnonzero(open_):
        record = columns[int(np.nanargmin(distances[:, place]))].rows[subject.images[place].index]
        if record.prediction is not None:
            mistakes[int(true[place]), record.prediction] += 1
    if mistakes:
        tables.append(_mistakes(subject, mistakes, shown, len(sizes)))
    if len(columns) > 1:
        with np.errstate(invalid="ignore"):
            nearest = (distances <= best * (1 + TIE)) & open_
        tables.append(_nearest([column.label.label for column in columns], nearest.sum(1), int(open_.sum())))
    left_out = len(sizes) - len(shown)
    notes = (f"{left_out} classes with fewer images are not shown.",) if left_out else ()
    return Card(group_name(group), "", tuple(tables), (), notes)


def _mistakes(subject: Subject, mistakes: Counter[tuple[int, int]], shown: Sequence[int], classes: int) -> Table:
    """True class and class of the nearest adversarial image: all pairs, or the most frequent ones if there are many
    classes."""
    columns = sorted({after for _, after in mistakes} | set(shown))
    if classes <= MOST_CLASSES and len(columns) <= MOST_CLASSES:
        heads = [Column(str(label), class_name(subject, label), "count", order="down") for label in columns]
        rows: list[Row] = [
            {"class": class_name(subject, label)} | {str(after): mistakes[label, after] for after in columns}
            for label in shown
        ]
        title = "True class (rows) and the class of the nearest adversarial image (columns)"
        return Table((Column("class", ""), *heads), rows, title, kind="confusion", heat=True)
    rows = [
        {"mistake": f"{class_name(subject, before)} \u2192 {class_name(subject, after)}", "images": count}
        for (before, after), count in mistakes.most_common(MOST_MISTAKES)
    ]
    heads = [Column("mistake", "Class, taken for"), Column("images", "Images", "count", order="down")]
    return Table(tuple(heads), rows, "The most frequent mistakes", kind="mistakes")


def _nearest(names: Sequence[str], counts: Any, images: int) -> Table:
    """The number of images on which each attack has the smallest distance."""
    rows: list[Row] = [
        {"attack": name, "images": count, "share": value_of(count / images, wilson(count / images, images))}
        for name, count in zip(names, counts.tolist(), strict=True)
        if images
    ]
    columns = (
        Column("attack", "Attack"),
        Column("images", "Images", "count", order="down"),
        Column("share", "Share", "share", order="down"),
    )
    return Table(columns, rows, "Nearest on how many images (ties count for all)", kind="winners")


# Inputs other than images.


def features_of(subject: Subject) -> Iterable[Card]:
    """For each attack, how often features change, and examples; nothing for images."""
    features = subject.runs[0].features
    if features is not None:
        yield from (_changed(column, features) for column in subject.columns)
        if (examples := _examples(subject, features)).rows:
            note = "Values in their own units; distances are in widths of the features' ranges."
            yield Card("Examples", "", (examples,), (), (note,))


def _stored(record: Record) -> bool:
    return record.status == SUCCESS and not record.refuted and record.slot is not None


def _changed(column: Results, features: Features) -> Card:
    """How often each feature changes among an attack's verified successes, and how far in its own units where it does;
    the most often changed first."""
    records = [row for row in column.rows.values() if _stored(row)]
    sample = _sample(records, MOST_ROWS)
    if not sample:
        return Card(column.info.text, "No successes.")
    before, after = _changes(column, features, sample)
    moved = after - before
    changed = (moved != 0).astype(np.float64)
    rows: list[Row] = []
    for place in np.argsort(-changed.mean(0), kind="stable")[:MOST_FEATURES]:
        steps = moved[changed[:, place] > 0, place]
        if len(steps):
            row: Row = {"name": features.name(int(place)), "share": share(changed[:, place], Bootstrap(len(sample)))}
            row |= {"median": float(np.median(np.abs(steps))), "largest": float(np.abs(steps).max())}
            row |= {"up": share((steps > 0).astype(np.float64), Bootstrap(len(steps)))}
            row |= {"range": f"{brief(features.lo.flat[place])} to {brief(features.hi.flat[place])}"}
            rows.append(row)
    columns = (
        Column("name", "Feature"),
        Column("share", "Changed in % of successes", "share", order="down"),
        Column("median", "Median change (own units)", "number", order="down"),
        Column("largest", "Largest", "number", order="down"),
        Column("up", "Upwards", "share", order="down"),
        Column("range", "Range"),
    )
    which = f" (an even sample of {len(sample)})" if len(sample) < len(records) else ""
    count = features.lo.size
    text = (
        f"In {len(records)} verified successes{which} {brief(float(changed.sum(1).mean()))} of {count} features change "
        "in the mean."
    )
    notes = (f"Those that change most often, at most {MOST_FEATURES}.",) if len(rows) < count else ()
    return Card(column.info.text, text, (Table(columns, rows, "Features that change", kind="features"),), (), notes)


def _changes(column: Results, features: Features, records: Sequence[Record]) -> tuple[Any, Any]:
    """The features (N, n) of the clean inputs and of what the attack made of them, in their own units."""
    run = column.run
    clean, points = run.originals([record.image for record in records]), run.adversarials(list(records))
    # Both on the same grid of floats: what is unchanged in [0, 1] is unchanged in its own units.
    own = (features.own(values.astype(points.dtype)) for values in (clean, points))
    before, after = (values.reshape(len(records), -1) for values in own)
    return before, after


def _examples(subject: Subject, features: Features) -> Table:
    """Some inputs with the changes that each attack made, the largest in widths of their ranges first."""
    rows: list[Row] = []
    for info in (subject.images[place] for place in choose(subject, MOST_EXAMPLES)):
        for column in subject.columns:
            record = column.rows.get(info.index)
            if record is None or not _stored(record):
                continue
            before, after = (values[0] for values in _changes(column, features, [record]))
            order = np.argsort(-np.abs(after - before) / features.sides.ravel(), kind="stable")
            moved = [int(place) for place in order if after[place] != before[place]]
            parts = [
                f"{features.name(place)} {before[place]:.6g} \u2192 {after[place]:.6g} "
                f"({after[place] - before[place]:+.3g})"
                for place in moved[:MOST_PARTS]
            ]
            more = f", and {len(moved) - MOST_PARTS} more" if len(moved) > MOST_PARTS else ""
            row: Row = {"row": info.id, "label": class_name(subject, info.label), "attack": column.info.text}
            row |= {"becomes": class_name(subject, record.prediction), "distance": record.verified}
            rows.append(row | {"changes": ", ".join(parts) + more})
    columns = (
        Column("row", "Row"),
        Column("label", "Label"),
        Column("becomes", "Becomes"),
        Column("distance", "Distance", "distance"),
        *([Column("attack", "Attack")] if len(subject.columns) > 1 else []),
        Column("changes", "What changes"),
    )
    return Table(columns, rows, "What each attack changed", kind="examples")


# Random models.


def votes_of(subject: Subject) -> Iterable[Card]:
    """For each attack, its reported successes and their vote shares; nothing for a model that is not random."""
    spec = subject.runs[0].spec
    if spec.eot is None:
        return
    rows: list[Row] = []
    for column in subject.columns:
        claims = [row for row in column.rows.values() if row.claimed and row.vote is not None]
        votes = sorted(row.vote for row in claims if row.vote is not None)
        row: Row = {"attack": column.info.text, "claims": len(claims), "refuted": sum(row.refuted for row in claims)}
        for name, place in (("lowest", 0), ("median", len(votes) // 2), ("highest", -1)):
            row[name] = value_of(votes[place], wilson(votes[place], spec.votes)) if votes else None
        rows.append(row)
    shares = (Column(name, f"{name.capitalize()} share", "share") for name in ("lowest", "median", "highest"))
    columns = (Column("attack", "Attack"), Column("claims", "Claims", "count"), Column("refuted", "Refuted", "count"))
    text = (
        f"The model is random. Attacks see means over {spec.eot} passes; a success reaches the goal in at least "
        f"{percent(spec.vote_share, 0)} % of {spec.votes} fresh passes of the verdict."
    )
    table = Table((*columns, *shares), rows, "Votes", kind="votes")
    yield Card(f"{spec.votes} fresh passes vote", text, (table,), (), ("Below each share its 95 % interval.",))
