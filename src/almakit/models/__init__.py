"""Image classifiers by URI: images in [0, 1] in, logits out, normalisation inside."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .load import forms, load, names
from .zoo import ZOO, Entry

if TYPE_CHECKING:
    from .classifier import Classifier
    from .preflight import Finding, Preflight

__all__ = ["ZOO", "Classifier", "Entry", "Finding", "Preflight", "forms", "load", "names"]

_HOME = {"Classifier": "classifier", "Finding": "preflight", "Preflight": "preflight"}


def __getattr__(name: str) -> Any:
    # These need torch, which is imported when they are asked for and not with the package.
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
