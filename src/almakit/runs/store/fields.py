"""The one table of fields: a dataclass of ``records.py`` says, field by field, what is stored, under which name and as
what; no torch here.

SQL tables, rows, sums, exported columns and the JSON Schema of records are all made from it: a new field of ``Record``
is one line there. A field that came after version 0.1 is marked ``later``: databases without it are read as if it were
empty, and its sum counts only where it is filled.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, get_type_hints

Top = tuple[tuple[int, float], ...]
"""Classes with their softmax probabilities, the largest first; of a segmentation the shares of the pixels they get."""
Tally = tuple[tuple[int, int, int, int], ...]
"""For each class that occurs among an image's labelled pixels: (class, pixels labelled so, pixels predicted so, pixels
that are both)."""
Cell = Any
"""What SQLite holds: an integer, a real number, a text or nothing."""
_TYPES = {"INTEGER": int, "REAL": float, "TEXT": str}


@dataclass(frozen=True)
class Stored:
    """Marks a dataclass field as a column: ``x: Annotated[int, Stored("what it is")]``. ``name``: of the column, where
    it is not the field's; ``empty``: what stands for None in a key; ``columns``: a mapping's keys, a column each, as
    "key: meaning"; ``later``: came after version 0.1."""

    meaning: str
    name: str | None = None
    empty: int | None = None
    columns: tuple[str, ...] = ()
    later: bool = False


@dataclass(frozen=True)
class Column:
    """One column: of which field (and key of it), SQL's kind, whether it is always filled, and the way in and out."""

    field: str
    key: str | None
    name: str
    kind: str
    required: bool
    meaning: str
    later: bool
    write: Callable[[Any], Cell]
    read: Callable[[Cell], Any]

    @property
    def sql(self) -> str:
        return f"{self.name} {self.kind}{' NOT NULL' if self.required else ''}"

    def value(self, cell: Cell) -> Any:
        """The value in a cell; SQLite keeps whatever was put into one, so its type is checked."""
        if cell is None:
            fits = not self.required
        else:
            fits = type(cell) is _TYPES[self.kind] and cell not in (math.inf, -math.inf)
        if not fits:
            raise ValueError(f"{cell!r:.50} in column {self.name}")
        return self.read(cell)


def finite(value: float | None) -> float | None:
    """A number as tables and files hold it: None where it is not finite."""
    return None if value is None or not math.isfinite(value) else float(value)


def _same(value: Any) -> Any:
    return value


def _top_of(text: str) -> Top:
    return tuple((int(label), float(probability)) for label, probability in json.loads(text))


def _tally_of(text: str | None) -> Tally | None:
    rows = None if text is None else [tuple(map(int, row)) for row in json.loads(text)]
    if rows is not None and any(len(row) != 4 or min(row) < 0 or row[3] > min(row[1:3]) for row in rows):
        raise ValueError("counts of pixels that cannot be")
    return None if rows is None else tuple((row[0], row[1], row[2], row[3]) for row in rows)


def _courses_of(text: str) -> dict[str, list[Any]]:
    return {str(name): list(values) for name, values in json.loads(text).items()}


KINDS: list[tuple[Any, str, bool, Callable[[Any], Cell], Callable[[Cell], Any]]] = [
    (int, "INTEGER", True, _same, _same),
    (int | None, "INTEGER", False, _same, _same),
    (bool, "INTEGER", True, int, bool),
    (str, "TEXT", True, _same, _same),
    (str | None, "TEXT", False, _same, _same),
    (float, "REAL", False, finite, lambda value: math.inf if value is None else value),
    (float | None, "REAL", False, finite, _same),
    (Top, "TEXT", True, lambda value: json.dumps(value, allow_nan=False), _top_of),
    (Tally | None, "TEXT", False, lambda value: None if value is None else json.dumps(value), _tally_of),
    (dict[str, Any], "TEXT", True, lambda value: json.dumps(value, sort_keys=True), json.loads),
    (dict[str, list[Any]], "TEXT", True, lambda value: json.dumps(value, allow_nan=False), _courses_of),
    (dict[str, float | None], "REAL", False, finite, _same),
]
"""A field's type -> SQL's kind, whether the cell is always filled, the way in and the way out. An infinite distance is
an empty cell."""


@cache
def columns(of: Hashable) -> tuple[Column, ...]:
    """The columns of a dataclass, in the order of its fields."""
    found = []
    for name, hint in get_type_hints(of, include_extras=True).items():
        for mark in (mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Stored)):
            kind, required, write, read = next(kind[1:] for kind in KINDS if kind[0] == hint.__origin__)
            if mark.empty is not None:
                required, write, read = True, _or_number(mark.empty), _none_below_zero
            keys: list[tuple[str | None, str]] = [part.partition(": ")[::2] for part in mark.columns] or [
                (None, mark.meaning)
            ]
            found += [
                Column(name, key, key or mark.name or name, kind, required, meaning, mark.later, write, read)
                for key, meaning in keys
            ]
    return tuple(found)


def _or_number(empty: int) -> Callable[[Any], Cell]:
    return lambda value: empty if value is None else value


def _none_below_zero(value: Cell) -> Any:
    return None if value < 0 else value


def names(of: type) -> list[str]:
    return [column.name for column in columns(of)]


def table(name: str, about: str, rules: str, *of: type, more: Sequence[str] = ()) -> str:
    """The statement that makes the table of the dataclasses ``of``, what each column means as comments.

    Args:
        name: the table's name.
        about: what it holds.
        rules: its key and what else ends it.
        of: the dataclasses whose columns it has.
        more: columns of its own, each as SQL with a comment.
    """
    lines = [f"  {column.sql}, -- {column.meaning}" for one in of for column in columns(one)]
    return (
        f"CREATE TABLE {name} (  -- {about}\n"
        + "\n".join([*lines, *(f"  {line}" for line in more)])
        + f"\n  {rules};\n"
    )


def row(value: Any) -> tuple[Cell, ...]:
    """A dataclass instance as cells, in the order of ``columns``."""
    of: Any = type(value)
    return tuple(
        column.write(
            getattr(value, column.field) if column.key is None else getattr(value, column.field).get(column.key)
        )
        for column in columns(of)
    )


def values(of: type, cells: Sequence[Cell]) -> dict[str, Any]:
    """Cells in the order of ``columns`` as the arguments of the dataclass."""
    found: dict[str, Any] = {}
    for column, cell in zip(columns(of), cells, strict=True):
        if column.key is None:
            found[column.field] = column.value(cell)
        else:
            found.setdefault(column.field, {})[column.key] = column.value(cell)
    return found


def summed(of: type, cells: Sequence[Cell], without: str | None = None) -> tuple[Cell, ...]:
    """The cells that a sum is taken over: all that version 0.1 had but the column ``without``, then later ones that are
    filled, with their names."""
    pairs = list(zip(columns(of), cells, strict=True))
    first = [cell for column, cell in pairs if not column.later and column.name != without]
    return (
        *first,
        *(part for column, cell in pairs if column.later and cell is not None for part in (column.name, cell)),
    )
