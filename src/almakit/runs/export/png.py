"""A run's adversarial images as PNG files, in a folder that is itself data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ...errors import BadInput, optional
from ..failures import explained
from ..folder import RunFolder
from ..store.files import attack_folder, inside
from .table import write_csv


def export_png(run: RunFolder, folder: Path, attack: str | None = None) -> tuple[int, int]:
    """Writes the images that still fool the model after rounding to 8 bits; returns (written, left out).

    The folder gets one sub-folder per attack and an ``images.csv`` with file, label, target and what was measured, so
    that it is itself data: ``folder:<folder>``.
    """
    pillow = optional("PIL.Image", "writing PNG files needs Pillow: pip install 'almakit[vision]'.")
    if run.features is not None and (len(run.features.lo.shape) != 3 or run.features.lo.shape[0] not in (1, 3)):
        raise BadInput("this run's data are no images, so there are no PNG files; export it with --as csv.")
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
                _write_png(pillow, inside(folder, file), image)
                row: dict[str, Any] = {"file": file, "label": run.image[record.image].label}
                row |= {} if record.target is None else {"target": record.target}
                listed.append(
                    row | {"id": run.image[record.image].id, "attack": info.text, "distance_8bit": record.measured_8bit}
                )
    if not listed:
        raise BadInput("no stored image fools the model after rounding to 8 bits; run the attack with --bits 8.")
    write_csv(folder / "images.csv", listed)
    return len(listed), left_out


def _write_png(pillow: Any, path: Path, image: np.ndarray[Any, Any]) -> None:
    """``image`` uint8 (1 or 3, H, W)."""
    if image.ndim != 3 or image.shape[0] not in (1, 3):
        raise BadInput(f"images of shape {image.shape} cannot be PNG files; they need one or three channels.")
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        pillow.fromarray(image[0] if image.shape[0] == 1 else np.moveaxis(image, 0, 2)).save(path)
