"""Exports of a run: one flat table (csv, parquet, pandas) and PNG files. No torch here."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BadInput, optional
from .failures import explained
from .folder import RunFolder
from .store import fields
from .store.fields import finite
from .store.files import attack_folder, inside, write_bytes
from .store.records import AttackInfo, ImageInfo, Record, outcome, plain_cell, reach_of

# The flat table: a row for each attack, image and target.

INTEGER, NUMBER, TEXT, TRUTH = "int64", "float64", "string", "bool_"
"""Types of columns, by their names in pyarrow."""
KINDS = {"INTEGER": INTEGER, "REAL": NUMBER, "TEXT": TEXT}


@dataclass(frozen=True)
class Row:
    """One record with its attack and image. ``reach`` is the radius of an attack at a fixed epsilon, infinite for
    others."""

    run: RunFolder
    record: Record
    image: ImageInfo
    info: AttackInfo
    reach: float


@dataclass(frozen=True)
class Flat:
    """A column of the table: its type and the function that reads the value."""

    name: str
    kind: str
    value: Callable[[Row], Any]


def _class_name(row: Row) -> str | None:
    names, label = row.run.class_names, row.image.label
    return names[label] if names and label < len(names) else None


AROUND = (
    Flat("model", TEXT, lambda row: row.run.meta.get("model")),
    Flat("data", TEXT, lambda row: row.run.meta.get("data")),
    Flat("attack", TEXT, lambda row: row.info.text),
    Flat("distance_name", TEXT, lambda row: row.info.distance),
    Flat("epsilon", NUMBER, lambda row: finite(row.reach)),
    Flat("image", INTEGER, lambda row: row.record.image),
    Flat("id", TEXT, lambda row: row.image.id),
    Flat("sha256", TEXT, lambda row: row.image.sha256),
    Flat("label", INTEGER, lambda row: row.image.label),
    Flat("label_name", TEXT, _class_name),
    Flat("clean_prediction", INTEGER, lambda row: row.image.prediction),
    Flat("clean_top", TEXT, lambda row: json.dumps(row.image.top)),
    Flat("status", TEXT, lambda row: outcome(row.record, row.info)),
    Flat("seconds", NUMBER, lambda row: row.record.seconds),
    Flat("file", TEXT, lambda row: row.record.file),
)
"""The columns besides a record's own fields."""
LEFT_OUT = {"round", *(column.name for column in AROUND)}
"""Fields of a record that are not exported, or are replaced by a column of the same name."""


@cache
def columns() -> tuple[Flat, ...]:
    """The columns of the table: attack and image first, then the record's fields in their order."""
    own = [_of_record(column) for column in fields.columns(Record) if column.name not in LEFT_OUT]
    return (*AROUND, *own)


def _of_record(column: fields.Column) -> Flat:
    def value(row: Row) -> Any:
        found = column.of(row.record)
        return finite(found) if column.kind == "REAL" else json.dumps(found) if column.field == "top" else found

    kind = TRUTH if column.read is bool else KINDS[column.kind]
    return Flat(column.name, kind, value)


def flat_rows(run: RunFolder) -> list[dict[str, Any]]:
    """One dict per record with the values of all columns; an infinite distance is None."""
    around = {
        info.index: (info, reach_of(info, [record.verified for record in run.records_of(info.index)]))
        for info in run.attacks
    }
    rows = [Row(run, record, run.image[record.image], *around[record.attack]) for record in run.records]
    return [{column.name: column.value(row) for column in columns()} for row in rows]


def export_table(run: RunFolder, path: Path, format: str = "csv") -> int:
    """Write the records as ``csv`` (None as an empty field) or ``parquet``. Returns their number."""
    if not run.records:
        raise BadInput(f"{run.folder} has no finished records yet.")
    rows = flat_rows(run)
    if format == "csv":
        write_csv(path, rows)
        return len(rows)
    missing = "parquet needs pyarrow: pip install 'almakit[export]', or use --format csv."
    pyarrow, parquet = optional("pyarrow", missing), optional("pyarrow.parquet", missing)
    schema = pyarrow.schema([(column.name, getattr(pyarrow, column.kind)()) for column in columns()])
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), buffer)
    write_bytes(path, buffer.getvalue())
    return len(rows)


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Rows with the same columns, None as an empty field."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: plain_cell(value) for name, value in row.items()} for row in rows)
    write_bytes(path, text.getvalue().encode())


# PNG files.


def export_png(run: RunFolder, folder: Path, attack: str | None = None) -> tuple[int, int]:
    """Writes the images that still fool the model after rounding to 8 bits; returns (written, left out).

    The folder gets one sub-folder per attack and an ``images.csv`` with file, label, target and distance, so that
    ``folder:<folder>`` reads it as a data set.
    """
    pillow = optional("PIL.Image", "writing PNG files needs Pillow: pip install 'almakit[vision]'.")
    if (folder / "images.csv").exists():
        raise BadInput(f"{folder} holds exported images already; choose a new folder.")
    listed, left_out = [], 0
    for info in run.attacks if attack is None else [run.info(attack)]:
        found = [record for record in run.records_of(info.index) if record.slot is not None]
        good = [record for record in found if record.fooled_8bit]
        left_out += len(found) - len(good)
        for begin in range(0, len(good), 256):
            part = good[begin : begin + 256]
            levels = np.rint(np.asarray(run.adversarials(part), dtype=np.float64) * 255).astype(np.uint8)
            for record, image in zip(part, levels, strict=True):
                clean, target = run.image[record.image], record.target
                end = "" if target is None else f"-to-{target:d}"
                file = f"{attack_folder(info)}/{record.image:06d}{end}.png"
                _write_png(pillow, inside(folder, file), image)
                row: dict[str, Any] = {"file": file, "label": clean.label}
                row |= {} if target is None else {"target": target}
                listed.append(row | {"id": clean.id, "attack": info.text, "distance_8bit": record.measured_8bit})
    if not listed:
        raise BadInput("no stored image fools the model after rounding to 8 bits; run the attack with --bits 8.")
    write_csv(folder / "images.csv", listed)
    return len(listed), left_out


def _write_png(pillow: Any, path: Path, image: np.ndarray[Any, Any]) -> None:
    """``image`` uint8 (1 or 3, H, W)."""
    if image.ndim != 3 or image.shape[0] not in (1, 3):
        raise BadInput(f"values of shape {image.shape} cannot be PNG files: use --format csv.")
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        pillow.fromarray(image[0] if image.shape[0] == 1 else np.moveaxis(image, 0, 2)).save(path)
