"""Rows of the database to records and back, by the table of fields, and the sums over a chunk's rows: SQLite does not
notice a flipped bit in a number, so what was written is summed and compared when it is read. No torch here."""

from __future__ import annotations

import hashlib
import json
import marshal
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ..failures import Corrupt
from . import fields
from .records import STATUSES, AttackInfo, ImageInfo, Record, Trace

Row = Sequence[Any]
Place = tuple[int, int, int]
"""(attack, chunk, round); attack -1: the clean pass."""
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


# Sums.


def row_sum(rows: Iterable[Row]) -> str:
    """The sha256 over rows as the database gives them back, in the order of their keys (the first three columns).

    Marshal's format 2 has no references and no marks of interning, so equal rows give equal bytes; it is ten times as
    fast as JSON, and a report reads a hundred thousand rows.
    """
    return hashlib.sha256(marshal.dumps(sorted((tuple(row) for row in rows), key=_order), 2)).hexdigest()


def _order(row: Row) -> tuple[tuple[str, Any], ...]:
    # By kind first: what somebody wrote into a damaged row must not keep it from being compared.
    return tuple((type(value).__name__, value if value is not None else 0) for value in row[:3])


def differing(rows: dict[Place, list[Row]], chunks: Iterable[Row]) -> list[Place]:
    """The chunks whose rows are not what was written: ``chunks`` are (kind, attack, chunk, round, ..., recorded sum),
    the sum None where none was taken."""
    wrong = []
    for *own, recorded in chunks:
        place = (own[1], own[2], own[3])
        if recorded is not None and chunk_sum(rows.get(place, []), own) != recorded:
            wrong.append(place)
    return wrong


def chunk_sum(rows: Iterable[Row], own: Row) -> str:
    """The sum of a chunk: over its rows of images or results, and over its own row."""
    return row_sum([(-1, -1, row_sum(rows)), own])


def refuse(database: Path, place: Place) -> Corrupt:
    """What a reader is told of such a chunk."""
    attack, chunk, _ = place
    whose = "the clean images" if attack == -1 else f"attack {attack}"
    return Corrupt(
        f"{database}: the rows of chunk {chunk} of {whose} are not the ones that were written (a failing disk, or "
        "somebody edited them). Run the same `almakit run` command again: it recomputes this chunk and keeps the rest."
    )


def refuse_facts(database: Path) -> Corrupt:
    """What is said where the facts of a run (its settings, hashes and attacks) were changed behind almakit's back."""
    return Corrupt(
        f"{database}: the facts of this run (its settings, hashes or attacks) are not the ones that were written; "
        "restore it from a copy, or move it "
        "away to begin this run's records anew (the images' files beside it are not touched)."
    )
