"""Pictures of segmentations: classes laid over the image, and where they differ. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..runs.store.records import ImageInfo, Record, wrong_pixels
from .pictures import Album, Bytes, eight_bit
from .subjects import Column, Subject

Array = NDArray[Any]
COLOURS = np.array(
    [
        [27, 28, 32],
        [0, 105, 208],
        [202, 124, 0],
        [27, 150, 90],
        [192, 58, 12],
        [176, 74, 165],
        [0, 180, 200],
        [232, 203, 44],
        [122, 82, 48],
        [143, 195, 31],
        [240, 143, 176],
        [106, 90, 200],
        [242, 242, 238],
    ],
    dtype=np.float64,
)
"""One colour for each class, from the first again where there are more."""
STRENGTH = 0.65
WRONG = np.array([0xB8, 0x33, 0x0A], dtype=np.float64)


def overlay(image: Array, classes: Array, counted: Array | None = None) -> Bytes:
    """(H, W, 3) bytes: the image (C, H, W) in grey with the colours of its ``classes`` (H, W) over it; pixels not
    ``counted`` stay grey."""
    grey = _grey(image)
    mixed = (1 - STRENGTH) * grey + STRENGTH * COLOURS[np.maximum(classes, 0) % len(COLOURS)]
    keep = classes >= 0 if counted is None else (classes >= 0) & counted
    return np.rint(np.where(keep[..., None], mixed, grey)).astype(np.uint8)


def wrong(image: Array, predicted: Array, truth: Array, counted: Array) -> Bytes:
    """(H, W, 3) bytes: the image in grey, red where a counted pixel has another class than its own."""
    grey = _grey(image)
    return np.rint(
        np.where((counted & (predicted != truth))[..., None], (1 - STRENGTH) * grey + STRENGTH * WRONG, grey)
    ).astype(np.uint8)


def _grey(image: Array) -> Array:
    pixels = eight_bit(image).astype(np.float64)
    return np.repeat((pixels.mean(2) if pixels.ndim == 3 else pixels)[..., None], 3, axis=2)


def of_images(subject: Subject, places: Sequence[int]) -> dict[int, tuple[Array, Array]]:
    """Image index -> its label map and the model's classes for it (H, W); nothing where images have one class."""
    indices = [subject.images[place].index for place in places if subject.images[place].pixels is not None]
    run = subject.runs[0]
    return (
        dict(zip(indices, zip(run.maps(indices), run.maps(indices, "predictions"), strict=True), strict=True))
        if indices
        else {}
    )


def of_column(column: Column, indices: Sequence[int]) -> dict[int, Array]:
    """Image index -> the model's classes (H, W) for the adversarial image the column stored."""
    rows = [column.rows[index] for index in indices if index in column.rows]
    records = [record for record in rows if record.slot is not None and record.pixels is not None]
    return (
        dict(zip((record.image for record in records), column.run.adversarial_maps(records), strict=True))
        if records
        else {}
    )


def before(
    info: ImageInfo, image: Array, maps: tuple[Array, Array] | None, classes: int, album: Album
) -> dict[str, Any] | None:
    """What the page shows of a clean image's pixels: the labels, the model's classes, the share that is wrong."""
    if maps is None or info.pixels is None:
        return None
    truth, predicted = maps
    counted = _counted(truth, classes)
    return {
        "truth": album.add(overlay(image, truth, counted)),
        "shown": album.add(overlay(image, predicted)),
        "wrong": round(wrong_pixels(info.pixels), 6),
    }


def after(
    record: Record, image: Array, maps: tuple[Array, Array] | None, predicted: Array | None, classes: int, album: Album
) -> dict[str, Any] | None:
    """The same of an adversarial image, and where its classes are wrong."""
    if maps is None or predicted is None or record.pixels is None:
        return None
    counted = _counted(maps[0], classes)
    return {
        "shown": album.add(overlay(image, predicted)),
        "changed": album.add(wrong(image, predicted, maps[0], counted)),
        "wrong": round(wrong_pixels(record.pixels), 6),
    }


def _counted(truth: Array, classes: int) -> Array:
    return (truth >= 0) & (truth < classes)
