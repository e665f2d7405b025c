"""A run's records as one flat table (csv, parquet), and its adversarial images as PNG files. No torch here."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BadInput, Unavailable
from .chunkfiles import inside, write_bytes
from .failures import explained
from .flat import INTEGER, NUMBER, TEXT, TRUTH, columns, flat_rows
from .folder import Run, attack_folder
from .records import plain_cell

FORMATS = ("csv", "parquet", "png")


def export_csv(run: Run, path: Path) -> int:
    """Writes the records as csv (None as an empty field) and returns how many."""
    rows = _some(run)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: plain_cell(value) for name, value in row.items()} for row in rows)
    write_bytes(path, text.getvalue().encode())
    return len(rows)


def export_parquet(run: Run, path: Path) -> int:
    """Writes the records as parquet and returns how many."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise Unavailable("parquet needs pyarrow: pip install 'almakit[export]', or use --format csv.") from error
    rows = _some(run)
    kinds = {INTEGER: pyarrow.int64(), NUMBER: pyarrow.float64(), TRUTH: pyarrow.bool_(), TEXT: pyarrow.string()}
    schema = pyarrow.schema([(column.name, kinds[column.kind]) for column in columns()])
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), buffer)
    write_bytes(path, buffer.getvalue())
    return len(rows)


def export_png(run: Run, folder: Path, attack: str | None = None) -> tuple[int, int]:
    """Writes the images that still fool the model after rounding to 8 bits; returns (written, left out).

    The folder gets one sub-folder per attack and an ``images.csv`` with file, label, target and what was measured, so
    that it is itself data: ``folder:<folder>``.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise Unavailable("writing PNG files needs Pillow: pip install 'almakit[vision]'.") from error
    chosen = [info for info in run.attacks if attack is None or info.text == attack]
    if not chosen:
        raise BadInput(f"this run has no attack {attack!r}; it has {', '.join(info.text for info in run.attacks)}.")
    if len({info.targeted for info in chosen}) > 1 or (folder / "images.csv").exists():
        raise BadInput(f"{folder} holds exported images already; choose a new folder.")
    listed, left_out = [], 0
    for info in chosen:
        found = [record for record in run.records_of(info.index) if record.slot is not None]
        good = [record for record in found if record.fooled_8bit]
        left_out += len(found) - len(good)
        for begin in range(0, len(good), 256):
            part = good[begin : begin + 256]
            for record, image in zip(
                part, np.rint(np.asarray(run.adversarials(part), dtype=np.float64) * 255).astype(np.uint8), strict=True
            ):
                target = "" if record.target is None else f"-to-{record.target:d}"
                file = f"{attack_folder(info)}/{record.image:06d}{target}.png"
                _write_png(Image, inside(folder, file), image)
                row: dict[str, Any] = {"file": file, "label": run.image[record.image].label}
                row |= {} if record.target is None else {"target": record.target}
                listed.append(
                    row | {"id": run.image[record.image].id, "attack": info.text, "distance_8bit": record.measured_8bit}
                )
    if not listed:
        raise BadInput("no stored image fools the model after rounding to 8 bits; run the attack with --bits 8.")
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(listed[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: plain_cell(value) for name, value in row.items()} for row in listed)
    write_bytes(folder / "images.csv", text.getvalue().encode())
    return len(listed), left_out


def _write_png(pillow: Any, path: Path, image: np.ndarray[Any, Any]) -> None:
    """``image`` uint8 (1 or 3, H, W)."""
    if image.ndim != 3 or image.shape[0] not in (1, 3):
        raise BadInput(f"images of shape {image.shape} cannot be PNG files; they need one or three channels.")
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        pillow.fromarray(image[0] if image.shape[0] == 1 else np.moveaxis(image, 0, 2)).save(path)


def _some(run: Run) -> list[dict[str, Any]]:
    rows = flat_rows(run)
    if not rows:
        raise BadInput(f"{run.folder} has no finished records yet.")
    return rows
