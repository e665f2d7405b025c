"""One image file as numbers in [0, 1]: what each kind of file means is decided here, and what could mean several things
is refused.

docs/add-model-and-data.md lists the decisions; tests/fuzz/test_fuzz_images.py compares each with known values.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import AlmakitError, BadInput, optional
from . import LARGEST_SIDE

MOST_PIXELS = LARGEST_SIDE**2
_GREY = frozenset({"1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "I;16N", "F"})
_DEEP = frozenset({"I", "I;16", "I;16L", "I;16B", "I;16N", "F"})
_ALPHA = frozenset({"LA", "La", "PA", "RGBA", "RGBa"})
_COLOUR = frozenset({"P", "PA", "RGB", "RGBX", "RGBA", "RGBa", "CMYK", "YCbCr"})
_BITS_PER_SAMPLE, _PHOTOMETRIC, _ORIENTATION, _SAMPLE_FORMAT = (
    258,
    262,
    274,
    339,
)  # tags of TIFF; EXIF has the third too
_SIGNED = 2  # of _SAMPLE_FORMAT
# EXIF's orientations as Pillow's transpositions, by name.
_UPRIGHT = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}


@dataclass(frozen=True)
class Reader:
    """Reads image files as float32 (C, H, W) in [0, 1].

    ``channels`` is 1 or 3; None: 1 where the file ``first`` is grey, else 3, and then no colour may be lost. ``size``
    s: the shorter side is resized to 256 s / 224 and the centre s x s is cut out. ``upright``: turned as the EXIF
    orientation says.
    """

    first: Path
    channels: int | None = None
    size: int | None = None
    upright: bool = True

    def __post_init__(self) -> None:
        if self.channels not in (None, 1, 3):
            raise BadInput(f"images are read with 1 or 3 channels, not {self.channels}.")
        _pillow()

    def grey(self) -> bool:
        """Whether the images are read with one channel."""
        if self.channels is not None:
            return self.channels == 1
        with _opened(self.first) as image:
            return image.mode in _GREY

    def __call__(self, path: Path, grey: bool) -> Tensor:
        """The image of a file, with one channel or three."""
        with _opened(path) as image:
            return self.of(path, image, grey)

    def of(self, path: Path | str, image: Any, grey: bool) -> Tensor:
        """The same of a picture that Pillow has opened; ``path`` is what it is called."""
        pillow = _pillow()
        with _explained(path):
            if image.mode not in _GREY | _COLOUR:
                raise BadInput(f"{path} stores its colours as {image.mode}, which is not read; convert it to RGB.")
            if (
                frames := getattr(image, "n_frames", 1)
            ) > 1 and image.format != "MPO":  # a photo with a preview is one picture
                raise BadInput(
                    f"{path} holds {frames} pictures (an animation, or pages); save the one that is meant as a file "
                    "of its own."
                )
            if _SIGNED in getattr(image, "tag_v2", {}).get(_SAMPLE_FORMAT, ()):
                raise BadInput(
                    f"{path} holds signed integers, and no file says what their range means; save it with 8 or 16 "
                    "bits, unsigned."
                )
            image.load()  # a TIFF is turned by this, and its shape known only then
            if image.mode in _DEEP:
                picture = pillow.fromarray(_deep(path, image))
            else:
                picture = self._plain(path, image, grey)
            picture = (
                picture.transpose(turn) if self.upright and (turn := _turn(pillow, image)) is not None else picture
            )
            values = np.array(resized(pillow, path, picture, self.size, pillow.Resampling.BILINEAR))
        tensor = torch.from_numpy(values.reshape(*values.shape[:2], -1)).permute(2, 0, 1)
        tensor = tensor.to(torch.float32).div_(255) if tensor.dtype == torch.uint8 else tensor.clamp(0, 1)
        return tensor.expand(1 if grey else 3, -1, -1).contiguous()

    def _plain(self, path: Path | str, image: Any, grey: bool) -> Any:
        """A picture of 8 bits or fewer in mode L or RGB."""
        with_alpha = image.convert("RGBA") if image.mode in _ALPHA or "transparency" in image.info else None
        if with_alpha is not None and with_alpha.getchannel("A").getextrema()[0] < 255:
            raise BadInput(
                f"{path} is transparent in places, and what lies behind them is not known; put it onto a background "
                "(or save it without alpha)."
            )
        if image.mode in _GREY:
            return image.convert("LA").convert("L") if image.mode == "La" else image.convert("L")
        picture = (image if with_alpha is None else with_alpha).convert("RGB")
        if not grey:
            return picture
        if self.channels is None and not _equal_channels(picture):
            raise BadInput(
                f"{path} is in colour while {self.first} is grey; say how to read them all: channels=3, or channels=1 "
                "for grey."
            )
        return picture.convert("L")


def resized(pillow: Any, path: Path | str, image: Any, size: int | None, how: Any) -> Any:
    """The picture with its shorter side resized to 256 ``size`` / 224 and the centre cut out."""
    if size is None or image.size == (size, size):
        return image
    shorter = round(size * 256 / 224)
    scale = shorter / min(image.size)
    wide, high = max(size, round(image.width * scale)), max(size, round(image.height * scale))
    if wide * high > MOST_PIXELS:
        raise BadInput(
            f"{path} is {image.width} x {image.height} pixels; with its shorter side brought to {shorter} it would be "
            "too large: crop it."
        )
    left, top = (wide - size) // 2, (high - size) // 2
    return image.resize((wide, high), how).crop((left, top, left + size, top + size))


def class_map(path: Path, size: int | None) -> Tensor:
    """The classes (H, W), int64, that a grey or palette picture holds; cut as its image would be, and no class mixed
    with another."""
    pillow = _pillow()
    with _opened(path) as image, _explained(path):
        if image.mode not in ("L", "P", "I", "I;16", "I;16L", "I;16B"):
            raise BadInput(
                f"{path} stores colours ({image.mode}); a label map holds one number for each pixel: save it in grey "
                "or with a palette."
            )
        picture = image.convert("I") if image.mode.startswith("I;") else image
        values = np.array(resized(pillow, path, picture, size, pillow.Resampling.NEAREST))
    return torch.from_numpy(values.astype(np.int64))


def map_of(value: Any, size: int | None = None) -> Tensor:
    """The classes (H, W), int64, of a label map given as a PIL image or an array."""
    if hasattr(value, "convert") and hasattr(value, "mode"):
        value = np.array(resized(_pillow(), "a label map", value, size, _pillow().Resampling.NEAREST))
    return torch.as_tensor(value).to(torch.int64)


def pixels(image: Any, size: int | None) -> Tensor:
    """A PIL image as a file of it would be read, float32 (C, H, W) in [0, 1], but turned as it is: who opened it has
    turned it."""
    grey = image.mode in _GREY
    return Reader(Path(), 1 if grey else 3, size, upright=False).of("a PIL image", image, grey)


def _deep(path: Path | str, image: Any) -> np.ndarray[Any, Any]:
    """Float32 (H, W) in [0, 1] from a grey picture of more than 8 bits, by the range its file gives it."""
    values = np.asarray(image).astype(np.float64)
    tags = getattr(image, "tag_v2", {})
    if image.mode == "F":
        low, high = float(values.min()), float(values.max())
        if not (low >= 0 and high <= 1) or tags.get(_PHOTOMETRIC) == 0:
            raise BadInput(
                f"{path} holds floats from {low:.4g} to {high:.4g}, and no file says what their range means; save it "
                "with floats in [0, 1]."
            )
        return values.astype(np.float32)
    if image.mode == "I" and image.format not in ("PNG", "PPM"):  # those two hold 16 bits at most
        raise BadInput(
            f"{path} holds 32-bit integers, and no file says what their range means; save it with 8 or 16 bits."
        )
    if "transparency" in image.info and bool((values == image.info["transparency"]).any()):
        raise BadInput(
            f"{path} is transparent in places, and what lies behind them is not known; put it onto a background (or "
            "save it without alpha)."
        )
    bits = int(tags.get(_BITS_PER_SAMPLE, (16,))[0])
    values = values / (2**bits - 1)
    shown: np.ndarray[Any, Any] = (1 - values if tags.get(_PHOTOMETRIC) == 0 else values).astype(np.float32)
    return shown


def _turn(pillow: Any, image: Any) -> Any:
    """The transposition that brings a picture upright; None where there is none, or no EXIF data that can be read."""
    with suppress(Exception):  # a photo with broken EXIF data is a photo
        name = _UPRIGHT.get(image.getexif().get(_ORIENTATION))
        return None if name is None else pillow.Transpose[name]
    return None


def _equal_channels(picture: Any) -> bool:
    red, green, blue = (np.asarray(channel) for channel in picture.split())
    return bool((red == green).all() and (green == blue).all())


def _pillow() -> Any:
    return optional("PIL.Image", "reading image files needs Pillow: pip install 'almakit[vision]'.")


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The file as Pillow opens it, its size checked before a pixel is decoded."""
    # From a stream, not by name: Pillow maps a named file into memory and then garbles a TIFF that is stored turned.
    with _explained(path), path.open("rb") as stream, _pillow().open(stream) as image:
        if image.width * image.height > MOST_PIXELS:
            raise BadInput(
                f"{path} is {image.width} x {image.height} pixels, more than the {MOST_PIXELS} that are read; make it "
                "smaller."
            )
        yield image


@contextmanager
def _explained(path: Path | str) -> Iterator[None]:
    """Turns every error of a decoder on a broken or hostile file into ``BadInput``."""
    try:
        yield
    except AlmakitError:
        raise
    except Exception as error:
        raise BadInput(f"{path} cannot be read as an image ({type(error).__name__}: {error}).") from error
