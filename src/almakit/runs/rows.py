"""Rows of the database to records and back, by the table of fields; no torch here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from . import fields
from .failures import Corrupt
from .records import STATUSES, AttackInfo, ImageInfo, Record, Trace
from .rowsums import Place

ATTACK_COLUMNS = ", ".join(fields.names(AttackInfo))
_CHUNK, _ROUND = fields.names(ImageInfo).index("chunk"), fields.names(Record).index("round")
OF_CHUNK = ("c.file", "c.seconds / c.images", "i.chunk")
"""What a result's row is read with beside its own columns."""


def images_query(has: Callable[[str], bool]) -> str:
    """The clean images; columns that a database of an earlier almakit lacks are empty."""
    own = [column.name if not column.later or has(column.name) else "NULL" for column in fields.columns(ImageInfo)]
    return f"SELECT {', '.join(own)} FROM images"


def records_query(has: Callable[[str], bool]) -> str:
    """Results of finished chunks only: a row whose chunk was taken back is not read. Columns that a database of an
    earlier almakit lacks are empty.

    CROSS JOIN fixes the order of the tables: left to itself SQLite goes through all results of an attack once for each
    of its chunks.
    """
    own = [f"r.{column.name}" if not column.later or has(column.name) else "NULL" for column in fields.columns(Record)]
    return f"""
SELECT {", ".join([*own, *OF_CHUNK])}
FROM results r CROSS JOIN images i ON i.image = r.image
CROSS JOIN chunks c ON c.kind = 'attack' AND c.attack = r.attack AND c.chunk = i.chunk AND c.round = r.round
"""


def attack_info(row: tuple[Any, ...]) -> AttackInfo:
    return AttackInfo(**fields.values(AttackInfo, row))


def image_info(row: tuple[Any, ...]) -> ImageInfo:
    return ImageInfo(**fields.values(ImageInfo, row))


def record(row: tuple[Any, ...]) -> Record:
    """From a row of ``records_query``."""
    *own, file, seconds, _ = row
    found = fields.values(Record, own)
    if found["status"] not in STATUSES:
        raise Corrupt(f"the database holds a status {found['status']!r} that this almakit does not know.")
    return Record(**found, file=None if found["slot"] is None else file, seconds=seconds)


def summed(cells: Sequence[Any]) -> tuple[Any, ...]:
    """What is summed of a result's own cells, in the order of their columns: all but the round, which is its
    chunk's."""
    return fields.summed(Record, cells, without="round")


def images_by_chunk(found: Iterable[Sequence[Any]]) -> dict[Place, list[Sequence[Any]]]:
    """Rows of ``images_query`` as they are summed, by the chunk they belong to."""
    grouped: dict[Place, list[Sequence[Any]]] = {}
    for row in found:
        grouped.setdefault((-1, row[_CHUNK], 0), []).append(fields.summed(ImageInfo, row))
    return grouped


def results_by_chunk(found: Iterable[Sequence[Any]]) -> dict[Place, list[Sequence[Any]]]:
    """Rows of ``records_query`` as they are summed, by the chunk they belong to."""
    grouped: dict[Place, list[Sequence[Any]]] = {}
    for row in found:
        own = row[: -len(OF_CHUNK)]
        grouped.setdefault((own[0], row[-1], own[_ROUND]), []).append(summed(own))
    return grouped


def trace_row(trace: Trace) -> tuple[Any, ...]:
    return (
        trace.attack,
        trace.image,
        -1 if trace.target is None else trace.target,
        json.dumps(trace.values, allow_nan=False),
    )


def trace(row: tuple[Any, ...]) -> Trace:
    return Trace(
        row[0],
        row[1],
        None if row[2] < 0 else row[2],
        {str(name): list(values) for name, values in json.loads(row[3]).items()},
    )
