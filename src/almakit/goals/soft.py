"""What goals share: maxima and minima over numbers of an image, softened, and checks of their settings."""

from __future__ import annotations

from torch import Tensor

from ..errors import BadInput
from ..tensors import deviation, soft_maximum


def smallest(values: Tensor, temperature: Tensor) -> Tensor:
    """(B,) ``soft_maximum`` for the minimum; entries of inf do not count."""
    return -soft_maximum(-values, temperature)


def spread_of(values: Tensor, otherwise: Tensor) -> Tensor:
    """(B,) the standard deviation of ``values`` (B, N); ``otherwise`` (B,) where there is one only."""
    return deviation(values.detach()) if values.shape[1] > 1 else otherwise


def whole_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadInput(f"{name}={value!r}: give a whole number, at least 1.")


def number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or abs(value) == float("inf"):
        raise BadInput(f"{name}={value!r}: give a finite number.")
