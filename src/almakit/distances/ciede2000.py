"""CIEDE2000 between images: the l2 norm over pixels of the CIEDE2000 colour difference."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..errors import BadInput
from .base import Bound, Distance
from .delta_e import ColorPair, delta_e00, safe_sqrt
from .lab import SRGB_D65, SRGB_PAPER, ColorSpace, LabReference

__all__ = ["CIEDE2000", "CIEDE2000Paper", "delta_e00"]


class _CIEDE2000Bound(Bound):
    distance: CIEDE2000

    def __init__(self, distance: CIEDE2000, x: Tensor, reference: LabReference | None = None):
        super().__init__(distance, x)
        self.reference = LabReference(x, distance.space) if reference is None else reference

    def __call__(self, y: Tensor) -> Tensor:
        reference, change = self.reference, self.reference.difference(y)
        pair = ColorPair(reference.lightness, reference.a, reference.b, change.lightness, change.a, change.b)
        return safe_sqrt(pair.squared.flatten(1).sum(1))

    @torch.no_grad()
    def value_and_grad(self, y: Tensor) -> tuple[Tensor, Tensor]:
        reference, change = self.reference, self.reference.difference(y)
        pair = ColorPair(reference.lightness, reference.a, reference.b, change.lightness, change.a, change.b)
        value = pair.squared.flatten(1).sum(1).sqrt()
        gradient = reference.pull_back(y, change, *pair.gradient())
        # d sqrt(s) = ds / (2 sqrt(s)); where all is equal the gradient of s is zero, and stays zero
        return value, gradient / (2 * value.masked_fill(value == 0, 1))[:, None, None, None]

    def take(self, rows: Tensor) -> Bound:
        return _CIEDE2000Bound(self.distance, self.x[rows], self.reference.take(rows))


class CIEDE2000(Distance):
    """The l2 norm over pixels of the CIEDE2000 colour difference between sRGB images, D65 white.

    D(x, y) = sqrt(sum over pixels of dE00(Lab(x), Lab(y))^2); sRGB is linearised first. Colour difference: Sharma, Wu,
    Dalal 2005; image value: Zhao, Liu, Larson 2020. Equal to scikit-image's ``rgb2lab`` and ``deltaE_ciede2000``. The
    ALMA paper's own numbers use another scaling of XYZ: ``ciede2000-paper``. dE00 itself jumps where two hues are
    opposite; the gradient is that of one side. Where x is a saturated blue and y turns grey, dE00 has a root of y's
    chroma and so a steep gradient; it stays finite.
    """

    name, degree, about = "ciede2000", 1, "l2 norm over pixels of the CIEDE2000 colour difference (sRGB, D65)"
    # Ten times the published 0.05, which belongs to the paper's formula: its lightness goes to 9 instead of 100.
    first_step = {"paper": 0.5, "scripts": 0.5}
    space: ClassVar[ColorSpace] = SRGB_D65

    def check(self, x: Tensor) -> None:
        if x.ndim != 4 or x.shape[1] != 3:
            raise BadInput(
                f"{self.name} compares colours: it needs RGB images of shape (B, 3, H, W), not {tuple(x.shape)}."
            )
        if x.dtype == torch.float16:
            raise BadInput(f"{self.name} leaves the range of float16; convert the images with .float() first.")

    def bind(self, x: Tensor) -> Bound:
        self.check(x)
        return _CIEDE2000Bound(self, x)


class CIEDE2000Paper(CIEDE2000):
    """CIEDE2000 as in the ALMA paper's tables: XYZ in [0, 1] divided by a white point in [0, 100].

    White has L* = 8.99 instead of 100, and changes of dark pixels count far too little. Use it to compare with the
    paper's tables and ``ciede2000`` for everything else (Rony et al. 2021, appendix "CIEDE2000"). sRGB is linearised,
    as in the paper's runs but not in its appendix.
    """

    name, about = "ciede2000-paper", "CIEDE2000 with the ALMA paper's scaling of XYZ, for its tables"
    first_step = {"paper": 0.05, "scripts": 0.05}
    space = SRGB_PAPER
