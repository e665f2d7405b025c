"""The table of fields: the annotations of the dataclasses in ``records.py`` define the name and type of each stored
value. No torch here.

SQL tables, rows, comparisons and exported columns are derived from it: a new field of ``Record`` is one line there.
Databases of earlier versions that lack a column are read as if it were empty.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar, get_type_hints

Top = tuple[tuple[int, float], ...]
"""Classes with their softmax probabilities, the largest first; for segmentation, with their shares of the pixels."""
Tally = tuple[tuple[int, int, int, int], ...]
"""For each class among an image's labelled pixels: (class, pixels labelled, pixels predicted, pixels with both)."""
Cell = Any
"""A value that SQLite stores: an integer, a real number, a text or None."""
Built = TypeVar("Built")
_TYPES = {"INTEGER": int, "REAL": float, "TEXT": str}


@dataclass(frozen=True)
class Stored:
    """Marks a dataclass field as a column: ``x: Annotated[int, Stored("what it is")]``.

    Args:
        meaning: comment of the column.
        name: name of the column, if it differs from the field's.
        empty: the value that replaces None in a key.
        columns: the keys of a mapping, one column each, as "key: meaning".
    """

    meaning: str
    name: str | None = None
    empty: int | None = None
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Column:
    """One column: its field (and key of it), its SQL type, whether it always has a value, and how cells are written and
    read. ``inside``: the field that holds the dataclass it belongs to, and that class."""

    field: str
    key: str | None
    name: str
    kind: str
    required: bool
    meaning: str
    write: Callable[[Any], Cell]
    read: Callable[[Cell], Any]
    inside: tuple[str, Any] | None = None

    def of(self, instance: Any) -> Any:
        """The value that an instance of the dataclass has in this column."""
        found = getattr(instance if self.inside is None else getattr(instance, self.inside[0]), self.field)
        return found if self.key is None else found.get(self.key)

    def value(self, cell: Cell) -> Any:
        """The value in a cell, whose type is checked: SQLite stores any type in any column."""
        if cell is None:
            fits = not self.required
        else:
            fits = type(cell) is _TYPES[self.kind] and cell not in (math.inf, -math.inf)
        if not fits:
            raise ValueError(f"{cell!r:.50} in column {self.name}")
        return self.read(cell)


def finite(value: float | None) -> float | None:
    """The number, or None if it is not finite, as tables and files store it."""
    return None if value is None or not math.isfinite(value) else float(value)


def _same(value: Any) -> Any:
    return value


def _tally_of(text: str | None) -> Tally | None:
    rows = None if text is None else [tuple(map(int, row)) for row in json.loads(text)]
    if rows is not None and any(len(row) != 4 or min(row) < 0 or row[3] > min(row[1:3]) for row in rows):
        raise ValueError("counts of pixels that cannot be")
    return None if rows is None else tuple((row[0], row[1], row[2], row[3]) for row in rows)


def _top_of(text: str) -> Top:
    return tuple((int(label), float(probability)) for label, probability in json.loads(text))


def _lists_of(text: str) -> dict[str, list[Any]]:
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
    (
        dict[str, Any],
        "TEXT",
        True,
        lambda value: json.dumps(value, sort_keys=True),
        lambda text: dict(json.loads(text)),
    ),
    (dict[str, list[Any]], "TEXT", True, lambda value: json.dumps(value, allow_nan=False), _lists_of),
    (dict[str, float | None], "REAL", False, finite, _same),
]
"""Type of a field, SQL type, whether the cell always has a value, how it is written and read. An infinite distance is
an empty cell."""


@cache
def columns(of: Any) -> tuple[Column, ...]:
    """The columns of a dataclass, in the order of its fields. A nested dataclass is replaced by its columns."""
    found: list[Column] = []
    hints: dict[str, Any] = get_type_hints(of, include_extras=True)
    for name, hint in hints.items():
        if is_dataclass(hint) and isinstance(hint, type):
            found += [replace(column, inside=(name, hint)) for column in columns(hint)]
        for mark in (mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Stored)):
            kind, required, write, read = next(kind[1:] for kind in KINDS if kind[0] == hint.__origin__)
            if mark.empty is not None:
                required, write, read = True, _or(mark.empty), lambda cell: None if cell < 0 else cell
            parts: list[tuple[str | None, str]] = [part.partition(": ")[::2] for part in mark.columns]
            for key, meaning in parts or [(None, mark.meaning)]:
                own = key or mark.name or name
                found.append(Column(name, key, own, kind, required, meaning, write, read))
    return tuple(found)


def _or(empty: int) -> Callable[[Any], Cell]:
    return lambda value: empty if value is None else value


def names(of: type) -> list[str]:
    return [column.name for column in columns(of)]


def table(name: str, about: str, rules: str, of: type) -> str:
    """The SQL statement that creates the table ``name`` of a dataclass, with ``about`` and the meaning of each column
    as comments. ``rules``: key and other constraints at the end of the statement."""
    lines = [
        f"  {column.name} {column.kind}{' NOT NULL' if column.required else ''}, -- {column.meaning}"
        for column in columns(of)
    ]
    return f"CREATE TABLE IF NOT EXISTS {name} (  -- {about}\n" + "\n".join(lines) + f"\n  {rules};\n"


def row(instance: Any) -> tuple[Cell, ...]:
    """A dataclass instance as cells, in the order of ``columns``."""
    return tuple(column.write(column.of(instance)) for column in columns(instance.__class__))


def build(of: Callable[..., Built], cells: Sequence[Cell], **own: Any) -> Built:
    """The instance of a dataclass with these cells, in the order of ``columns``, and the fields ``own``, which are not
    stored in its table."""
    nested: dict[tuple[str, Any], dict[str, Any]] = {}
    for column, cell in zip(columns(of), cells, strict=True):
        found = own if column.inside is None else nested.setdefault(column.inside, {})
        if column.key is None:
            found[column.field] = column.value(cell)
        else:
            found.setdefault(column.field, {})[column.key] = column.value(cell)
    return of(**own, **{name: kind(**values) for (name, kind), values in nested.items()})
