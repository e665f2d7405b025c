"""Exports of a run: one flat table (csv, parquet, pandas) and PNG files. No torch here."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
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
from .store.records import Record, outcome, plain_cell, reach_of

# The flat table: a row for each attack, image and target.

KINDS = {"INTEGER": "int64", "REAL": "float64", "TEXT": "string"}
"""Types of columns by their type in SQL, by their names in pyarrow."""
AROUND = {
    **dict.fromkeys(("model", "data", "attack", "distance_name"), "string"),
    **{"epsilon": "float64", "image": "int64", "id": "string", "sha256": "string", "label": "int64"},
    **{"label_name": "string", "clean_prediction": "int64", "clean_top": "string", "status": "string"},
    **{"seconds": "float64", "file": "string"},
}
"""The columns that come from the run, the attack and the image, with their types."""


@cache
def _own() -> list[fields.Column]:
    """The columns that come from a record's fields."""
    return [column for column in fields.columns(Record) if column.name not in (*AROUND, "round")]


def flat_rows(run: RunFolder) -> list[dict[str, Any]]:
    """One dict per record with the values of all columns; an infinite distance is None. ``epsilon`` is the radius of an
    attack at a fixed epsilon."""
    names, rows = run.class_names or [], []
    for info in run.attacks:
        records = run.records_of(info.index)
        reach = reach_of(info, [record.verified for record in records])
        for record in records:
            image = run.image[record.image]
            row: dict[str, Any] = {
                "model": run.meta.get("model"),
                "data": run.meta.get("data"),
                "attack": info.text,
                "distance_name": info.distance,
                "epsilon": finite(reach),
                "image": record.image,
                "id": image.id,
                "sha256": image.sha256,
                "label": image.label,
                "label_name": names[image.label] if image.label < len(names) else None,
                "clean_prediction": image.prediction,
                "clean_top": json.dumps(image.top),
                "status": outcome(record, info),
                "seconds": record.seconds,
                "file": record.file,
            }
            rows.append(row | {column.name: _cell(column, record) for column in _own()})
    return rows


def _cell(column: fields.Column, record: Record) -> Any:
    found = column.of(record)
    return finite(found) if column.kind == "REAL" else json.dumps(found) if column.field == "top" else found


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
    own = {column.name: "bool_" if column.read is bool else KINDS[column.kind] for column in _own()}
    schema = pyarrow.schema([(name, getattr(pyarrow, kind)()) for name, kind in (AROUND | own).items()])
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
