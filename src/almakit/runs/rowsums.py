"""Sums over a chunk's rows: SQLite does not notice a flipped bit in a number, so what was written is summed and
compared when it is read. No torch here."""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .failures import Corrupt

Row = Sequence[Any]
Place = tuple[int, int, int]
"""(attack, chunk, round); attack -1: the clean pass."""


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
        "somebody edited them). "
        "Run the same `almakit run` command again: it recomputes this chunk and keeps the rest."
    )


def refuse_facts(database: Path) -> Corrupt:
    """What is said where the facts of a run (its settings, hashes and attacks) were changed behind almakit's back."""
    return Corrupt(
        f"{database}: the facts of this run (its settings, hashes or attacks) are not the ones that were written; "
        "restore it from a copy, or move it "
        "away to begin this run's records anew (the images' files beside it are not touched)."
    )
