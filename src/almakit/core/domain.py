"""Where candidates may live: a box, optionally on the grid of a bit depth, optionally only at some pixels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real

import torch
from torch import Tensor

from ..errors import BadInput


@dataclass(frozen=True, eq=False)
class Box:
    """Images between ``lo`` and ``hi``; with ``bits`` on the grid of 2**bits levels; changes only where ``mask`` is
    true.

    ``mask`` is boolean, of one image's shape or of the batch's (B, ...). Every candidate is brought into the box
    *before* the model sees it, so with ``bits=8`` what is found survives being stored as an 8-bit image.
    """

    lo: float = 0.0
    hi: float = 1.0
    bits: int | None = None
    mask: Tensor | None = None

    def __post_init__(self) -> None:
        for name, value in (("lo", self.lo), ("hi", self.hi)):
            if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
                shown = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
                raise BadInput(
                    f"the box's {name} is one finite number for all pixels, not {shown}; for bounds that differ scale "
                    "the images, or use a mask."
                )
        if not self.lo < self.hi:
            raise BadInput(f"the box needs lo < hi, not lo={self.lo} and hi={self.hi}.")
        if self.bits is not None and (
            isinstance(self.bits, bool) or not isinstance(self.bits, Integral) or not 1 <= self.bits <= 16
        ):
            raise BadInput(
                f"bits={self.bits!r} is no bit depth; use 1 to 16 (8 for ordinary image files), or None for no grid."
            )
        if self.mask is not None and not isinstance(self.mask, Tensor):
            raise BadInput(
                f"the mask must be a boolean tensor, not a {type(self.mask).__name__}; use torch.as_tensor(mask, "
                "dtype=torch.bool)."
            )
        if self.mask is not None and self.mask.dtype != torch.bool:
            raise BadInput(
                f"the mask must be boolean (true where pixels may change), not {self.mask.dtype}; use mask.bool()."
            )

    @property
    def width(self) -> float:
        return self.hi - self.lo

    def project(self, candidate: Tensor, x: Tensor) -> Tensor:
        """The nearest allowed image to ``candidate`` (B, ...), where ``x`` (B, ...) are the originals."""
        point = self.project_continuous(candidate, x)
        if self.bits is not None:
            levels = 2**self.bits - 1
            # Dividing by the integer number of levels gives the very floats that image files decode to.
            point = ((point - self.lo) * (levels / self.width)).round() / levels
            point = point if self.width == 1.0 else point * self.width
            # Scaling back may round past the upper end, hence the clamp.
            point = point if self.lo == 0.0 else (point + self.lo).clamp(self.lo, self.hi)
            point = point if self.mask is None else torch.where(self.mask, point, x)
        return point

    def project_continuous(self, candidate: Tensor, x: Tensor, out: Tensor | None = None) -> Tensor:
        """The same without the grid: iterates keep what is below a level, only what the model sees is rounded. ``out``
        may be ``candidate``."""
        point = torch.clamp(candidate, self.lo, self.hi, out=out)
        return point if self.mask is None else torch.where(self.mask, point, x)

    def free(self, gradient: Tensor) -> Tensor:
        """``gradient`` (B, ...) with zeros where the mask forbids change."""
        return gradient if self.mask is None else gradient * self.mask

    def take(self, rows: Tensor, shape: torch.Size) -> Box:
        """The box of the images ``rows`` (R,) of a batch whose images have ``shape``."""
        if self.mask is None or self.mask.shape == shape:
            return self
        return Box(self.lo, self.hi, self.bits, self.mask[rows])

    def to(self, device: torch.device) -> Box:
        return self if self.mask is None else Box(self.lo, self.hi, self.bits, self.mask.to(device))

    def contains(self, point: Tensor, x: Tensor) -> Tensor:
        """(B,) whether each image of ``point`` (B, ...) is exactly in the domain of the originals ``x`` (B, ...)."""
        return (self.project(point, x) == point).flatten(1).all(1)
