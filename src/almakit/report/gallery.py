"""The page's gallery: some images with what every attack made of them. No torch here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..runs.store.records import MEASURED, AttackInfo, Record, outcome
from . import maps, pictures
from .pictures import Album
from .subjects import Subject

TOP = 5


def gallery_of(subject: Subject, number: int, first: int, limit: int, album: Album) -> list[dict[str, Any]]:
    """The chosen images with every attack's result, as long as the album has room; none where inputs are no
    pictures."""
    places = pictures.choose(subject, limit) if pictures.shows(subject) else []
    shown = []
    # A few at a time, so that a full album stops the reading.
    for start in range(0, len(places), 8):
        some = places[start : start + 8]
        if album.full:
            break
        clean = pictures.originals(subject, some)
        points = [
            pictures.adversarials(column, [subject.images[place].index for place in some]) for column in subject.columns
        ]
        classes = int(subject.runs[0].meta.get("classes", 0))
        classified = maps.of_images(subject, some)
        changed = [maps.of_column(column, list(classified)) for column in subject.columns]
        for place in some:
            info = subject.images[place]
            if album.full:
                break
            original = clean[info.index]
            results = [
                _result(
                    column.rows[info.index],
                    column.info,
                    first + offset,
                    original,
                    points[offset].get(info.index),
                    album,
                )
                | {
                    "maps": maps.after(
                        column.rows[info.index],
                        original,
                        classified.get(info.index),
                        changed[offset].get(info.index),
                        classes,
                        album,
                    )
                }
                for offset, column in enumerate(subject.columns)
                if info.index in column.rows
            ]
            shown.append(
                {
                    "model": number,
                    "image": info.index,
                    "id": info.id,
                    "label": info.label,
                    "prediction": info.prediction,
                    "top": _top(info.top),
                    "original": album.add(pictures.eight_bit(original)),
                    "maps": maps.before(info, original, classified.get(info.index), classes, album),
                    "side": max(original.shape[1:]),
                    "grey": len(original) != 3,
                    "results": results,
                }
            )
    return shown


def _result(record: Record, info: AttackInfo, attack: int, original: Any, point: Any, album: Album) -> dict[str, Any]:
    found: dict[str, Any] = {
        "attack": attack,
        "status": "refuted" if record.refuted else outcome(record, info),
        "reason": record.reason,
        "target": record.target,
        "distance": rounded(record.verified),
        "prediction": record.prediction,
        "top": _top(record.top),
        "forwards": record.forwards,
        "backwards": record.backwards,
        "measures": [rounded(record.measures.get(name)) for name in MEASURED],
        "eight": None
        if not record.claimed or record.refuted
        else {"fooled": record.fooled_8bit, "distance": rounded(record.measured_8bit)},
        "picture": None,
        "change": None,
        "largest": None,
    }
    if point is not None:
        change, largest = pictures.difference(original, point)
        found |= {"picture": album.add(pictures.eight_bit(point)), "change": album.add(change), "largest": largest}
    return found


def _top(top: Sequence[tuple[int, float]]) -> list[list[float]]:
    return [[label, round(probability, 4)] for label, probability in top[:TOP]]


def rounded(value: float | None) -> float | None:
    """To six digits, as the page shows at most; None where it is not finite."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")
