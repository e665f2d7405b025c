"""Exports of a run: one flat table (csv, parquet, pandas), PNG files, AttackBench's results. No torch here."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
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
from .store.records import FAILED, ROBUST, STATUSES, AttackInfo, ImageInfo, Record, outcome, plain_cell, reach_of

# The flat table: a row for each attack, image and target.

INTEGER, NUMBER, TEXT, TRUTH = "integer", "number", "string", "boolean"
"""JSON Schema types of columns."""
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
    """A column of the table: its type, whether it always has a value, and the function that reads the value."""

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
    return Flat(column.name, kind, column.required and column.field != "target", value)


def flat_rows(run: RunFolder) -> list[dict[str, Any]]:
    """One dict per record with the values of all columns; an infinite distance is None."""
    around = {
        info.index: (info, reach_of(info, [record.verified for record in run.records_of(info.index)]))
        for info in run.attacks
    }
    rows = [Row(run, record, run.image[record.image], *around[record.attack]) for record in run.records]
    return [{column.name: column.value(row) for column in columns()} for row in rows]


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a row, which is part of the package (report/schemas)."""
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
    kinds = {INTEGER: pyarrow.int64(), NUMBER: pyarrow.float64(), TRUTH: pyarrow.bool_(), TEXT: pyarrow.string()}
    schema = pyarrow.schema([(column.name, kinds[column.kind]) for column in columns()])
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


# AttackBench's results: a folder per attack with config.json and info.json, for its analysis scripts.

NORMS = ("l0", "l1", "l2", "linf")
"""AttackBench's threat models."""
OPTIMALITY = (
    "almakit's optimality takes the area under the step curve exactly; AttackBench's analysis takes it by the "
    "trapezoid rule, which favours attacks that find many images at the same distance (1.005 where the exact figure is "
    "0.836, for one APGD row). The two are different figures: do not compare them."
)


def export_attackbench(run: RunFolder, out: Path) -> tuple[list[Path], list[str]]:
    """Writes ``<data>/<norm>/<model>/batch_size_<n>/almakit <attack>/1/{config,info}.json`` below ``out``; returns the
    folders, and what was left out.

    AttackBench (Cinà et al., 2025) holds one result per image of attacks that look for the smallest change in l0, l1,
    l2 or linf.
    """
    written, left_out = [], []
    data, model, size = _slug(str(run.meta.get("data"))), _slug(str(run.meta.get("model"))), run.spec.batch_size
    for info in run.attacks:
        records = run.records_of(info.index)
        if why := _unfit(info, records):
            left_out.append(f"{info.text}: {why}")
            continue
        place = inside(out, f"{data}/{info.distance}/{model}/batch_size_{size}/almakit {_slug(info.text)}/1")
        for name, content in (("config.json", _config(run, info)), ("info.json", _info(run, info, records))):
            write_bytes(place / name, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())
        written.append(place)
    if not written:
        raise BadInput(f"nothing in {run.folder} fits AttackBench's format: {'; '.join(left_out)}")
    return written, left_out


def _unfit(info: AttackInfo, records: list[Record]) -> str | None:
    if not records:
        return "it has no results yet."
    if info.distance not in NORMS:
        return f"AttackBench has no threat model {info.distance}; it has {', '.join(NORMS)}."
    if not info.minimal:
        return "it works at a fixed radius, and AttackBench compares smallest changes."
    if len({record.image for record in records}) < len(records):
        return "it has a result for every target, and AttackBench one for each image."
    return None


def _config(run: RunFolder, info: AttackInfo) -> dict[str, Any]:
    """What AttackBench's analysis reads (model, dataset, attack), and where it comes from."""
    return {
        "model": {"name": run.meta.get("model"), "dataset": run.meta.get("data")},
        "dataset": {"batch_size": run.spec.batch_size, "num_samples": len(run.images)},
        "attack": {"name": info.text, "source": "almakit", "threat_model": info.distance},
        "seed": run.spec.seed,
        "almakit": {
            "version": run.sessions[0]["environment"].get("almakit") if run.sessions else None,
            "folder_sha256": run.sha256,
            "targets": run.spec.targets,
            "bits": run.spec.bits,
            "optimality": OPTIMALITY,
        },
    }


def _info(run: RunFolder, info: AttackInfo, records: list[Record]) -> dict[str, Any]:
    """One entry per image. As in AttackBench, an image without a success has distance 0."""
    images = [record.image for record in records]
    success = [bool(np.isfinite(record.verified)) for record in records]
    distances = {name: [_measure(record, info, name) for record in records] for name in NORMS}
    return {
        "hashes": [
            hashlib.sha512(np.ascontiguousarray(x, dtype=np.float32).tobytes()).hexdigest()
            for x in run.originals(images)
        ],
        "targeted": info.targeted,
        "accuracy": float(np.mean([run.image[image].correct for image in images])),
        "ori_success": [not record.attacked and record.fooled for record in records],
        "adv_success": success,
        "ASR": float(np.mean(success)),
        "times": [record.seconds for record in records],
        "num_forwards": [record.forwards for record in records],
        "num_backwards": [record.backwards for record in records],
        "distances": distances,
        "best_optim_distances": distances,
        "box_failures": [False] * len(records),
    }


def _measure(record: Record, info: AttackInfo, name: str) -> float:
    if not (np.isfinite(record.verified) and record.attacked):
        return 0.0
    return float(record.verified if name == info.distance else record.measures.get(name) or 0.0)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:80] or "unnamed"
