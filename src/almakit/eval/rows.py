"""Rows of the database to records and back; no torch here."""

from __future__ import annotations

import json
import math
from typing import Any

from .failures import Corrupt
from .records import MEASURED, STATUSES, AttackInfo, ImageInfo, Record, Tally, Top, Trace

ATTACK_COLUMNS = "attack, text, title, distance, minimal, targeted, paper, cost, settings"
IMAGE_COLUMNS = "image, id, sha256, label, target, chunk, prediction, top, {pixels}"
RECORDS = f"""
SELECT r.attack, r.image, r.target, status, reason, distance, forwards, backwards, r.prediction, r.top, fooled, measured,
       {", ".join(MEASURED)}, fooled_8bit, measured_8bit, slot, c.file, c.seconds / c.images, {{pixels}}, i.chunk, r.round
FROM results r CROSS JOIN images i ON i.image = r.image
CROSS JOIN chunks c ON c.kind = 'attack' AND c.attack = r.attack AND c.chunk = i.chunk AND c.round = r.round
"""
"""Results of finished chunks only: a row whose chunk was taken back is not read. CROSS JOIN fixes the order of the tables: left to itself SQLite
goes through all results of an attack once for each of its chunks. ``pixels`` is to be filled in: databases of before lack the column."""


def attack_row(info: AttackInfo) -> tuple[Any, ...]:
    settings = json.dumps(info.settings, sort_keys=True)
    return (
        info.index, info.text, info.title, info.distance, int(info.minimal), int(info.targeted), info.paper, info.cost, settings,
    )  # fmt: skip


def attack_info(row: tuple[Any, ...]) -> AttackInfo:
    return AttackInfo(row[0], row[1], row[2], row[3], bool(row[4]), bool(row[5]), row[6], row[7], json.loads(row[8]))


def image_row(info: ImageInfo) -> tuple[Any, ...]:
    return (
        info.index, info.id, info.sha256, info.label, target_number(info.target), info.chunk, info.prediction, _top_text(info.top),
        _tally_text(info.pixels),
    )  # fmt: skip


def image_info(row: tuple[Any, ...]) -> ImageInfo:
    return ImageInfo(row[0], row[1], row[2], row[3], _target(row[4]), row[5], row[6], _top(row[7]), _tally(row[8]))


def result_row(record: Record, turn: int) -> tuple[Any, ...]:
    """In the order of the table's columns."""
    return (
        record.attack, record.image, target_number(record.target), turn, record.status, record.reason, _finite(record.distance),
        record.forwards, record.backwards, record.prediction, _top_text(record.top), int(record.fooled), _finite(record.measured),
        *(_finite(record.measures.get(name)) for name in MEASURED), int(record.fooled_8bit), _finite(record.measured_8bit), record.slot,
        _tally_text(record.pixels),
    )  # fmt: skip


SUMMED = 21
"""So many columns at the beginning of a row of ``RECORDS`` belong to the result itself; ``summed`` gives the same of a row to be written."""


def summed(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row of ``result_row`` without its round: what is summed, in the order of ``RECORDS``."""
    return counted((*row[:3], *row[4:]))


def read_sum(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """What is summed of a row of ``RECORDS``."""
    return counted((*row[:SUMMED], row[23]))


def counted(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row that ends with its pixels, without them where it has none: sums of before know no such column."""
    return row if row[-1] is not None else row[:-1]


def record(row: tuple[Any, ...]) -> Record:
    """From a row of ``RECORDS``."""
    if row[3] not in STATUSES:
        raise Corrupt(f"the database holds a status {row[3]!r} that this almakit does not know.")
    return Record(
        attack=row[0], image=row[1], target=_target(row[2]), status=row[3], reason=row[4], distance=math.inf if row[5] is None else row[5],
        forwards=row[6], backwards=row[7], prediction=row[8], top=_top(row[9]), fooled=bool(row[10]), measured=row[11],
        measures=dict(zip(MEASURED, row[12:18], strict=True)), fooled_8bit=bool(row[18]), measured_8bit=row[19], slot=row[20],
        file=None if row[20] is None else row[21], seconds=row[22], pixels=_tally(row[23]), round=row[25],
    )  # fmt: skip


def trace_row(trace: Trace) -> tuple[Any, ...]:
    return trace.attack, trace.image, target_number(trace.target), json.dumps(trace.values, allow_nan=False)


def trace(row: tuple[Any, ...]) -> Trace:
    return Trace(row[0], row[1], _target(row[2]), {str(name): list(values) for name, values in json.loads(row[3]).items()})


def target_number(target: int | None) -> int:
    return -1 if target is None else target


def _target(number: int) -> int | None:
    return None if number < 0 else number


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _top_text(top: Top) -> str:
    return json.dumps([[label, probability] for label, probability in top], allow_nan=False)


def _top(text: str) -> Top:
    return tuple((int(label), float(probability)) for label, probability in json.loads(text))


def _tally_text(tally: Tally | None) -> str | None:
    return None if tally is None else json.dumps(tally)


def _tally(text: str | None) -> Tally | None:
    if text is None:
        return None
    rows = [tuple(map(int, row)) for row in json.loads(text)]
    if any(len(row) != 4 or min(row) < 0 or row[3] > min(row[1:3]) for row in rows):
        raise Corrupt("the database holds counts of pixels that cannot be.")
    return tuple((row[0], row[1], row[2], row[3]) for row in rows)
