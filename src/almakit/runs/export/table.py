"""A run's records as one flat table, a row for each attack, image and target: what csv, parquet, pandas and the JSON
Schema of records are made of."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import BadInput, optional
from ..folder import RunFolder
from ..store import fields
from ..store.fields import finite
from ..store.files import write_bytes
from ..store.records import FAILED, ROBUST, STATUSES, AttackInfo, ImageInfo, Record, outcome, plain_cell, reach_of

INTEGER, NUMBER, TEXT, TRUTH = "integer", "number", "string", "boolean"
"""What a column holds, in the words of JSON Schema."""


@dataclass(frozen=True)
class Row:
    """All that belongs to one record; ``reach`` is the radius of an attack at a fixed epsilon, infinite for others."""

    run: RunFolder
    record: Record
    image: ImageInfo
    info: AttackInfo
    reach: float


@dataclass(frozen=True)
class Flat:
    """A column of the table: what it holds, whether always, and where the value is from."""

    name: str
    kind: str
    required: bool
    value: Callable[[Row], Any]


def _class_name(row: Row) -> str | None:
    names, label = row.run.class_names, row.image.label
    return names[label] if names and label < len(names) else None


AROUND = (
    Flat("model", TEXT, False, lambda row: row.run.meta.get("model")),
    Flat("data", TEXT, False, lambda row: row.run.meta.get("data")),
    Flat("attack", TEXT, True, lambda row: row.info.text),
    Flat("distance_name", TEXT, True, lambda row: row.info.distance),
    Flat("epsilon", NUMBER, False, lambda row: finite(row.reach)),
    Flat("image", INTEGER, True, lambda row: row.record.image),
    Flat("id", TEXT, True, lambda row: row.image.id),
    Flat("sha256", TEXT, True, lambda row: row.image.sha256),
    Flat("label", INTEGER, True, lambda row: row.image.label),
    Flat("label_name", TEXT, False, _class_name),
    Flat("clean_prediction", INTEGER, True, lambda row: row.image.prediction),
    Flat("clean_top", TEXT, True, lambda row: json.dumps(row.image.top)),
    Flat("status", TEXT, True, lambda row: outcome(row.record, row.info)),
    Flat("seconds", NUMBER, False, lambda row: row.record.seconds),
    Flat("file", TEXT, False, lambda row: row.record.file),
)
"""What stands beside a record's own fields."""
LEFT_OUT = ("round",)
"""Fields of a record that only the store needs."""


@cache
def columns() -> tuple[Flat, ...]:
    """What is around a record first, then its own fields in their order."""
    taken = {column.name for column in AROUND}
    own = [_of_record(column) for column in fields.columns(Record) if column.name not in (*taken, *LEFT_OUT)]
    return (*AROUND, *own)


def _of_record(column: fields.Column) -> Flat:
    def value(row: Row) -> Any:
        found = getattr(row.record, column.field)
        found = found if column.key is None else found.get(column.key)
        return finite(found) if column.kind == "REAL" else json.dumps(found) if column.field == "top" else found

    truth = column.read is bool
    kind = TRUTH if truth else {"INTEGER": INTEGER, "REAL": NUMBER, "TEXT": TEXT}[column.kind]
    return Flat(column.name, kind, column.required and column.field != "target", value)


def flat_rows(run: RunFolder) -> list[dict[str, Any]]:
    """One dict per record with everything that belongs to it; an infinite distance is None."""
    infos = {info.index: info for info in run.attacks}
    reaches = {
        info.index: reach_of(info, [record.verified for record in run.records_of(info.index)]) for info in run.attacks
    }
    rows = [
        Row(run, record, run.image[record.image], infos[record.attack], reaches[record.attack])
        for record in run.records
    ]
    return [{column.name: column.value(row) for column in columns()} for row in rows]


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a row, as it is shipped (report/schemas)."""
    properties = {
        column.name: {"type": column.kind if column.required else [column.kind, "null"]}
        | ({"minimum": 0} if column.kind == NUMBER or column.name in ("image", "forwards", "backwards") else {})
        for column in columns()
    }
    properties["status"] = {"enum": sorted({*STATUSES, ROBUST, FAILED})}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A record of an almakit run as exported (a row of csv or parquet), version 1",
        "type": "object",
        "additionalProperties": False,
        "required": [column.name for column in columns()],
        "properties": properties,
    }


def export_csv(run: RunFolder, path: Path) -> int:
    """Writes the records as csv (None as an empty field) and returns how many."""
    rows = _some(run)
    write_csv(path, rows)
    return len(rows)


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Rows with the same columns, None as an empty field."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: plain_cell(value) for name, value in row.items()} for row in rows)
    write_bytes(path, text.getvalue().encode())


def export_parquet(run: RunFolder, path: Path) -> int:
    """Writes the records as parquet and returns how many."""
    missing = "parquet needs pyarrow: pip install 'almakit[export]', or use --format csv."
    pyarrow, parquet = optional("pyarrow", missing), optional("pyarrow.parquet", missing)
    rows = _some(run)
    kinds = {INTEGER: pyarrow.int64(), NUMBER: pyarrow.float64(), TRUTH: pyarrow.bool_(), TEXT: pyarrow.string()}
    schema = pyarrow.schema([(column.name, kinds[column.kind]) for column in columns()])
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), buffer)
    write_bytes(path, buffer.getvalue())
    return len(rows)


def _some(run: RunFolder) -> list[dict[str, Any]]:
    rows = flat_rows(run)
    if not rows:
        raise BadInput(f"{run.folder} has no finished records yet.")
    return rows
