"""Inputs that are no images, and random models: which features an attack changes, and the votes of fresh passes. No
torch here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..runs.store.records import SUCCESS, Record
from ..wilson import wilson
from .numbers import Bootstrap, share, value_of
from .pictures import choose, class_name
from .results import Results
from .subjects import Subject
from .table import Column, Row, Table, brief

if TYPE_CHECKING:
    from ..data.features import Features

MOST_ROWS, MOST_FEATURES, MOST_EXAMPLES, MOST_PARTS = 2000, 20, 12, 6


def features_of(subject: Subject) -> dict[str, Any] | None:
    """Every attack's features by how often they change, and examples; None for images."""
    features = subject.runs[0].features
    if features is None:
        return None
    return {
        "model": subject.name,
        "attacks": [_changed(column, features) for column in subject.columns],
        "examples": _examples(subject, features),
        "count": features.lo.size,
    }


def _stored(record: Record) -> bool:
    return record.status == SUCCESS and not record.refuted and record.slot is not None


def _changed(column: Results, features: Features) -> dict[str, Any]:
    """How often each feature changes among an attack's verified successes, and how far in its own units where it does;
    the most often changed first."""
    records = [row for row in column.rows.values() if _stored(row)]
    kept = min(len(records), MOST_ROWS)
    sample = [records[place * len(records) // kept] for place in range(kept)]
    found: dict[str, Any] = {"text": column.info.text, "successes": len(records), "sample": kept, "rows": []}
    if not sample:
        return found
    before, after = _changes(column, features, sample)
    moved = after - before
    changed = (moved != 0).astype(np.float64)
    for place in np.argsort(-changed.mean(0), kind="stable")[:MOST_FEATURES]:
        steps = moved[changed[:, place] > 0, place]
        if not len(steps):
            break
        found["rows"].append(
            {
                "name": features.name(int(place)),
                "share": share(changed[:, place], Bootstrap(kept)),
                "median": float(np.median(np.abs(steps))),
                "largest": float(np.abs(steps).max()),
                "up": share((steps > 0).astype(np.float64), Bootstrap(len(steps))),
                "range": f"{brief(features.lo.flat[place])} to {brief(features.hi.flat[place])}",
            }
        )
    found["mean"] = float(changed.sum(1).mean())
    return found


def _changes(column: Results, features: Features, records: Sequence[Record]) -> tuple[Any, Any]:
    """The features (N, n) of the clean inputs and of what the attack made of them, in their own units."""
    run = column.run
    clean, points = run.originals([record.image for record in records]), run.adversarials(list(records))
    # Both on the same grid of floats: what is unchanged in [0, 1] is unchanged in its own units.
    own = (features.own(values.astype(points.dtype)) for values in (clean, points))
    before, after = (values.reshape(len(records), -1) for values in own)
    return before, after


def _examples(subject: Subject, features: Features) -> list[dict[str, Any]]:
    """Some inputs with the changes that each attack made, the largest in widths of their ranges first."""
    shown = []
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
            shown.append(
                {
                    "row": info.id,
                    "label": class_name(subject, info.label),
                    "becomes": class_name(subject, record.prediction),
                    "distance": record.verified,
                    "attack": column.info.text,
                    "changes": ", ".join(parts) + more,
                }
            )
    return shown


def feature_table(made: dict[str, Any]) -> Table:
    """How often and how far each feature changes, of one attack."""
    columns = (
        Column("name", "Feature"),
        Column("share", "Changed in % of successes", "share", order="down"),
        Column("median", "Median change (own units)", "number", order="down"),
        Column("largest", "Largest", "number", order="down"),
        Column("up", "Upwards", "share", order="down"),
        Column("range", "Range"),
    )
    return Table(columns, made["rows"], "Features that change")


def votes_of(subject: Subject) -> dict[str, Any] | None:
    """Every attack's claims and the shares of the votes they got; None for a model that is not random."""
    spec = subject.runs[0].spec
    if spec.eot is None:
        return None
    attacks = [_votes(column, spec.votes) for column in subject.columns]
    return {"model": subject.name, "eot": spec.eot, "votes": spec.votes, "share": spec.vote_share, "attacks": attacks}


def _votes(column: Results, passes: int) -> dict[str, Any]:
    claims = [row for row in column.rows.values() if row.claimed and row.vote is not None]
    shares = sorted(row.vote for row in claims if row.vote is not None)
    found: dict[str, Any] = {"attack": column.info.text, "claims": len(claims)}
    found["refuted"] = sum(row.refuted for row in claims)
    for name, place in (("lowest", 0), ("median", len(shares) // 2), ("highest", -1)):
        found[name] = value_of(shares[place], wilson(shares[place], passes)) if shares else None
    return found


def vote_table(made: dict[str, Any]) -> Table:
    """Claims, and the shares of fresh passes in which they hold."""
    shares = (Column(name, f"{name.capitalize()} share", "share") for name in ("lowest", "median", "highest"))
    columns = (Column("attack", "Attack"), Column("claims", "Claims", "count"))
    return Table((*columns, Column("refuted", "Refuted", "count"), *shares), made["attacks"], "Votes")


def example_table(made: dict[str, Any]) -> Table:
    """Some inputs with what each attack changed."""
    columns = [
        Column("row", "Row"),
        Column("label", "Label"),
        Column("becomes", "Becomes"),
        Column("distance", "Distance", "distance"),
        Column("attack", "Attack"),
        Column("changes", "What changes"),
    ]
    if len(made["attacks"]) == 1:
        del columns[4]
    rows: list[Row] = made["examples"]
    return Table(tuple(columns), rows, "What each attack changed")
