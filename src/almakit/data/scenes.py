"""Scenes for segmentation: MNIST digits on canvases of two textures, with a class for every pixel, drawn by a seeded
generator, image by image.

Test scenes are made of the 256 test digits inside the package, so no file is needed; training scenes of MNIST's
training digits. Every number is drawn by Python's own generator, whose stream is the same everywhere, and every value
is rounded to 8 bits.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cache, lru_cache

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from ..errors import BadInput
from .dataset import IGNORED, Dataset
from .named import DIGITS, demo, digits

SIDE = 32
COUNTS = {"test": 1024, "train": 12_000}
TEXTURES = ("smooth", "stripes", "checks")
CLASSES = (*TEXTURES, *DIGITS)
SMALLEST, LARGEST = 14, 20
"""Sides of a digit in a scene, in pixels."""
INSIDE, OUTSIDE = 0.5, 0.2
"""A pixel belongs to a digit where more than ``INSIDE`` of it is covered; between the two it is a border, which counts
for neither side."""
DARK, LIGHT, CONTRAST = (0.1, 0.5), (0.5, 1.0), 0.35
"""The colours of canvases and of digits lie in these ranges, a digit's so much above its canvas's mean in the mean over
the channels."""
STRENGTH = (0.08, 0.16)
"""How far the waves of a texture go up and down."""

Colour = tuple[float, float, float]


def scenes(split: str, size: int | None) -> Dataset:
    """1 024 test or 12 000 training scenes, 3 x 32 x 32, with maps of 13 classes: three textures and the digits; 255 at
    the digits' borders."""
    if size not in (None, SIDE):
        raise BadInput(f"size={size}: scenes are drawn with a side of {SIDE}; leave size out.")

    def read(indices: Sequence[int]) -> Tensor:
        return torch.stack([scene(split, index)[0] for index in indices]).to(torch.float32) / 255

    def maps(indices: Sequence[int]) -> Tensor:
        return torch.stack([scene(split, index)[1] for index in indices]).to(torch.int64)

    ids = tuple(map(str, range(COUNTS[split])))
    labels = torch.zeros(COUNTS[split], dtype=torch.int64)
    return Dataset("scenes", ids, labels, read, None, CLASSES, maps=maps)


@lru_cache(maxsize=COUNTS["train"])
def scene(split: str, index: int) -> tuple[Tensor, Tensor]:
    """One scene, as bytes: the image (3, 32, 32) and its classes (32, 32)."""
    images, labels = _stamps(split)
    draw = random.Random(f"almakit scenes {split} {index}")
    image, classes = _canvas(draw)
    brightest = float(image.mean((1, 2)).sum())
    touched = torch.zeros(SIDE, SIDE, dtype=torch.bool)
    for _ in range(draw.randint(2, 4)):
        chosen, side = draw.randrange(len(labels)), draw.randint(SMALLEST, LARGEST)
        colour = torch.tensor(_lighter(draw, brightest)).reshape(3, 1, 1)
        resized = interpolate(images[chosen][None, None], size=(side, side), mode="bilinear", antialias=True)
        cover = resized[0, 0].clamp(0, 1)
        here = _place(draw, cover > OUTSIDE, touched)
        if here is not None:
            image[:, here[0], here[1]] += cover * (colour - image[:, here[0], here[1]])
            border = torch.where(cover > OUTSIDE, IGNORED, classes[here])
            classes[here] = torch.where(cover > INSIDE, labels[chosen] + len(TEXTURES), border)
            touched[here] |= cover > OUTSIDE
    grain = draw.uniform(0.01, 0.05)
    noise = torch.frombuffer(bytearray(draw.randbytes(image.numel())), dtype=torch.uint8).reshape(image.shape)
    image += grain * (noise.to(torch.float32) / 127.5 - 1)
    return (image.clamp(0, 1) * 255).round().to(torch.uint8), classes.to(torch.uint8)


@cache
def _stamps(split: str) -> tuple[Tensor, Tensor]:
    """The digits (N, 28, 28) in [0, 1] that scenes are made of, and their labels (N,)."""
    images, labels = (demo(None) if split == "test" else digits("mnist", "train", None)).tensors()
    return images[:, 0], labels


def _place(draw: random.Random, covered: Tensor, touched: Tensor) -> tuple[slice, slice] | None:
    """A position where a digit that covers pixels (S, S) does not meet ``touched`` pixels (32, 32): the first of up to
    20 random positions; None if there is none."""
    side = len(covered)
    for _ in range(20):
        top, left = draw.randint(0, SIDE - side), draw.randint(0, SIDE - side)
        here = (slice(top, top + side), slice(left, left + side))
        if not bool((touched[here] & covered).any()):
            return here
    return None


def _colour(draw: random.Random, within: tuple[float, float]) -> Colour:
    return draw.uniform(*within), draw.uniform(*within), draw.uniform(*within)


def _lighter(draw: random.Random, than: float) -> Colour:
    """A light colour whose channels sum to more than the canvas's mean by three times the contrast, as far as a hundred
    draws find one."""
    for _ in range(100):
        found = _colour(draw, LIGHT)
        if sum(found) - than >= 3 * CONTRAST:
            break
    return found


def _canvas(draw: random.Random) -> tuple[Tensor, Tensor]:
    """A canvas (3, 32, 32) that a straight line cuts into two parts of different textures and colours, and their
    classes (32, 32)."""
    angle, offset = draw.uniform(0, 2 * math.pi), draw.uniform(-0.25, 0.25) * SIDE
    beyond = _along(angle) > offset
    image, classes = torch.zeros(3, SIDE, SIDE, dtype=torch.float64), torch.zeros(SIDE, SIDE, dtype=torch.int64)
    for part, kind in ((beyond, (kinds := draw.sample(range(len(TEXTURES)), 2))[0]), (~beyond, kinds[1])):
        colour, other = (torch.tensor(_colour(draw, DARK), dtype=torch.float64).reshape(3, 1, 1) for _ in range(2))
        painted = colour + _texture(draw, kind) * (draw.uniform(*STRENGTH) + 0.1 * (other - colour))
        image, classes = torch.where(part, painted, image), torch.where(part, kind, classes)
    return image.to(torch.float32), classes


def _texture(draw: random.Random, kind: int) -> Tensor:
    """Waves (32, 32) from -1 to 1: one long one, one short one, or the product of two short ones across each other."""
    angle = draw.uniform(0, math.pi)
    wave = _wave(draw, angle, ((24, 60), (4, 7), (5, 8))[kind])
    return wave * _wave(draw, angle + math.pi / 2, (5, 8)) if TEXTURES[kind] == "checks" else wave


def _wave(draw: random.Random, angle: float, lengths: tuple[float, float]) -> Tensor:
    return torch.sin(2 * math.pi * _along(angle) / draw.uniform(*lengths) + draw.uniform(0, 2 * math.pi))


def _along(angle: float) -> Tensor:
    """(32, 32) how far a pixel lies from the middle in the direction of the angle."""
    places = torch.arange(SIDE, dtype=torch.float64) - (SIDE - 1) / 2
    return math.cos(angle) * places[:, None] + math.sin(angle) * places[None, :]
