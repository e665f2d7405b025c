"""The lp distances, with closed-form (sub)gradients; the subgradient at zero difference is zero."""

from __future__ import annotations

import torch
from torch import Tensor

from ..tensors import largest_entry, per_image
from .base import Bound, Distance


class _L1Bound(Bound):
    def __call__(self, y: Tensor) -> Tensor:
        delta = y - self.x
        return (delta.abs() if delta.requires_grad else delta.abs_()).flatten(1).sum(1)

    def value_and_grad(self, y: Tensor) -> tuple[Tensor, Tensor]:
        delta = y.detach() - self.x
        return delta.abs().flatten(1).sum(1), delta.sign_()


class L1(Distance):
    """Sum of absolute differences."""

    name, norm, degree, about = "l1", 1.0, 1, "sum of absolute differences"
    first_step = {"paper": 0.5, "scripts": 0.5}

    def bind(self, x: Tensor) -> Bound:
        return _L1Bound(self, x)


def _largest(delta: Tensor) -> Tensor:
    """The largest |entry| of each row of (B, N), or 1 where all are zero: (B, 1). Divided by it, squares of tiny
    entries do not underflow."""
    largest = largest_entry(delta.detach())
    return (largest + (largest == 0)).unsqueeze(1)


class _L2Bound(Bound):
    def __call__(self, y: Tensor) -> Tensor:
        delta = (y - self.x).flatten(1)
        scale = _largest(delta)
        if not delta.requires_grad:
            # The new difference is overwritten, because on a CPU allocating memory is the most expensive part.
            return delta.div_(scale).square_().sum(1).sqrt_().mul_(scale[:, 0])
        squares = (delta / scale).square().sum(1)
        # For zero differences, the root of one is multiplied by zero, so that the gradient is zero instead of NaN.
        zero = squares == 0
        return torch.where(zero, squares, torch.where(zero, torch.ones_like(squares), squares).sqrt()) * scale[:, 0]

    def value_and_grad(self, y: Tensor) -> tuple[Tensor, Tensor]:
        unit = (y.detach() - self.x).flatten(1)
        scale = _largest(unit)
        unit.div_(scale)
        length = torch.linalg.vector_norm(unit, dim=1, keepdim=True)
        # length is at least 1 unless all is zero; then so is the gradient
        return (length * scale)[:, 0], unit.div_(length.clamp(min=1)).view_as(y)


class L2(Distance):
    """Euclidean norm of the difference."""

    name, norm, degree, about = "l2", 2.0, 1, "Euclidean norm of the difference"
    first_step = {"paper": 0.1, "scripts": 0.1}

    def bind(self, x: Tensor) -> Bound:
        return _L2Bound(self, x)


class _LinfBound(Bound):
    def __call__(self, y: Tensor) -> Tensor:
        return (y - self.x).abs().flatten(1).amax(1)

    def value_and_grad(self, y: Tensor) -> tuple[Tensor, Tensor]:
        delta = y.detach() - self.x
        size = delta.abs()
        value = size.flatten(1).amax(1)
        at_top = (size == per_image(value, delta)) & (size > 0)
        ties = at_top.flatten(1).sum(1).clamp_min(1)
        return value, delta.sign() * at_top / per_image(ties, delta)


class Linf(Distance):
    """Largest absolute difference."""

    name, norm, degree, about = "linf", float("inf"), 1, "largest absolute difference"
    first_step = {"paper": 0.005, "scripts": 0.005}

    def bind(self, x: Tensor) -> Bound:
        return _LinfBound(self, x)


class _L0Bound(Bound):
    def __call__(self, y: Tensor) -> Tensor:
        delta = (y - self.x).flatten(1)
        # The product with zero keeps the result in the graph: the gradient exists and is zero.
        return (delta != 0).sum(1).to(y.dtype) + 0 * delta.sum(1)

    def value_and_grad(self, y: Tensor) -> tuple[Tensor, Tensor]:
        return (y.detach() != self.x).flatten(1).sum(1).to(y.dtype), torch.zeros_like(y)


class L0(Distance):
    """Number of values that differ (each channel counts)."""

    name, norm, degree, about = "l0", 0.0, 0, "number of values that differ, each channel counted"

    def bind(self, x: Tensor) -> Bound:
        return _L0Bound(self, x)
