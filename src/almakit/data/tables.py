"""Tables as data: ``table:file.csv?label=y``, csv and parquet through pyarrow; every numeric column is a feature,
scaled to [0, 1] by its own range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import BadInput, Unavailable, optional, suggestion
from .dataset import Dataset
from .features import Features

MOST_VALUES = 100_000_000
OPTIONS = ("label", "fixed", "integer", "drop", "id", "ranges")
FORM = (
    "table:file.csv?label=y, with &fixed=a,b, &integer=c (or auto), &drop=d, &id=e and &ranges=train.csv where wanted"
)
MISSING = ("", "na", "n/a", "nan", "null", "none", "?")
Column = NDArray[np.float64] | list[str]


@dataclass(frozen=True)
class Options:
    """What stands behind the ``?`` of a table's URI: columns by name."""

    label: str
    fixed: tuple[str, ...] = ()
    integer: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    id: str | None = None
    ranges: str | None = None


@dataclass
class Table:
    """The columns of a file by name: numbers, or texts where one is none; ``lines`` number rows as the file does."""

    place: str
    columns: dict[str, Column]
    first: int = 1
    missing: dict[str, int] = field(default_factory=dict)  # the first row without a value


def table(uri: str, rest: str) -> Dataset:
    """The data set of ``table:<rest>``."""
    place, _, query = rest.partition("?")
    return from_columns(uri, read(place), parsed(uri, query))


def parsed(uri: str, query: str) -> Options:
    """The options of a table's URI."""
    found: dict[str, Any] = {}
    for part in filter(None, query.split("&")):
        name, sign, value = part.partition("=")
        if name not in OPTIONS or not sign or not value or name in found:
            raise BadInput(f"{part!r} in {uri} is no option of a table; write {FORM}.")
        several = tuple(unquote(one) for one in value.split(",") if one)
        found[name] = several if name in ("fixed", "integer", "drop") else unquote(value)
    if "label" not in found:
        raise BadInput(f"{uri} does not say which column is the label; write {FORM}.")
    return Options(**found)


def from_columns(uri: str, table: Table, options: Options) -> Dataset:
    """The data set of a table: every column that is no label, id or dropped is a feature."""
    named = [options.label, *options.fixed, *options.drop, *([options.id] if options.id else [])]
    for name in [*named, *(() if options.integer == ("auto",) else options.integer)]:
        if name not in table.columns:
            raise BadInput(f"{table.place} has no column {name!r}; {suggestion(name, list(table.columns))}")
    apart = {options.label, options.id, *options.drop}
    names = [name for name in table.columns if name not in apart]
    if not names:
        raise BadInput(f"{table.place} has no column left to be a feature.")
    for name in (*options.fixed, *options.integer):
        if name in apart:
            raise BadInput(f"the column {name!r} is no feature here, so it is neither fixed nor integer.")
    own = np.stack([_feature(table, name) for name in names], axis=1)
    widest = _ranges(table if options.ranges is None else read(options.ranges), names)
    whole = np.array(
        [
            name in options.integer or (options.integer == ("auto",) and bool((own[:, place] % 1 == 0).all()))
            for place, name in enumerate(names)
        ]
    )
    for place in np.flatnonzero(whole):
        if (broken := np.flatnonzero(own[:, place] % 1)).size:
            row = int(broken[0])
            raise BadInput(
                f"{table.place}: {names[place]} is {own[row, place]:g} in line {row + table.first}, no whole number; "
                "leave the column out of integer."
            )
    features = Features.of(
        (len(names),),
        *widest,
        step=np.where(whole, 1.0, 0.0),
        fixed=[name in options.fixed for name in names],
        names=names,
    )
    try:
        x = torch.from_numpy(features.scaled(own))
    except BadInput as error:
        raise BadInput(f"{table.place}: {error} Widen the table that ranges= names.") from error
    labels, class_names, truths = _labels(table, options.label)

    def rows(indices: Sequence[int]) -> Tensor:
        return x[torch.as_tensor(list(indices), dtype=torch.long)]

    return Dataset(
        uri,
        _ids(table, options.id, len(x)),
        labels,
        rows,
        class_names=class_names,
        alphabetical=class_names is not None,
        features=features,
        truths=truths,
    )


def _feature(table: Table, name: str) -> NDArray[np.float64]:
    """A column as numbers; raises ``BadInput`` if it has other values."""
    column = table.columns[name]
    if name in table.missing:
        raise BadInput(
            f"{table.place}: {name} has no value in line {table.missing[name] + table.first}; fill it in, leave such "
            f"rows out, or add drop={name}."
        )
    if isinstance(column, list):
        text, row = next(((text, row) for row, text in enumerate(column) if _number(text) is None), (column[0], 0))
        raise BadInput(
            f"{table.place}: {name} is {text[:60]!r} in line {row + table.first}, no number. Categories have no "
            f"smallest change: give the model numbers, or add drop={name}."
        )
    if not np.isfinite(column).all():
        row = int(np.flatnonzero(~np.isfinite(column))[0])
        raise BadInput(f"{table.place}: {name} is not finite in line {row + table.first}; repair it, or leave it out.")
    if np.abs(column).max() > 1e30:
        raise BadInput(f"{table.place}: {name} goes beyond 1e30, which float32 does not hold; scale it.")
    return column


def _ranges(table: Table, names: list[str]) -> tuple[list[float], list[float]]:
    for name in names:
        if name not in table.columns:
            raise BadInput(f"{table.place} has no column {name!r}, whose range is needed.")
    found = [_feature(table, name) for name in names]
    return [float(column.min()) for column in found], [float(column.max()) for column in found]


