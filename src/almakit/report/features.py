"""Data with features instead of pictures: which of them attacks change, and by how much in their own units. No torch
here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..runs.store.records import SUCCESS, Record
from .pictures import choose
from .subjects import Column, Subject

if TYPE_CHECKING:
    from ..data.features import Features

MOST_ROWS, MOST_FEATURES, MOST_EXAMPLES, MOST_PARTS = 2000, 20, 12, 6


def sections(subjects: Sequence[Subject]) -> list[dict[str, Any]]:
    """For each model on such data: every attack's features by how often they change, and examples; empty for images."""
    return [
        {
            "model": subject.name,
            "attacks": [
                summary(column, features, [row for row in column.rows.values() if _stored(row)])
                for column in subject.columns
            ],
            "examples": _examples(subject, features),
            "count": features.lo.size,
        }
        for subject in subjects
        if (features := subject.runs[0].features) is not None
    ]


def _stored(record: Record) -> bool:
    return record.status == SUCCESS and not record.refuted and record.slot is not None


def summary(column: Column, features: Features, records: Sequence[Record]) -> dict[str, Any]:
    """How often each feature changes among an attack's verified successes, and how far in its own units where it does;
    the most often changed first."""
    sample = [
        records[place * len(records) // min(len(records), MOST_ROWS)] for place in range(min(len(records), MOST_ROWS))
    ]
    found: dict[str, Any] = {"text": column.info.text, "successes": len(records), "sample": len(sample), "rows": []}
    if not sample:
        return found
    before, after = changes_of(column, features, sample)
    moved = after - before
    changed = moved != 0
    share = changed.mean(0)
    for place in np.argsort(-share, kind="stable")[:MOST_FEATURES]:
        steps = moved[changed[:, place], place]
        if not len(steps):
            break
        found["rows"].append(
            {
                "name": features.name(int(place)),
                "share": float(share[place]),
                "median": float(np.median(np.abs(steps))),
                "largest": float(np.abs(steps).max()),
                "up": float((steps > 0).mean()),
                "lo": float(features.lo.flat[place]),
                "hi": float(features.hi.flat[place]),
            }
        )
    found["mean"] = float(changed.sum(1).mean())
    return found


def changes_of(column: Column, features: Features, records: Sequence[Record]) -> tuple[Any, Any]:
    """The features (N, n) of the clean inputs and of what the attack made of them, in their own units."""
    run = column.run
    clean, points = run.originals([record.image for record in records]), run.adversarials(list(records))
    # Both on the same grid of floats: what is unchanged in [0, 1] is unchanged in its own units.
    return (
        features.own(clean.astype(points.dtype)).reshape(len(records), -1),
        features.own(points).reshape(len(records), -1),
    )


def _called(subject: Subject, label: int | None) -> str:
    """A class by its name, where classes have names."""
    names = subject.class_names or []
    return "–" if label is None else names[label] if 0 <= label < len(names) else str(label)


def _examples(subject: Subject, features: Features) -> list[dict[str, Any]]:
    """Some inputs with the changes that each attack made, the largest in widths of their ranges first."""
    shown = []
    for place in choose(subject, MOST_EXAMPLES):
        info = subject.images[place]
        results = []
        for column in subject.columns:
            record = column.rows.get(info.index)
            if record is None or not _stored(record):
                continue
            before, after = (values[0] for values in changes_of(column, features, [record]))
            order = np.argsort(-np.abs(after - before) / features.sides.ravel(), kind="stable")
            parts = [int(each) for each in order if after[each] != before[each]]
            results.append(
                {
                    "text": column.info.text,
                    "prediction": _called(subject, record.prediction),
                    "distance": record.verified,
                    "vote": record.vote,
                    "parts": [
                        (
                            features.name(each),
                            float(before[each]),
                            float(after[each]),
                            float(after[each] - before[each]),
                        )
                        for each in parts[:MOST_PARTS]
                    ],
                    "more": max(0, len(parts) - MOST_PARTS),
                }
            )
        shown.append({"id": info.id, "label": _called(subject, info.label), "results": results})
    return [example for example in shown if example["results"]]
