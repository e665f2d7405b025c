"""Pictures for the page: PNG data, differences, and the gallery of some images with their adversarial images. No torch
here."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..runs.store.files import Array
from ..runs.store.records import MEASURED, AttackInfo, Record, Tally, outcome, wrong_pixels
from .subjects import Subject

Bytes = NDArray[np.uint8]
BYTES = 12_000_000
"""Usual size of the pictures of a model on a page, before compression."""
BELOW, SAME, ABOVE = np.array([0x05, 0x5F, 0xB4]), np.array([0xF7, 0xF7, 0xF5]), np.array([0xB8, 0x33, 0x0A])
"""Colours of darker, unchanged and brighter pixels in differences of grey images; blue and red-orange are
distinguishable for all colour vision."""


def eight_bit(image: Array) -> Bytes:
    """Bytes (H, W, 3) or (H, W) of an image (C, H, W) in [0, 1]. If it has neither one nor three channels, the first is
    shown."""
    pixels: Bytes = np.rint(np.clip(image.astype(np.float64), 0, 1) * 255).astype(np.uint8)
    return np.ascontiguousarray(np.moveaxis(pixels, 0, -1)) if len(pixels) == 3 else pixels[0]


def difference(original: Array, adversarial: Array) -> tuple[Bytes, float]:
    """The picture of a change (C, H, W), scaled so that the largest change uses the full range, and the largest change.

    Grey images: blue darker, red brighter, white unchanged. Colour images: each channel around mid-grey.
    """
    change = adversarial.astype(np.float64) - original.astype(np.float64)
    largest = float(np.abs(change).max()) if change.size else 0.0
    scaled = change / largest if largest > 0 else np.zeros_like(change)
    if len(scaled) == 3:
        return eight_bit(0.5 + 0.5 * scaled), largest
    share = np.abs(scaled[0])[..., None]
    end = np.where(scaled[0][..., None] < 0, BELOW, ABOVE)
    return np.rint(SAME * (1 - share) + end * share).astype(np.uint8), largest


def png(pixels: Bytes) -> bytes:
    """A PNG file of (H, W) grey or (H, W, 3) colour bytes; equal pixels give equal files."""
    height, width = pixels.shape[:2]
    kind = 2 if pixels.ndim == 3 else 0
    rows = np.concatenate([np.zeros((height, 1), dtype=np.uint8), pixels.reshape(height, -1)], axis=1)

    def part(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + part(b"IHDR", header)
        + part(b"IDAT", zlib.compress(rows.tobytes(), 9))
        + part(b"IEND", b"")
    )


def class_name(subject: Subject, label: int | None) -> str:
    """A class by its name, where classes have names."""
    names = subject.class_names
    return "–" if label is None else names[label] if names and 0 <= label < len(names) else str(label)


def shows(subject: Subject) -> bool:
    """Whether the inputs are images (C, H, W) with one or three channels, which can be shown."""
    features = subject.runs[0].features
    return features is None or (len(features.lo.shape) == 3 and features.lo.shape[0] in (1, 3))


def choose(subject: Subject, limit: int) -> list[int]:
    """Positions in ``subject.images`` to show, spread evenly from the easiest to the hardest image."""
    difficulty = {}
    for place, info in enumerate(subject.images):
        # Order by the first attack's distance, because different distances cannot be averaged.
        found = next((column.rows[info.index] for column in subject.columns if info.index in column.rows), None)
        if found is not None:
            difficulty[place] = found.verified
    ranked = sorted(difficulty, key=lambda place: (difficulty[place], place))
    if len(ranked) > limit:
        ranked = [ranked[round(step * (len(ranked) - 1) / max(limit - 1, 1))] for step in range(limit)]
    return sorted(ranked)


def fitting(subject: Subject, most: int) -> int:
    """The usual number of images to show: ``most``, or fewer where their pictures would have more than ``BYTES``."""
    if not subject.images or not shows(subject):
        return most
    size = subject.runs[0].originals([subject.images[0].index]).size
    return max(1, min(most, BYTES // (size * (1 + 2 * len(subject.columns)))))


TOP = 5


class Album:
    """Pictures by number, each stored once."""

    def __init__(self) -> None:
        self.uris: dict[str, int] = {}

    def add(self, pixels: Bytes) -> int:
        uri = "data:image/png;base64," + base64.b64encode(png(pixels)).decode("ascii")
        return self.uris.setdefault(uri, len(self.uris))


def gallery_of(subject: Subject, number: int, first: int, limit: int, album: Album) -> list[dict[str, Any]]:
    """The chosen images with every attack's result; none if inputs are not images.

    Args:
        subject: a model and its images.
        number: the subject's number on the page.
        first: number of the subject's first attack on the page.
        limit: largest number of images.
        album: receives the pictures.
    """
    infos = [subject.images[place] for place in choose(subject, limit)] if shows(subject) else []
    clean = _by_file(subject.runs[0].originals, [(info.chunk, info.index, info.index) for info in infos])
    points, shown = [], []
    for column in subject.columns:
        records = [column.rows[info.index] for info in infos if info.index in column.rows]
        stored = [(record.file, record.image, record) for record in records if record.slot is not None]
        points.append(_by_file(column.run.adversarials, stored))
    for info in infos:
        original, results = clean[info.index], []
        for offset, column in enumerate(subject.columns):
            if (record := column.rows.get(info.index)) is not None:
                point = points[offset].get(info.index)
                results.append({"attack": first + offset} | _result(record, column.info, original, point, album))
        shown.append(
            {
                "model": number,
                "image": info.index,
                "id": info.id,
                "label": info.label,
                "prediction": info.prediction,
                "top": _top(info.top),
                "original": album.add(eight_bit(original)),
                "wrong": _wrong(info.pixels),
                "side": max(original.shape[1:]),
                "grey": len(original) != 3,
                "results": results,
            }
        )
    return shown


def _by_file(read: Callable[[list[Any]], Array], rows: Sequence[tuple[object, int, Any]]) -> dict[int, Array]:
    """Images (C, H, W) by image index, with one file in memory at a time. ``rows``: the file, the index, and what
    ``read`` takes."""
    found: dict[int, Array] = {}
    for file in dict.fromkeys(file for file, _, _ in rows):
        mine = [(index, key) for other, index, key in rows if other == file]
        found |= zip((index for index, _ in mine), map(np.array, read([key for _, key in mine])), strict=True)
    return found


def _wrong(pixels: Tally | None) -> float | None:
    """For segmentation, the share of wrong pixels."""
    return None if pixels is None else round(wrong_pixels(pixels), 6)


def _result(record: Record, info: AttackInfo, original: Any, point: Any, album: Album) -> dict[str, Any]:
    eight = {"fooled": record.fooled_8bit, "distance": rounded(record.measured_8bit)}
    found: dict[str, Any] = {name: getattr(record, name) for name in COPIED} | {
        "status": "refuted" if record.refuted else outcome(record, info),
        "distance": rounded(record.verified),
        "top": _top(record.top),
        "measures": [rounded(record.measures.get(name)) for name in MEASURED],
        "wrong": _wrong(record.pixels),
        "eight": eight if record.claimed and not record.refuted else None,
        "picture": None,
        "change": None,
        "largest": None,
    }
    if point is not None:
        change, largest = difference(original, point)
        found |= {"picture": album.add(eight_bit(point)), "change": album.add(change), "largest": largest}
    return found


COPIED = ("reason", "target", "prediction", "forwards", "backwards")
"""Fields of a record that the page shows unchanged."""


def _top(top: Sequence[tuple[int, float]]) -> list[list[float]]:
    return [[label, round(probability, 4)] for label, probability in top[:TOP]]


def rounded(value: float | None) -> float | None:
    """The number rounded to six digits, the most that the page shows; None if it is not finite."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")
