"""Labelled images in [0, 1], by URI; and the files almakit needs, by name (``hub``)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import hub
from .load import forms, load, names

if TYPE_CHECKING:
    from .dataset import Chunk, Dataset, Sample, image_sha256

__all__ = ["Chunk", "Dataset", "Sample", "forms", "hub", "image_sha256", "load", "names"]


def __getattr__(name: str) -> Any:
    # These need torch, which is imported when they are asked for and not with the package.
    if name in ("Chunk", "Dataset", "Sample", "image_sha256"):
        return getattr(import_module(".dataset", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
