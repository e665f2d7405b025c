"""Tables as data: ``table:file.csv?label=y``, csv and parquet through pyarrow; every numeric column is a feature,
scaled to [0, 1] by its own range."""

from __future__ import annotations

from collections.abc import Sequence
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

LISTS, NAMES = ("fixed", "integer", "drop"), ("label", "id", "ranges")
FORM = "table:file.csv?label=y, with &fixed=a,b, &integer=c, &drop=d, &id=e and &ranges=train.csv where needed"
Columns = dict[str, NDArray[np.float64] | list[str]]
"""The columns of a table by name: numbers, NaN where there is none, or texts."""


def table(uri: str, rest: str) -> Dataset:
    """The data set of ``table:<rest>``: every column that is no label, id or dropped is a feature."""
    place, _, query = rest.partition("?")
    options = _options(uri, query)
    columns = read(place)
    label, identity, integer = options["label"], options.get("id"), options["integer"]
    apart = {*options["drop"], label} | ({identity} if identity is not None else set())
    for name in (*apart, *options["fixed"], *integer):
        if name not in columns:
            raise BadInput(f"{place} has no column {name!r}; {suggestion(name, list(columns))}")
        if name in apart and name in (*options["fixed"], *integer):
            raise BadInput(f"the column {name!r} is no feature here, so it is neither fixed nor integer.")
    names = [name for name in columns if name not in apart]
    if not names:
        raise BadInput(f"{place} has no column left to be a feature.")
    values = np.stack([_numbers(place, name, columns[name]) for name in names], axis=1)
    whole = np.array([name in integer for name in names])
    if broken := [name for at, name in enumerate(names) if whole[at] and (values[:, at] % 1 != 0).any()]:
        raise BadInput(f"{place}: {broken[0]} has values that are no whole numbers; leave the column out of integer.")
    bounds = values if "ranges" not in options else _bounds(options["ranges"], names)
    features = Features.of(
        (len(names),),
        bounds.min(0),
        bounds.max(0),
        step=np.where(whole, 1.0, 0.0),
        fixed=[name in options["fixed"] for name in names],
        names=names,
    )
    try:
        x = torch.from_numpy(features.scaled(values))
    except BadInput as error:
        raise BadInput(f"{place}: {error} Widen the table that ranges= names.") from error
    labels, class_names, truths = _labels(place, label, columns[label])
    named = range(len(x)) if identity is None else columns[identity]
    ids = [f"{value:.17g}" if isinstance(value, float) else str(value) for value in named]
    if len(set(ids)) != len(x):
        raise BadInput(f"{place}: the column {identity} does not give every row an id of its own.")
    return Dataset(
        uri,
        tuple(ids),
        labels,
        lambda indices: x[torch.as_tensor(list(indices), dtype=torch.long)],
        class_names=class_names,
        alphabetical=class_names is not None,
        features=features,
        truths=truths,
    )


def _options(uri: str, query: str) -> dict[str, Any]:
    """What stands behind the ``?`` of a table's URI: columns by name."""
    found: dict[str, Any] = {}
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        if name not in (*LISTS, *NAMES) or not value or name in found:
            raise BadInput(f"{part!r} in {uri} is no option of a table; write {FORM}.")
        found[name] = tuple(unquote(one) for one in value.split(",") if one) if name in LISTS else unquote(value)
    if "label" not in found:
        raise BadInput(f"{uri} does not say which column is the label; write {FORM}.")
    return dict.fromkeys(LISTS, ()) | found


def _bounds(place: str, names: Sequence[str]) -> NDArray[np.float64]:
    """The smallest and the largest values of the columns of another table, shape (2, N)."""
    columns = read(place)
    if missing := [name for name in names if name not in columns]:
        raise BadInput(f"{place} has no column {missing[0]!r}, whose range is needed.")
    found = [_numbers(place, name, columns[name]) for name in names]
    return np.array([[column.min() for column in found], [column.max() for column in found]])


def _numbers(place: str, name: str, column: NDArray[np.float64] | list[str]) -> NDArray[np.float64]:
    """A column of finite numbers; raises ``BadInput`` if it has other values."""
    if isinstance(column, list):
        text = next((text for text in column if not text.lstrip("-").replace(".", "", 1).isdigit()), column[0])
        raise BadInput(
            f"{place}: {name} holds texts such as {text[:60]!r}. Categories have no smallest change: give the "
            f"model numbers, or add drop={name}."
        )
    wrong = np.flatnonzero(~(np.abs(column) <= 1e30))
    if wrong.size:
        raise BadInput(
            f"{place}: {name} has no finite number of at most 1e30 in data row {wrong[0] + 1}; fill it in, leave such "
            f"rows out, or add drop={name}."
        )
    return column


def _labels(
    place: str, name: str, column: NDArray[np.float64] | list[str]
) -> tuple[Tensor, tuple[str, ...] | None, Tensor | None]:
    """Classes (N,), their names and truths. Whole numbers from 0 are classes as they are; texts and other whole numbers
    are classes in alphabetical order; broken numbers are truths, float64 (N,), without classes."""
    if not isinstance(column, list):
        if not np.isfinite(column).all():
            raise BadInput(f"{place}: the label {name} is missing or not finite in places.")
        if (column % 1 != 0).any():
            return torch.zeros(len(column), dtype=torch.long), None, torch.from_numpy(column.copy())
        if column.min() >= 0 and column.max() < 2**31:
            return torch.from_numpy(column.astype(np.int64)), None, None
        column = [str(int(value)) for value in column]
    elif "" in column:
        raise BadInput(f"{place}: the label {name} is missing or not finite in places.")
    names, places = np.unique(np.array(column, dtype=object).astype(str), return_inverse=True)
    return torch.from_numpy(places.astype(np.int64)), tuple(map(str, names)), None


def read(place: str) -> Columns:
    """The columns of a csv or parquet file by name: numbers, NaN where there is none, or texts."""
    path = Path(place).expanduser()
    if not path.is_file():
        raise Unavailable(f"there is no file {place}; write {FORM}.")
    optional("pyarrow", f"{place} needs pyarrow to be read: pip install pyarrow.")
    from pyarrow import csv, parquet

    kind = "parquet" if path.suffix in (".parquet", ".pq") else "csv"
    try:
        table = (
            parquet.read_table(path) if kind == "parquet" else csv.read_csv(path, csv.ReadOptions(use_threads=False))
        )
        columns = [_column(column.combine_chunks()) for column in table.columns]
    except Exception as error:  # an invalid or damaged file raises many kinds of errors
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise BadInput(f"{place} cannot be read as a {kind} table ({reason}).") from error
    names = [name.strip() for name in table.column_names]
    if len(set(names)) < len(names) or "" in names:
        raise BadInput(f"{place} has the columns {', '.join(names)}; each needs a name of its own.")
    if not table.num_rows:
        raise BadInput(f"{place} holds no rows.")
    return dict(zip(names, columns, strict=True))


def _column(column: Any) -> NDArray[np.float64] | list[str]:
    """A column as numbers, NaN where there is no value; as texts if it holds any."""
    import pyarrow

    try:
        if pyarrow.types.is_string(column.type):
            raise pyarrow.ArrowInvalid("texts")
        return np.array(column.cast(pyarrow.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
    except pyarrow.ArrowException:
        return ["" if value is None else str(value).strip() for value in column.to_pylist()]
