"""From sRGB to CIELAB, and the exact *difference* of two CIELAB images, free of cancellation.

An attack compares colours that differ by 0.01 on scales up to 100; subtracting two rounded float32 colours would lose
three to four digits. Therefore the pixel difference is propagated through every step, and each step keeps small
differences exact. One deviation: the published sRGB function jumps by 2e-9 at 0.04045; here a difference across this
value is continuous.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_LINEAR_BELOW = 0.04045  # sRGB is linear below this value, a power of 2.4 above it
_LINEAR_SLOPE = 1 / 12.92
_CUBE = (6 / 29) ** 3  # CIELAB's f is linear below this value, a cube root above it
_CUBE_SLOPE = 1 / (3 * (6 / 29) ** 2)


class ColorSpace(NamedTuple):
    """The ``matrix`` from linear RGB to XYZ (rows X Y Z), and the ``white`` point by which XYZ is divided."""

    matrix: tuple[tuple[float, float, float], ...]
    white: tuple[float, float, float]

    def scaled(self, like: Tensor) -> Tensor:
        """XYZ over white from linear RGB: (3, 3), in the dtype and on the device of ``like``."""
        matrix = torch.tensor(self.matrix, dtype=torch.float64) / torch.tensor(self.white, dtype=torch.float64)[:, None]
        return matrix.to(like)


# The constants of scikit-image (IEC 61966-2-1 primaries, D65 for the 2 degree observer), so that both agree to the last
# digit.
SRGB_D65 = ColorSpace(
    matrix=((0.412453, 0.357580, 0.180423), (0.212671, 0.715160, 0.072169), (0.019334, 0.119193, 0.950227)),
    white=(0.95047, 1.0, 1.08883),
)
# The paper's appendix: XYZ lies in [0, 1], its white point in [0, 100].
SRGB_PAPER = ColorSpace(
    matrix=((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750), (0.0193339, 0.1191920, 0.9503041)),
    white=(95.0489, 100.0, 108.8840),
)


def _above(step: Tensor, below: Tensor, above: Tensor) -> Tensor:
    """max(v + step, t) - max(v, t), exact: ``below`` is min(v - t, 0) and ``above`` is max(v - t, 0)."""
    return torch.maximum(step + below, -above)


class LabReference:
    """Images ``x`` (B, 3, H, W) in [0, 1] with precomputed values for CIELAB differences to other images."""

    def __init__(self, x: Tensor, space: ColorSpace):
        self.x, self.space = x, space
        self.matrix = space.scaled(x)
        offset = x - _LINEAR_BELOW
        self.rgb_below, self.rgb_above = offset.clamp(max=0), offset.clamp(min=0)
        base = x.clamp(min=_LINEAR_BELOW) + 0.055
        self.base = base
        self.power = (base / 1.055).pow(2.4)
        linear = torch.where(offset > 0, self.power, x * _LINEAR_SLOPE)
        ratio = self._mix(self.matrix, linear)
        offset = ratio - _CUBE
        self.ratio = ratio
        self.ratio_below, self.ratio_above = offset.clamp(max=0), offset.clamp(min=0)
        self.root = ratio.clamp(min=_CUBE).pow(1 / 3)
        f = torch.where(offset > 0, self.root, ratio * _CUBE_SLOPE + 4 / 29)
        fx, fy, fz = f.unbind(1)
        self.lightness, self.a, self.b = 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)

    @staticmethod
    def _mix(matrix: Tensor, image: Tensor) -> Tensor:
        """(3, 3) times the channels of (B, 3, H, W)."""
        return (matrix @ image.flatten(2)).reshape(image.shape)

    def difference(self, y: Tensor) -> LabDifference:
        """L*, a* and b* of ``y`` (B, 3, H, W) minus those of ``x``."""
        step = y - self.x
        high = _above(step, self.rgb_below, self.rgb_above)
        # (v + d)**2.4 - v**2.4 = v**2.4 ((1 + d/v)**2.4 - 1)
        power_step = self.power * torch.expm1(2.4 * torch.log1p(high / self.base))
        ratio_step = self._mix(self.matrix, (step - high) * _LINEAR_SLOPE + power_step)
        root = torch.exp(torch.log((self.ratio + ratio_step).clamp(min=_CUBE)) / 3)
        high_ratio = _above(ratio_step, self.ratio_below, self.ratio_above)
        # u**(1/3) - v**(1/3) = (u - v) / (u**(2/3) + (u v)**(1/3) + v**(2/3))
        f = (ratio_step - high_ratio) * _CUBE_SLOPE + high_ratio / (self.root.square() + root * (self.root + root))
        fx, fy, fz = f.unbind(1)
        return LabDifference(116 * fy, 500 * (fx - fy), 200 * (fy - fz), high, power_step, root)

    def pull_back(self, y: Tensor, change: LabDifference, lightness: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """The gradient in ``y`` (B, 3, H, W) of a function whose gradient in L*, a*, b* of ``y`` is given, each (B, H,
        W)."""
        gradient = torch.stack((500 * a, 116 * lightness - 500 * a + 200 * b, -200 * b), 1)
        gradient = self._mix(self.matrix.mT, gradient / (3 * change.root.square()))
        is_power = (y > _LINEAR_BELOW).to(y.dtype)
        slope = 2.4 * (self.power + change.power_step) / (self.base + change.high)
        return gradient * (_LINEAR_SLOPE + is_power * (slope - _LINEAR_SLOPE))

    def take(self, rows: Tensor) -> LabReference:
        """The same for ``x[rows]``, sliced without recomputation."""
        taken = object.__new__(LabReference)
        for name, value in vars(self).items():
            setattr(taken, name, value[rows] if isinstance(value, Tensor) and name != "matrix" else value)
        return taken


class LabDifference(NamedTuple):
    """CIELAB differences, (B, H, W) each, and values for their gradient, (B, 3, H, W) each."""

    lightness: Tensor
    a: Tensor
    b: Tensor
    high: Tensor
    power_step: Tensor
    root: Tensor
