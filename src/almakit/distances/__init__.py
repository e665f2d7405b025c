"""Distances between images: by name, or any function ``f(x, y) -> (B,)``."""

from __future__ import annotations

from .. import registry
from .base import Bound, Distance, FunctionDistance
from .base import resolve as get
from .check import check_distance

__all__ = ["Bound", "Distance", "FunctionDistance", "check_distance", "get", "names"]


def names() -> list[str]:
    """The names ``get`` knows."""
    return registry.names("distances")
