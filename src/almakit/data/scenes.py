"""Scenes for segmentation: MNIST digits on textured canvases with a class for every pixel, drawn by a seeded generator, image by image.

Test scenes are made of the 256 test digits inside the package, so no file is needed; training scenes of MNIST's training digits. Every number
is drawn by Python's own generator, whose stream is the same everywhere, and every value is rounded to 8 bits.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from ..errors import BadInput
from .arrays import DIGITS, demo, digits
from .dataset import IGNORED, Dataset

SIDE = 32
COUNTS = {"test": 1024, "train": 12_000}
CLASSES = ("background", *DIGITS)
SMALLEST, LARGEST = 14, 20
"""Sides of a digit in a scene, in pixels."""
INSIDE, OUTSIDE = 0.5, 0.2
"""A pixel belongs to a digit where more than ``INSIDE`` of it is covered; between the two it is a border, which counts for neither side."""
DARK, LIGHT, CONTRAST = (0.0, 0.55), (0.45, 1.0), 0.35
"""The colours of canvases and of digits lie in these ranges, a digit's so much above both colours of its canvas in the mean over the channels."""

Colour = tuple[float, float, float]


def scenes(split: str, size: int | None) -> Dataset:
    """1 024 test or 12 000 training scenes, 3 x 32 x 32, with maps of the classes background and 0 to 9 (numbered 0 to 10), 255 at borders."""
    if size not in (None, SIDE):
        raise BadInput(f"size={size}: scenes are drawn with a side of {SIDE}; leave size out.")

    def read(indices: Sequence[int]) -> Tensor:
        return torch.stack([scene(split, index)[0] for index in indices]) if len(indices) else torch.empty(0)

    def maps(indices: Sequence[int]) -> Tensor:
        return torch.stack([scene(split, index)[1] for index in indices]) if len(indices) else torch.empty(0, dtype=torch.int64)

    count = COUNTS[split]
    return Dataset("scenes", tuple(map(str, range(count))), torch.zeros(count, dtype=torch.int64), read, None, CLASSES, maps=maps)


def scene(split: str, index: int) -> tuple[Tensor, Tensor]:
    """One scene: the image (3, 32, 32) in [0, 1] and its classes (32, 32)."""
    images, labels = _stamps(split)
    draw = random.Random(f"almakit scenes {split} {index}")
    first, second = _colour(draw, DARK), _colour(draw, DARK)
    image = _canvas(draw, first, second)
    classes = torch.zeros(SIDE, SIDE, dtype=torch.int64)
    for _ in range(draw.randint(2, 4)):
        chosen, side = draw.randrange(len(labels)), draw.randint(SMALLEST, LARGEST)
        colour = torch.tensor(_apart(draw, first, second)).reshape(3, 1, 1)
        cover = interpolate(images[chosen][None, None], size=(side, side), mode="bilinear", antialias=True)[0, 0].clamp(0, 1)
        here = _place(draw, cover > OUTSIDE, classes)
        if here is not None:
            image[:, here[0], here[1]] += cover * (colour - image[:, here[0], here[1]])
            classes[here] = torch.where(cover > INSIDE, labels[chosen] + 1, torch.where(cover > OUTSIDE, IGNORED, classes[here]))
    grain = draw.uniform(0.01, 0.05)
    noise = torch.frombuffer(bytearray(draw.randbytes(image.numel())), dtype=torch.uint8).reshape(image.shape)
    image += grain * (noise.to(torch.float32) / 127.5 - 1)
    return (image.clamp(0, 1) * 255).round() / 255, classes


@cache
def _stamps(split: str) -> tuple[Tensor, Tensor]:
    """The digits (N, 28, 28) in [0, 1] that scenes are made of, and their labels (N,)."""
    images, labels = (demo(None) if split == "test" else digits("mnist", "train", None)).tensors()
    return images[:, 0], labels


def _place(draw: random.Random, covered: Tensor, classes: Tensor) -> tuple[slice, slice] | None:
    """Where a digit that covers pixels (S, S) touches no other: the first such of 20 places drawn; None: it is left out."""
    side = len(covered)
    for _ in range(20):
        top, left = draw.randint(0, SIDE - side), draw.randint(0, SIDE - side)
        here = (slice(top, top + side), slice(left, left + side))
        if not bool((classes[here] * covered).any()):
            return here
    return None


def _colour(draw: random.Random, within: tuple[float, float]) -> Colour:
    return draw.uniform(*within), draw.uniform(*within), draw.uniform(*within)


def _apart(draw: random.Random, *others: Colour) -> Colour:
    """A light colour that can be told from the others, as far as a hundred draws find one."""
    for _ in range(100):
        found = _colour(draw, LIGHT)
        if all(sum(found) - sum(other) >= 3 * CONTRAST for other in others):
            break
    return found


def _canvas(draw: random.Random, first: Colour, second: Colour) -> Tensor:
    """A canvas (3, 32, 32) that goes from one colour to the other and back along the sum of three waves."""
    places = torch.arange(SIDE, dtype=torch.float64)
    waves = torch.zeros(SIDE, SIDE, dtype=torch.float64)
    for _ in range(3):
        angle, length, phase = draw.uniform(0, math.pi), draw.uniform(5, 40), draw.uniform(0, 2 * math.pi)
        along = math.cos(angle) * places[:, None] + math.sin(angle) * places[None, :]
        waves += torch.sin(2 * math.pi * along / length + phase)
    mix = (0.5 + waves / 6)[None]
    a, b = (torch.tensor(colour, dtype=torch.float64).reshape(3, 1, 1) for colour in (first, second))
    return (a + mix * (b - a)).to(torch.float32)
