"""Reads one image file as numbers in [0, 1]. Files that allow several interpretations are refused.

docs/add-model-and-data.md lists the decisions; tests/fuzz/test_fuzz_images.py compares each with known values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import AlmakitError, BadInput, optional
from . import LARGEST_SIDE

MOST_PIXELS = LARGEST_SIDE**2
_DEEP = frozenset({"I", "I;16", "I;16L", "I;16B", "I;16N"})
_GREY = _DEEP | {"1", "L", "LA"}
_ALPHA = frozenset({"LA", "PA", "RGBA"})
_COLOUR = frozenset({"P", "PA", "RGB", "RGBX", "RGBA", "CMYK", "YCbCr"})
# Tags of TIFF with the values of ordinary files: 16 bits, black is zero, unsigned integers.
_PLAIN_TAGS = {258: (16,), 262: 1, 339: (1,)}
_TRANSPARENT = (
    "{} is transparent in places, and what lies behind them is not known; put it onto a background (or save it without "
    "alpha)."
)


def reader(first: Path, channels: int | None, size: int | None, upright: bool = True) -> Callable[[Path], Tensor]:
    """A function that reads an image file as float32 (C, H, W) in [0, 1].

    Args:
        first: the first file of the data set.
        channels: 1 or 3; None: 1 if ``first`` is grey, else 3, and then no colour may be lost.
        size: the shorter side is resized to 256 size / 224 and the centre size x size is cut out.
        upright: turn images as their EXIF orientation says.
    """
    if channels not in (None, 1, 3):
        raise BadInput(f"images are read with 1 or 3 channels, not {channels}.")
    grey, reference = channels == 1, None
    if channels is None:
        with _opened(first) as image:
            grey, reference = image.mode in _GREY, first

    def read(path: Path) -> Tensor:
        with _opened(path) as image:
            return _values(path, image, grey, size, upright, reference)

    return read


def pixels(image: Any, size: int | None) -> Tensor:
    """A PIL image as float32 (C, H, W) in [0, 1], read like its file but without EXIF rotation, which is the caller's
    task."""
    with _explained("a PIL image"):
        return _values("a PIL image", image, image.mode in _GREY, size, False, None)


def _values(
    path: Path | str, image: Any, grey: bool, size: int | None, upright: bool, reference: Path | None
) -> Tensor:
    """The numbers of an opened image; with a grey ``reference`` an image in colour is refused."""
    tags = getattr(image, "tag_v2", {})
    deep = image.mode in _DEEP
    # PNG and PPM hold 16 bits at most, also where Pillow opens them with 32.
    strange = image.mode == "I" and image.format not in ("PNG", "PPM")
    strange |= deep and any(tags.get(tag, plain) != plain for tag, plain in _PLAIN_TAGS.items())
    if strange or image.mode not in _GREY | _COLOUR:
        raise BadInput(
            f"{path} stores its pixels in a form ({image.mode}) whose range or colours are not certain; save it with "
            "8 bits, or in grey with 16 bits, unsigned."
        )
    frames = getattr(image, "n_frames", 1)
    if frames > 1 and image.format != "MPO":  # a photo with a preview is one picture
        raise BadInput(
            f"{path} holds {frames} pictures (an animation, or pages); save the one you need as its own file."
        )
    image.load()  # this rotates a TIFF; its shape is known only afterwards
    pillow = _pillow()
    with suppress(Exception):  # ignore broken EXIF data
        image = import_module("PIL.ImageOps").exif_transpose(image) if upright else image
    picture = pillow.fromarray(_deep(path, image)) if deep else _plain(path, image, grey, reference)
    values = np.array(_resized(path, picture, size, pillow.Resampling.BILINEAR))
    tensor = torch.from_numpy(values.reshape(*values.shape[:2], -1)).permute(2, 0, 1)
    tensor = tensor.to(torch.float32).div_(255) if tensor.dtype == torch.uint8 else tensor.clamp(0, 1)
    return tensor.expand(1 if grey else 3, -1, -1).contiguous()


def _plain(path: Path | str, image: Any, grey: bool, reference: Path | None) -> Any:
    """A picture of 8 bits or fewer in mode L or RGB."""
    with_alpha = image.convert("RGBA") if image.mode in _ALPHA or "transparency" in image.info else None
    if with_alpha is not None and with_alpha.getchannel("A").getextrema()[0] < 255:
        raise BadInput(_TRANSPARENT.format(path))
    if image.mode in _GREY:
        return image.convert("L")
    picture = (image if with_alpha is None else with_alpha).convert("RGB")
    if not grey:
        return picture
    red, green, blue = np.moveaxis(np.asarray(picture), 2, 0)
    if reference is not None and not ((red == green).all() and (green == blue).all()):
        raise BadInput(
            f"{path} is in colour while {reference} is grey; say how to read them all: channels=3, or channels=1 for "
            "grey."
        )
    return picture.convert("L")


def _deep(path: Path | str, image: Any) -> np.ndarray[Any, Any]:
    """A grey picture of 16 bits as float32 (H, W) in [0, 1]."""
    values = np.asarray(image).astype(np.float64)
    if "transparency" in image.info and bool((values == image.info["transparency"]).any()):
        raise BadInput(_TRANSPARENT.format(path))
    return (values / 65535).astype(np.float32)


def class_map(path: Path, size: int | None) -> Tensor:
    """The classes (H, W), int64, that a grey or palette picture holds; cut as its image would be, and no class mixed
    with another."""
    with _opened(path) as image:
        if image.mode not in ("L", "P", "I", "I;16", "I;16L", "I;16B"):
            raise BadInput(
                f"{path} stores colours ({image.mode}); a label map holds one number for each pixel: save it in grey "
                "or with a palette."
            )
        return map_of(image.convert("I") if image.mode.startswith("I;") else image, size, path)


def map_of(value: Any, size: int | None, path: Path | str = "a label map") -> Tensor:
    """The classes (H, W), int64, of a label map given as a PIL image or an array."""
    picture = np.array(_resized(path, value, size, _pillow().Resampling.NEAREST)) if is_picture(value) else value
    return torch.as_tensor(picture).to(torch.int64)


def stacked(name: str, images: list[Tensor]) -> Tensor:
    """The images (B, ...) of a data set, which must have one shape."""
    shapes = sorted({tuple(image.shape) for image in images})
    if len(shapes) > 1:
        listed = ", ".join(map(str, shapes[:3]))
        raise BadInput(f"the images of {name} have different sizes, such as {listed}; give a size, e.g. size=224.")
    return torch.stack(images)


def is_picture(value: object) -> bool:
    """Whether a value is a PIL image."""
    return hasattr(value, "convert") and hasattr(value, "mode")


def _resized(path: Path | str, image: Any, size: int | None, how: Any) -> Any:
    """The picture with its shorter side resized to 256 ``size`` / 224 and the centre cut out."""
    if size is None or image.size == (size, size):
        return image
    shorter = round(size * 256 / 224)
    scale = shorter / min(image.size)
    wide, high = max(size, round(image.width * scale)), max(size, round(image.height * scale))
    if wide * high > MOST_PIXELS:
        was = f"{image.width} x {image.height} pixels"
        raise BadInput(f"{path} is {was}; with its shorter side brought to {shorter} it would be too large: crop it.")
    left, top = (wide - size) // 2, (high - size) // 2
    return image.resize((wide, high), how).crop((left, top, left + size, top + size))


def _pillow() -> Any:
    return optional("PIL.Image", "reading image files needs Pillow: pip install 'almakit[vision]'.")


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The file as Pillow opens it, its size checked before a pixel is decoded."""
    # Opened from a stream, because Pillow memory-maps a named file and then reads rotated TIFF files incorrectly.
    with _explained(path), path.open("rb") as stream, _pillow().open(stream) as image:
        if image.width * image.height > MOST_PIXELS:
            size = f"{image.width} x {image.height} pixels"
            raise BadInput(f"{path} is {size}, more than the {MOST_PIXELS} that are read; make it smaller.")
        yield image


@contextmanager
def _explained(path: Path | str) -> Iterator[None]:
    """Replace every error of a decoder for a broken or hostile file by ``BadInput``."""
    try:
        yield
    except AlmakitError:
        raise
    except Exception as error:
        raise BadInput(f"{path} cannot be read as an image ({type(error).__name__}: {error}).") from error
