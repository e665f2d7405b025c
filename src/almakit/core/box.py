"""The domain of candidates: a box with common or per-value bounds, optionally a grid, and a mask of the values that may
change."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from ..errors import BadInput
from ..radius import Grid

# Tolerance, in steps, for values that were rounded in other units.
OFF_GRID = 1e-3
# Tolerance, in levels, within which an original counts as lying on the grid in float32.
NEAR_GRID = 1e-2


@dataclass(frozen=True, eq=False)
class Box:
    """The domain of inputs: a range of values, optionally a grid, and the values that may change.

    Every candidate is projected into the box *before* the model receives it, so with ``bits=8`` a success remains one
    when it is stored as an 8-bit image.

    Args:
        lo: smallest value, a number or a tensor that broadcasts to the shape of one input. A value with lo = hi does
            not change.
        hi: largest value, likewise.
        bits: number of bits of an image grid with 2^bits levels from lo to hi; None for no grid.
        mask: boolean, true for values that may change, of the shape of one input or of the batch (B, ...).
        step: spacing of a grid lo + n step, likewise a number or a tensor; 1 keeps integers, 0 is no grid.

    Examples:
        >>> import almakit
        >>> float(almakit.Box(bits=8).spacing * 255)
        1.0
    """

    lo: float | Tensor = 0.0
    hi: float | Tensor = 1.0
    bits: int | None = None
    mask: Tensor | None = None
    step: float | Tensor | None = None

    def __post_init__(self) -> None:
        for name in ("lo", "hi", "step"):
            if name != "step" or self.step is not None:
                object.__setattr__(self, name, _numbers(name, getattr(self, name)))
        shapes = [tuple(each.shape) for each in (self.lo, self.hi, self.step) if isinstance(each, Tensor)]
        try:
            torch.broadcast_shapes(*shapes)
        except RuntimeError as error:
            raise BadInput(
                f"lo, hi and step of the box have shapes {' and '.join(map(str, shapes))}, which do not go together; "
                "give numbers, or tensors of one input's shape."
            ) from error
        if self._each:
            if bool((torch.as_tensor(self.lo) > torch.as_tensor(self.hi)).any()):
                raise BadInput("the box needs lo <= hi for every value; find the values where lo exceeds hi.")
        elif not self.lo < self.hi:
            raise BadInput(f"the box needs lo < hi, not lo={self.lo} and hi={self.hi}.")
        if self.bits is not None and (
            isinstance(self.bits, bool) or not isinstance(self.bits, Integral) or not 1 <= self.bits <= 16
        ):
            raise BadInput(
                f"bits={self.bits!r} is no bit depth; use 1 to 16 (8 for ordinary image files), or None for no grid."
            )
        if self.step is not None and self.bits is not None:
            raise BadInput("bits and step are two grids; give one of them.")
        if self.step is not None and bool((torch.as_tensor(self.step) < 0).any()):
            raise BadInput("the box's step is 0 (no grid) or more, such as 1 for whole numbers.")
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
    def _each(self) -> bool:
        """Whether bounds or steps differ between values."""
        return isinstance(self.lo, Tensor) or isinstance(self.hi, Tensor)

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest number in the box."""
        return float(torch.as_tensor(self.lo).min()), float(torch.as_tensor(self.hi).max())

    @cached_property
    def width(self) -> float:
        """The longest side of the box, which scales step sizes."""
        return float(torch.as_tensor(self.hi - self.lo).max()) if self._each else float(self.hi - self.lo)

    @cached_property
    def sides(self) -> float | Tensor:
        """The side of the box along each value, a number if all are equal; 1 for a value that cannot change, so that
        division is safe."""
        if not self._each:
            return self.width
        sides = torch.as_tensor(self.hi - self.lo)
        return torch.where(sides > 0, sides, torch.ones_like(sides))

    @cached_property
    def spacing(self) -> Tensor:
        """The spacing of the grid, shape () or (...) per value; 0 without a grid."""
        if self.bits is not None:
            return torch.as_tensor(self.sides, dtype=torch.float64) / float(2**self.bits - 1)
        return torch.as_tensor(0.0 if self.step is None else self.step, dtype=torch.float64)

    def level(self, x: Tensor) -> float:
        """The spacing of the grid if it is equal for all values that may change and the originals ``x`` (B, ...) lie on
        it; otherwise 0."""
        if self.bits is None and self.step is None:
            return 0.0
        moves = torch.ones_like(x, dtype=torch.bool) if self.mask is None else self.mask.expand(x.shape)
        spacing = self.spacing.to(x.device).expand(x.shape)[moves]
        if not len(spacing) or not 0 < float(spacing.min()) == float(spacing.max()):
            return 0.0
        lo = torch.as_tensor(self.lo, dtype=torch.float64, device=x.device).expand(x.shape)[moves]
        number = (x[moves].double() - lo) / spacing
        return float(spacing[0]) if float((number - number.round()).abs().max()) <= NEAR_GRID else 0.0

    def around(self, x: Tensor) -> Box:
        """The box for the inputs ``x`` (B, ...), with bounds in their shape, precision and device; values that cannot
        change are added to the mask. Raises ``BadInput`` if the shapes do not fit."""
        box = self
        if self._each:
            lo, hi = (_shaped(name, getattr(self, name), x).to(x.dtype) for name in ("lo", "hi"))
            moves = (self.mask if self.mask is not None else torch.ones_like(lo, dtype=torch.bool)).to(x.device)
            if moves.shape not in (x.shape, x.shape[1:]):
                return box  # reported by the check of the images
            box = replace(self, lo=lo, hi=hi, mask=None if bool((moves & (hi > lo)).all()) else moves & (hi > lo))
        # Computed in double precision, so that the grid's points are the nearest floats to n steps.
        return box if self.step is None else replace(box, step=_shaped("step", self.step, x).double())

    def project(self, candidate: Tensor, x: Tensor) -> Tensor:
        """Project candidates onto the domain.

        Args:
            candidate: points, shape (B, ...).
            x: originals, shape (B, ...).

        Returns:
            The nearest allowed points, shape (B, ...).
        """
        point = self.project_continuous(candidate, x)
        if self.bits is not None:
            levels = 2**self.bits - 1
            # Dividing by the integer number of levels gives the same floats as decoding an image file.
            point = ((point - self.lo) * (levels / self.sides)).round() / levels
            if self._each:
                point = self._clamped(point * self.sides + self.lo)
            else:
                point = point if self.width == 1.0 else point * self.width
                # Scaling back may round past the upper end, hence the clamp.
                point = point if self.lo == 0.0 else (point + self.lo).clamp(self.lo, self.hi)
        elif self.step is not None:
            point = self._on_grid(point, x)
        else:
            return point
        return point if self.mask is None else torch.where(self.mask, point, x)

    def _on_grid(self, point: Tensor, x: Tensor) -> Tensor:
        """``point`` (B, ...) rounded to the nearest lo + n step inside the box, for values with a step. The grid point
        nearest to an original of ``x`` (B, ...) on the grid is that original."""
        step = torch.as_tensor(self.step, dtype=torch.float64, device=x.device)
        apart = torch.where(step > 0, step, torch.ones_like(step))
        last = ((torch.as_tensor(self.hi, device=x.device) - self.lo) / apart + OFF_GRID).floor()
        number = torch.minimum(((point.double() - self.lo) / apart).round(), last)
        grid = self._clamped((self.lo + number * apart).to(x.dtype))
        grid = torch.where(((grid - x).abs() <= OFF_GRID * apart), x, grid)
        return torch.where(step > 0, grid, point)

    def project_continuous(self, candidate: Tensor, x: Tensor, out: Tensor | None = None) -> Tensor:
        """Project candidates onto the domain without rounding to the grid, for iterates of an attack.

        Args:
            candidate: points, shape (B, ...).
            x: originals, shape (B, ...).
            out: tensor for the result; may be ``candidate``.

        Returns:
            The projected points, shape (B, ...).
        """
        point = self._clamped(candidate, out)
        return point if self.mask is None else torch.where(self.mask, point, x)

    def _clamped(self, candidate: Tensor, out: Tensor | None = None) -> Tensor:
        lo: Any = self.lo
        hi: Any = self.hi
        clamped: Tensor = torch.clamp(candidate, lo, hi, out=out)
        return clamped

    def free(self, gradient: Tensor) -> Tensor:
        """``gradient`` (B, ...), zero for masked values."""
        return gradient if self.mask is None else gradient * self.mask

    def take(self, rows: Tensor, shape: torch.Size) -> Box:
        """The box of the images ``rows`` (R,) of a batch whose images have ``shape``."""
        if self.mask is None or self.mask.shape == shape:
            return self
        return replace(self, mask=self.mask[rows])

    def to(self, device: torch.device) -> Box:
        parts = {name: getattr(self, name) for name in ("lo", "hi", "mask", "step")}
        moved: dict[str, Any] = {name: part.to(device) for name, part in parts.items() if isinstance(part, Tensor)}
        return replace(self, **moved) if moved else self

    def contains(self, point: Tensor, x: Tensor) -> Tensor:
        """Test whether points are in the domain.

        Args:
            point: points, shape (B, ...).
            x: originals, shape (B, ...).

        Returns:
            Whether each point is exactly in the domain of its original, shape (B,).
        """
        return (self.project(point, x) == point).flatten(1).all(1)

    def check(self, x: Tensor) -> None:
        """Raise an error if an image of ``x`` (B, ...) is outside the box or a value is not on its grid."""
        outside = ((x < self.lo) | (x > self.hi)).flatten(1)
        if bool(outside.any()):
            row, place = (int(number) for number in outside.nonzero()[0])
            if isinstance(self.lo, Tensor) and isinstance(self.hi, Tensor):
                low, high = (float(bound.flatten()[place]) for bound in (self.lo, self.hi))
                raise BadInput(
                    f"value {place} of image {row} is {float(x[row].flatten()[place]):.6g}, outside its box "
                    f"[{low:.6g}, {high:.6g}]; widen the box, or bring the value into it."
                )
            low, high = float(x[row].min()), float(x[row].max())
            likely = (
                "0-255 data: divide by 255"
                if high > 2.5 * max(abs(self.ends[1]), 1) and low >= 0
                else "normalised data: give images in the box and put the normalisation inside the model"
            )
            raise BadInput(
                f"image {row} has values in [{low:.4g}, {high:.4g}], outside the box [{self.ends[0]:g}, "
                f"{self.ends[1]:g}]; this looks like {likely}."
            )
        if self.step is not None and not bool(self.contains(x, x).all()):
            row, place = (int(number) for number in (self.project(x, x) != x).flatten(1).nonzero()[0])
            raise BadInput(
                f"value {place} of image {row} is {float(x[row].flatten()[place]):.6g}, which is not on its grid of "
                f"steps of {float(torch.as_tensor(self.step).expand(x.shape[1:]).flatten()[place]):.6g} from the box's "
                "lower end; round it, or give it the step 0."
            )


