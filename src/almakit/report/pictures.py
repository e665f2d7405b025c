"""Pictures for the page: PNG data, differences, segmentations, and the gallery of some images with their adversarial
images. No torch here."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..runs.store.files import Array
from ..runs.store.records import FAILED, INVALID, MEASURED, AttackInfo, ImageInfo, Record, outcome, wrong_pixels
from .results import Results
from .subjects import Subject

Bytes = NDArray[np.uint8]
Pixels = NDArray[Any]
"""Images and label maps."""
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


@dataclass
class Album:
    """Pictures by number, each stored once, up to a limit in bytes."""

    limit: int
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
        return self.used >= self.limit


def class_name(subject: Subject, label: int | None) -> str:
    """A class by its name, where classes have names."""
    names = subject.class_names
    return "–" if label is None else names[label] if names and 0 <= label < len(names) else str(label)


def shows(subject: Subject) -> bool:
    """Whether the inputs are images (C, H, W) with one or three channels, which can be shown."""
    features = subject.runs[0].features
    return features is None or (len(features.lo.shape) == 3 and features.lo.shape[0] in (1, 3))


def choose(subject: Subject, limit: int) -> list[int]:
    """Positions in ``subject.images`` to show: a few failed or refuted images, the others spread evenly from the
    easiest to the hardest."""
    odd, difficulty = [], {}
    for place, info in enumerate(subject.images):
        mine = [(column.rows[info.index], column.info) for column in subject.columns if info.index in column.rows]
        if mine:
            # Order by the first attack's distance, because different distances cannot be averaged.
            difficulty[place] = mine[0][0].verified
            if any(record.refuted or outcome(record, attack) in (FAILED, INVALID) for record, attack in mine):
                odd.append(place)
    if len(difficulty) <= limit:
        return list(difficulty)
    chosen = _evenly(odd, limit // 3)
    rest = sorted(difficulty.keys() - set(chosen), key=lambda place: (difficulty[place], place))
    return sorted(chosen + _evenly(rest, limit - len(chosen)))


def _evenly(places: list[int], count: int) -> list[int]:
    if len(places) <= count or count < 1:
        return places[: max(count, 0)]
    return [places[round(step * (len(places) - 1) / max(count - 1, 1))] for step in range(count)]


def originals(subject: Subject, infos: Sequence[ImageInfo]) -> dict[int, Array]:
    """Clean images (C, H, W) by image index, with one chunk in memory at a time."""
    found: dict[int, Array] = {}
    for chunk in dict.fromkeys(info.chunk for info in infos):
        indices = [info.index for info in infos if info.chunk == chunk]
        found |= dict(zip(indices, map(np.array, subject.runs[0].originals(indices)), strict=True))
    return found


def adversarials(column: Results, images: Sequence[int]) -> dict[int, Array]:
    """Adversarial images (C, H, W) of an attack by image index, with one file in memory at a time."""
    records = [column.rows[image] for image in images if image in column.rows]
    found: dict[int, Array] = {}
    for file in dict.fromkeys(record.file for record in records if record.slot is not None):
        here = [record for record in records if record.file == file and record.slot is not None]
        points = map(np.array, column.run.adversarials(here))
        found |= {record.image: point for record, point in zip(here, points, strict=True)}
    return found


# Segmentation: classes drawn over the image, and misclassified pixels.

_HEX = "1B1C20 0069D0 CA7C00 1B965A C03A0C B04AA5 00B4C8 E8CB2C 7A5230 8FC31F F08FB0 6A5AC8 F2F2EE"
COLOURS = np.array([list(bytes.fromhex(colour)) for colour in _HEX.split()], dtype=np.float64)
"""Colours of classes, repeated if there are more classes."""
STRENGTH = 0.65
WRONG = np.array([0xB8, 0x33, 0x0A], dtype=np.float64)


def overlay(image: Pixels, classes: Pixels, counted: Pixels | None = None) -> Bytes:
    """Bytes (H, W, 3) of the image (C, H, W) in grey with the colours of its ``classes`` (H, W). Pixels that are not
    ``counted`` stay grey."""
    grey = _grey(image)
    mixed = (1 - STRENGTH) * grey + STRENGTH * COLOURS[np.maximum(classes, 0) % len(COLOURS)]
    keep = classes >= 0 if counted is None else (classes >= 0) & counted
    return np.rint(np.where(keep[..., None], mixed, grey)).astype(np.uint8)


def wrong(image: Pixels, predicted: Pixels, truth: Pixels, counted: Pixels) -> Bytes:
    """Bytes (H, W, 3) of the image in grey, with misclassified counted pixels in red."""
    grey = _grey(image)
    return np.rint(
        np.where((counted & (predicted != truth))[..., None], (1 - STRENGTH) * grey + STRENGTH * WRONG, grey)
    ).astype(np.uint8)


def _grey(image: Pixels) -> Pixels:
    pixels = eight_bit(image).astype(np.float64)
    return np.repeat((pixels.mean(2) if pixels.ndim == 3 else pixels)[..., None], 3, axis=2)


def maps_of_images(subject: Subject, infos: Sequence[ImageInfo]) -> dict[int, tuple[Pixels, Pixels]]:
    """Label maps and the model's classes (H, W) by image index; empty unless labels are maps."""
    indices, run = [info.index for info in infos if info.pixels is not None], subject.runs[0]
    if not indices:
        return {}
    return dict(zip(indices, zip(run.maps(indices), run.maps(indices, "predictions"), strict=True), strict=True))


