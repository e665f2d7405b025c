"""Affine layers, y = L x + c: values, intervals, and exact backward propagation of rows of coefficients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .intervals import Interval


@dataclass(frozen=True)
class Affine:
    """y = L x + c. ``units``: the rounding of one output relative to the sum of its terms' sizes; 0 if there is no
    rounding or it is not counted."""

    units: float

    def value(self, *before: Tensor) -> Tensor:
        raise NotImplementedError

    def interval(self, *before: Interval) -> Interval:
        """The interval of the result for layers without negative coefficients, from the ends of the inputs."""
        return self._rounded(before, *before)

    def _rounded(self, before: tuple[Interval, ...], *ends: Interval) -> Interval:
        """The values at the lower and the upper ``ends``, rounded outward."""
        lower, upper = self.value(*(part.lower for part in ends)), self.value(*(part.upper for part in ends))
        if not self.units:
            return Interval(lower, upper)
        slack = self.units * self.size(*(part.size for part in before))
        return Interval(lower - slack, upper + slack)

    def size(self, *before: Tensor) -> Tensor:
        """|L| s + |c|, for sizes s of the inputs: what a rounding error is relative to."""
        raise NotImplementedError

    def back(self, rows: Tensor, shapes: list[tuple[int, ...]]) -> tuple[list[Tensor], Tensor | float]:
        """L^T a for rows a (P, ...), one part for each source, whose images have ``shapes``; and a.c (P,)."""
        raise NotImplementedError


@dataclass(frozen=True)
class Weighted(Affine):
    """A linear layer or a convolution: ``weight``, ``bias`` (or None), and for a convolution its ``where``: stride,
    padding, dilation, groups."""

    weight: Tensor
    bias: Tensor | None
    where: tuple[Any, ...] | None = None

    def _apply(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, weight, bias) if self.where is None else F.conv2d(x, weight, bias, *self.where)

    def value(self, *before: Tensor) -> Tensor:
        return self._apply(before[0], self.weight, self.bias)

    def interval(self, *before: Interval) -> Interval:
        middle, radius = before[0].middle, before[0].radius
        centre = self._apply(middle, self.weight, self.bias)
        if self.units:
            radius = radius * (1 + self.units) + self.units * middle.abs()
        reach = self._apply(
            radius, self.weight.abs(), self.units * self.bias.abs() if self.units and self.bias is not None else None
        )
        return Interval(centre - reach, centre + reach)

    def size(self, *before: Tensor) -> Tensor:
        return self._apply(before[0], self.weight.abs(), None if self.bias is None else self.bias.abs())

    def back(self, rows: Tensor, shapes: list[tuple[int, ...]]) -> tuple[list[Tensor], Tensor | float]:
        if self.where is None:
            return [rows @ self.weight], 0.0 if self.bias is None else rows @ self.bias
        added = 0.0 if self.bias is None else rows.sum((2, 3)) @ self.bias
        stride, padding, dilation, groups = self.where
        kernel, image = self.weight.shape[2:], shapes[0][1:]
        # Entries that a strided convolution cuts off at the far edges get zeros.
        cut = [(image[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) % stride[i] for i in (0, 1)]
        return [F.conv_transpose2d(rows, self.weight, None, stride, padding, cut, groups, dilation)], added


@dataclass(frozen=True)
class Scale(Affine):
    """y = factor x + shift, entry by entry: normalisation, batch norm in evaluation, negation. Both have the shape of
    one image, with a first 1."""

    factor: Tensor
    shift: Tensor

    def value(self, *before: Tensor) -> Tensor:
        return before[0] * self.factor + self.shift

    def interval(self, *before: Interval) -> Interval:
        centre, reach = self.value(before[0].middle), before[0].radius * self.factor.abs()
        if self.units:
            reach = reach + self.units * self.size(before[0].size)
        return Interval(centre - reach, centre + reach)

    def size(self, *before: Tensor) -> Tensor:
        return before[0] * self.factor.abs() + self.shift.abs()

    def back(self, rows: Tensor, shapes: list[tuple[int, ...]]) -> tuple[list[Tensor], Tensor | float]:
        return [_fitted(rows * self.factor, shapes[0])], (rows * self.shift).flatten(1).sum(1)


@dataclass(frozen=True)
class Combined(Affine):
    """y = factors[0] x_0 + factors[1] x_1: what joins the branches of a residual network."""

    factors: tuple[float, ...]

    def value(self, *before: Tensor) -> Tensor:
        first, second = (
            part if factor == 1 else factor * part for factor, part in zip(self.factors, before, strict=True)
        )
        return first + second

    def interval(self, *before: Interval) -> Interval:
        turned = [
            part if factor >= 0 else Interval(part.upper, part.lower)
            for factor, part in zip(self.factors, before, strict=True)
        ]
        return self._rounded(before, *turned)

    def size(self, *before: Tensor) -> Tensor:
        return abs(self.factors[0]) * before[0] + abs(self.factors[1]) * before[1]

    def back(self, rows: Tensor, shapes: list[tuple[int, ...]]) -> tuple[list[Tensor], Tensor | float]:
        return [rows if factor == 1 else factor * rows for factor in self.factors], 0.0


@dataclass(frozen=True)
class Positive(Affine):
    """Any affine step without a negative coefficient, as a function of its sources: means, sums, average pooling,
    padding, slices, reshapes."""

    function: Callable[..., Tensor]

    def value(self, *before: Tensor) -> Tensor:
        return self.function(*before)

    def size(self, *before: Tensor) -> Tensor:
        return self.function(*before).abs()

    def back(self, rows: Tensor, shapes: list[tuple[int, ...]]) -> tuple[list[Tensor], Tensor | float]:
        differentiable = torch.is_grad_enabled()
        with torch.enable_grad():
            zeros = [rows.new_zeros(len(rows), *shape).requires_grad_(True) for shape in shapes]
            offset = self.function(*zeros)
            # create_graph: a linear function's gradient is a function of the rows, which slopes and
            # weights in training are behind.
            gradients = torch.autograd.grad(offset, zeros, rows, create_graph=differentiable)
        return list(gradients), (rows * offset.detach()).flatten(1).sum(1)


def _fitted(rows: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Rows (P, ...) of a broadcast result summed to the ``shape`` of what was broadcast."""
    return rows.sum_to_size((len(rows), *shape)) if tuple(rows.shape[1:]) != tuple(shape) else rows