def grid_of(distance: str, box: Box, x: Tensor) -> Grid:
    """The rule that decides whether a distance (named ``distance``) from the originals ``x`` (B, ...) to points of the
    box is within a radius."""
    return Grid.of(distance, box.level(x), rounding=torch.finfo(x.dtype).eps * max(map(abs, box.ends)))


def _numbers(name: str, value: Any) -> float | Tensor:
    """A bound or step as a finite number or a tensor."""
    if isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value):
        return value  # type: ignore[return-value]
    try:
        tensor = torch.as_tensor(None if isinstance(value, (bool, Real)) else value).detach()
    except (TypeError, ValueError, RuntimeError):
        tensor = torch.zeros(0)
    if tensor.is_complex() or tensor.dtype == torch.bool or not tensor.numel():
        raise BadInput(
            f"the box's {name} is a finite number for all values, or a tensor with one for each, not {value!r}."
        )
    if not bool(torch.isfinite(tensor).all()):
        raise BadInput(f"the box's {name} holds values that are not finite; each value needs two ends.")
    if not tensor.ndim:
        return float(tensor)
    return tensor if tensor.is_floating_point() else tensor.to(torch.float64)


def _shaped(name: str, value: float | Tensor, x: Tensor) -> Tensor:
    """A bound or step in the shape of one input of ``x`` (B, ...), on its device."""
    tensor = torch.as_tensor(value, dtype=None if isinstance(value, Tensor) else torch.float64).to(x.device)
    try:
        return tensor.expand(x.shape[1:]).contiguous()
    except RuntimeError:
        raise BadInput(
            f"the box's {name} has shape {tuple(tensor.shape)}; for inputs of shape {tuple(x.shape[1:])} give one "
            "number, or a tensor of that shape (bounds that differ from input to input need a call each)."
        ) from None