def _labels(table: Table, name: str) -> tuple[Tensor, tuple[str, ...] | None, Tensor | None]:
    """Classes (N,): whole numbers from 0 as they are, texts and others by their place in alphabetical order; a column
    with broken numbers has no classes, and they are the last of the three, float64 (N,)."""
    column = table.columns[name]
    if name in table.missing:
        raise BadInput(f"{table.place}: the label {name} has no value in line {table.missing[name] + table.first}.")
    if not isinstance(column, list):
        if not np.isfinite(column).all():
            raise BadInput(f"{table.place}: the label {name} holds numbers that are not finite.")
        if (column % 1 != 0).any():
            return torch.zeros(len(column), dtype=torch.long), None, torch.from_numpy(column.copy())
        if column.min() >= 0 and column.max() < 2**31:
            return torch.from_numpy(column.astype(np.int64)), None, None
        column = [str(int(value)) for value in column]
    names, places = np.unique(np.array(column, dtype=object).astype(str), return_inverse=True)
    return torch.from_numpy(places.astype(np.int64)), tuple(map(str, names)), None


def _ids(table: Table, name: str | None, count: int) -> tuple[str, ...]:
    if name is None:
        return tuple(map(str, range(count)))
    column = table.columns[name]
    texts = column if isinstance(column, list) else [f"{value:.17g}" for value in column]
    if len(set(texts)) != count or name in table.missing:
        raise BadInput(f"{table.place}: the column {name} does not name every row by a value of its own.")
    return tuple(texts)


def read(place: str) -> Table:
    """The columns of a csv or parquet file."""
    path = Path(place).expanduser()
    if not path.is_file():
        raise Unavailable(f"there is no file {place}; write {FORM}.")
    optional("pyarrow", f"{place} needs pyarrow to be read: pip install pyarrow.")
    parquet = path.suffix in (".parquet", ".pq")
    try:
        names, columns = _parquet(place, path) if parquet else _csv(path)
    except BadInput:
        raise
    except Exception as error:  # a file that is no table, or a damaged one, fails in many ways
        kind = "parquet table" if parquet else "csv table in UTF-8"
        raise BadInput(f"{place} cannot be read as a {kind} ({str(error).splitlines()[0][:200]}).") from error
    names = _checked_names(place, names)
    count = len(columns[0])
    if count * len(names) > MOST_VALUES:
        raise BadInput(f"{place} holds more than {MOST_VALUES} values; give a part of it.")
    if not count:
        raise BadInput(f"{place} holds no rows.")
    found = Table(place, {}, 1 if parquet else 2)
    for name, column in zip(names, columns, strict=True):
        found.columns[name], empty = _column(column)
        if empty is not None:
            found.missing[name] = empty
    return found


def _csv(path: Path) -> tuple[list[str], list[Any]]:
    """A csv file with a line of names, all of it as texts; commas, semicolons or tabs between them."""
    import pyarrow
    from pyarrow import csv

    with path.open(encoding="utf-8-sig") as file:
        header = file.readline()
    delimiter = max((",", ";", "\t"), key=header.count)
    kinds = {f"f{at}": pyarrow.string() for at in range(header.count(delimiter) + 1)}
    table = csv.read_csv(
        path,
        csv.ReadOptions(autogenerate_column_names=True, use_threads=False),
        csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        csv.ConvertOptions(column_types=kinds, strings_can_be_null=False),
    )
    columns = [column.combine_chunks() for column in table.columns]
    return [column[0].as_py() for column in columns], [column[1:] for column in columns]


def _parquet(place: str, path: Path) -> tuple[list[str], list[Any]]:
    from pyarrow import parquet

    held = parquet.ParquetFile(path)
    if held.metadata.num_rows * max(held.metadata.num_columns, 1) > MOST_VALUES:
        raise BadInput(f"{place} holds more than {MOST_VALUES} values; give a part of it.")
    table = held.read()
    return table.column_names, [column.combine_chunks() for column in table.columns]


def _column(column: Any) -> tuple[Column, int | None]:
    """A column as numbers where all its values are, else as texts; and the first row without a value."""
    import pyarrow
    from pyarrow import compute

    text = pyarrow.types.is_string(column.type)
    column = compute.utf8_trim_whitespace(column) if text else column
    empty = column.is_null()
    if text:
        empty = compute.or_kleene(empty, compute.is_in(compute.utf8_lower(column), pyarrow.array(MISSING)))
    rows = np.flatnonzero(empty.to_numpy(zero_copy_only=False).astype(bool))
    missing = int(rows[0]) if len(rows) else None
    try:
        numbers = compute.if_else(empty, None, column).cast(pyarrow.float64())
        return np.array(numbers.to_numpy(zero_copy_only=False), dtype=np.float64), missing
    except pyarrow.ArrowException:
        return [str(value) for value in column.to_pylist()], missing


def _number(text: str) -> float | None:
    try:
        return float(text) if "_" not in text else None
    except ValueError:
        return None


def _checked_names(place: str, names: Sequence[str]) -> list[str]:
    found = [str(name).strip() for name in names]
    for at, name in enumerate(found):
        if not name:
            raise BadInput(f"{place}: column {at + 1} has no name; name it, or write the table without its index.")
        if name in found[:at]:
            raise BadInput(f"{place} has two columns called {name!r}; each needs a name of its own.")
    if not found:
        raise BadInput(f"{place} is empty; its first line must name the columns.")
    return found