def maps_of_column(column: Results, indices: Sequence[int]) -> dict[int, Pixels]:
    """The model's classes (H, W) for the adversarial images of an attack, by image index."""
    rows = [column.rows[index] for index in indices if index in column.rows]
    records = [record for record in rows if record.slot is not None and record.pixels is not None]
    if not records:
        return {}
    return dict(zip((record.image for record in records), column.run.adversarial_maps(records), strict=True))


# The gallery.

TOP = 5


def gallery_of(subject: Subject, number: int, first: int, limit: int, album: Album) -> list[dict[str, Any]]:
    """The chosen images with every attack's result, until the album is full; none if inputs are not images.

    Args:
        subject: a model and its images.
        number: the subject's number on the page.
        first: number of the subject's first attack on the page.
        limit: largest number of images.
        album: receives the pictures.
    """
    chosen = [subject.images[place] for place in choose(subject, limit)] if shows(subject) else []
    classes, shown = int(subject.runs[0].meta.get("classes", 0)), []
    for start in range(0, len(chosen), 8):  # in small groups, so that reading stops when the album is full
        if album.full:
            break
        infos = chosen[start : start + 8]
        clean, maps = originals(subject, infos), maps_of_images(subject, infos)
        points = [adversarials(column, [info.index for info in infos]) for column in subject.columns]
        after = [maps_of_column(column, list(maps)) for column in subject.columns]
        for info in infos:
            if album.full:
                break
            index, original, results = info.index, clean[info.index], []
            for offset, column in enumerate(subject.columns):
                if index in column.rows:
                    found = _result(column.rows[index], column.info, original, points[offset].get(index), album)
                    mine = after[offset].get(index)
                    own = maps_after(column.rows[index], original, maps.get(index), mine, classes, album)
                    results.append(found | {"attack": first + offset, "maps": own})
            shown.append(
                {
                    "model": number,
                    "image": index,
                    "id": info.id,
                    "label": info.label,
                    "prediction": info.prediction,
                    "top": _top(info.top),
                    "original": album.add(eight_bit(original)),
                    "maps": maps_before(info, original, maps.get(index), classes, album),
                    "side": max(original.shape[1:]),
                    "grey": len(original) != 3,
                    "results": results,
                }
            )
    return shown


def maps_before(info: ImageInfo, image: Pixels, maps: Any, classes: int, album: Album) -> dict[str, Any] | None:
    """Pixel data of a clean image for the page: labels, the model's classes, the share of wrong pixels."""
    if maps is None or info.pixels is None:
        return None
    truth, predicted = maps
    shown = album.add(overlay(image, truth, _counted(truth, classes))), album.add(overlay(image, predicted))
    return {"truth": shown[0], "shown": shown[1], "wrong": round(wrong_pixels(info.pixels), 6)}


def maps_after(
    record: Record, image: Pixels, maps: Any, predicted: Any, classes: int, album: Album
) -> dict[str, Any] | None:
    """The same for an adversarial image, with its misclassified pixels."""
    if maps is None or predicted is None or record.pixels is None:
        return None
    changed = wrong(image, predicted, maps[0], _counted(maps[0], classes))
    shown = album.add(overlay(image, predicted)), album.add(changed)
    return {"shown": shown[0], "changed": shown[1], "wrong": round(wrong_pixels(record.pixels), 6)}


def _counted(truth: Pixels, classes: int) -> Pixels:
    """The pixels that have a label."""
    return (truth >= 0) & (truth < classes)


def _result(record: Record, info: AttackInfo, original: Any, point: Any, album: Album) -> dict[str, Any]:
    eight = {"fooled": record.fooled_8bit, "distance": rounded(record.measured_8bit)}
    found: dict[str, Any] = {name: getattr(record, name) for name in COPIED} | {
        "status": "refuted" if record.refuted else outcome(record, info),
        "distance": rounded(record.verified),
        "top": _top(record.top),
        "measures": [rounded(record.measures.get(name)) for name in MEASURED],
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
