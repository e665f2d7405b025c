"""Pictures for the page: PNG files in text form, differences made visible, and which images to show. No torch here."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..runs.store.files import Array
from ..runs.store.records import FAILED, INVALID, Record, outcome
from .subjects import Column, Subject

Bytes = NDArray[np.uint8]
BELOW, SAME, ABOVE = np.array([0x05, 0x5F, 0xB4]), np.array([0xF7, 0xF7, 0xF5]), np.array([0xB8, 0x33, 0x0A])
"""Darker, unchanged, brighter, for the differences of grey images; blue and red-orange stay apart for all colour
vision."""


def eight_bit(image: Array) -> Bytes:
    """(H, W, 3) or (H, W) bytes of an image (C, H, W) in [0, 1]; of other numbers of channels the first is shown."""
    pixels: Bytes = np.rint(np.clip(image.astype(np.float64), 0, 1) * 255).astype(np.uint8)
    return np.ascontiguousarray(np.moveaxis(pixels, 0, -1)) if len(pixels) == 3 else pixels[0]


def difference(original: Array, adversarial: Array) -> tuple[Bytes, float]:
    """The change (C, H, W) -> its picture, scaled so that the largest change is a full swing, and that largest change.

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


@dataclass
class Album:
    """Pictures by number, each kept once, until the room (bytes of text) is used up."""

    room: int
    uris: list[str] = field(default_factory=list)
    used: int = 0
    _places: dict[str, int] = field(default_factory=dict)

    def add(self, pixels: Bytes) -> int:
        uri = "data:image/png;base64," + base64.b64encode(png(pixels)).decode("ascii")
        if uri not in self._places:
            self._places[uri] = len(self.uris)
            self.uris.append(uri)
            self.used += len(uri)
        return self._places[uri]

    @property
    def full(self) -> bool:
        return self.used >= self.room


def shows(subject: Subject) -> bool:
    """Whether the inputs can be shown: images (C, H, W) with one or three channels."""
    features = subject.runs[0].features
    return features is None or (len(features.lo.shape) == 3 and features.lo.shape[0] in (1, 3))


def choose(subject: Subject, limit: int) -> list[int]:
    """Positions in ``subject.images`` to show: a few that failed or were refuted, the rest from the easiest to the
    hardest, evenly."""
    attacked = [
        place
        for place, info in enumerate(subject.images)
        if any(info.index in column.rows for column in subject.columns)
    ]
    if len(attacked) <= limit:
        return attacked
    odd = [place for place in attacked if any(_odd(column, subject.images[place].index) for column in subject.columns)]
    chosen = _evenly(odd, limit // 3)
    difficulty = {place: _difficulty(subject.columns, subject.images[place].index) for place in attacked}
    rest = sorted(
        (place for place in attacked if place not in set(chosen)), key=lambda place: (difficulty[place], place)
    )
    return sorted(chosen + _evenly(rest, limit - len(chosen)))


def _odd(column: Column, image: int) -> bool:
    record = column.rows.get(image)
    return record is not None and (outcome(record, column.info) in (FAILED, INVALID) or record.refuted)


def _difficulty(columns: Sequence[Column], image: int) -> float:
    """The first attack's distance decides: distances of different kinds cannot be averaged."""
    found = next((column.rows[image].verified for column in columns if image in column.rows), math.inf)
    return found if math.isfinite(found) else math.inf


def _evenly(places: list[int], count: int) -> list[int]:
    if len(places) <= count or count < 1:
        return places[: max(count, 0)]
    return [places[round(step * (len(places) - 1) / max(count - 1, 1))] for step in range(count)]


def originals(subject: Subject, places: Sequence[int]) -> dict[int, Array]:
    """Image index -> its clean image (C, H, W), one chunk in memory at a time."""
    run = subject.runs[0]
    by_chunk: dict[int, list[int]] = {}
    for place in places:
        by_chunk.setdefault(subject.images[place].chunk, []).append(subject.images[place].index)
    return {
        index: np.array(image)
        for indices in by_chunk.values()
        for index, image in zip(indices, run.originals(indices), strict=True)
    }


def adversarials(column: Column, places: Sequence[int]) -> dict[int, Array]:
    """Image index -> the adversarial image (C, H, W) the column stored for it, where there is one; one file in memory
    at a time."""
    by_file: dict[str | None, list[Record]] = {}
    for place in places:
        record = column.rows.get(place)
        if record is not None and record.slot is not None:
            by_file.setdefault(record.file, []).append(record)
    return {
        record.image: np.array(image)
        for records in by_file.values()
        for record, image in zip(records, column.run.adversarials(records), strict=True)
    }
