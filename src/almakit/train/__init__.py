"""How the shipped networks were made: one seeded loop, one file for each kind of training."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .loop import Recipe, Trained, accuracy, recipes, save, train

__all__ = ["Recipe", "Trained", "accuracy", "recipes", "save", "train"]


def __getattr__(name: str) -> Any:
    # Training needs torch, which is imported when it is asked for and not with the package.
    if name in __all__:
        return getattr(import_module(".loop", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
