"""Base classes of distances: a name, properties, and ``bind(x)``, which precomputes everything that depends only on the
reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from .. import registry
from ..errors import BadInput


class Bound:
    """A distance to fixed references ``x`` (B, ...); a call with ``y`` (B, ...) returns (B,).

    A subclass stores values computed from ``x``. It may override ``value_and_grad`` with a closed-form gradient, and
    ``take`` to slice the stored values.
    """

    def __init__(self, distance: Distance, x: Tensor):
        self.distance, self.x = distance, x

    def __call__(self, y: Tensor) -> Tensor:
        """D(x, y) of shape (B,), differentiable in ``y`` with a finite gradient everywhere, also at ``y = x``."""
        raise NotImplementedError

    def value_and_grad(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """D(x, y) (B,) and its gradient in ``y`` (B, ...), both detached."""
        with torch.enable_grad():
            leaf = y.detach().requires_grad_(True)
            value = self(leaf)
            (gradient,) = torch.autograd.grad(value.sum(), leaf)
        return value.detach(), gradient.detach()

    def take(self, rows: Tensor) -> Bound:
        """The same distance to the references ``x[rows]``; ``rows`` (R,) may repeat."""
        return self.distance.bind(self.x[rows])


class Distance:
    """A function D(x, y) >= 0 of image pairs in [0, 1], zero at y = x, one number per image.

    ``norm`` is p for the lp norms and None otherwise. ``degree`` is how D grows near zero: D(x, x + t d) ~ t^degree.
    ``first_step`` contains ALMA's starting distance epsilon in the paper and in the authors' scripts.
    """

    name: ClassVar[str] = ""
    norm: ClassVar[float | None] = None
    degree: ClassVar[int | None] = None
    first_step: ClassVar[dict[str, float]] = {}
    about: ClassVar[str] = ""

    def check(self, x: Tensor) -> None:
        """Raises ``BadInput`` if the distance is not defined for images of the shape of ``x`` (B, ...)."""

    def bind(self, x: Tensor) -> Bound:
        raise NotImplementedError

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """The distance of two batches of images.

        Args:
            x: reference images, shape (B, ...).
            y: images, shape (B, ...).

        Returns:
            The distances, shape (B,).
        """
        if x.shape != y.shape:
            raise BadInput(f"a distance compares images of one shape, not {tuple(x.shape)} with {tuple(y.shape)}.")
        self.check(x)
        return self.bind(x)(y)

    def __repr__(self) -> str:
        return self.name


class FunctionDistance(Distance):
    """Any user function ``f(x, y) -> (B,)`` as a distance."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], name: str | None = None):
        self.function = function
        self.label: str = name or str(getattr(function, "__name__", type(function).__name__))

    def bind(self, x: Tensor) -> Bound:
        return _FunctionBound(self, x)

    def __repr__(self) -> str:
        return self.label


class _FunctionBound(Bound):
    distance: FunctionDistance

    def __call__(self, y: Tensor) -> Tensor:
        value = self.distance.function(self.x, y)
        if not isinstance(value, Tensor) or value.shape != y.shape[:1]:
            shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise BadInput(
                f"the distance {self.distance.label!r} returned {shape} for a batch of {len(y)}; it must return one "
                "number per image, a tensor of shape (B,): sum or average over all dimensions but the first."
            )
        if y.requires_grad and not value.requires_grad:
            raise BadInput(
                f"the distance {self.distance.label!r} carries no gradient: leave out torch.no_grad(), detach() and "
                "conversions to numpy inside it, or measure with it afterwards."
            )
        return value.to(y.dtype)

    def value_and_grad(self, y: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = super().value_and_grad(y)
        # Many functions contain a root, whose gradient at 0 is NaN. A distance is smallest there, so zero is a
        # subgradient.
        return value, torch.where((value == 0).view(-1, *[1] * (y.ndim - 1)), torch.zeros_like(gradient), gradient)


DistanceLike = str | float | Distance | Callable[[Tensor, Tensor], Tensor]


def resolve(distance: DistanceLike) -> Distance:
    """A distance from its name (``"linf"``, also ``"Linf"``, ``"l_2"``, ``2`` or ``inf``), itself, or a function ``f(x,
    y) -> (B,)``."""
    if isinstance(distance, Distance):
        return distance
    if isinstance(distance, (str, int, float)) and not isinstance(distance, bool):
        found = registry.get("distances", distance)
        return found() if isinstance(found, type) else resolve(found)
    if not callable(distance):
        raise BadInput(
            f'{distance!r} is no distance; give a name such as "l2", a norm such as 2, or a function f(x, y) -> (B,).'
        )
    return FunctionDistance(distance)
