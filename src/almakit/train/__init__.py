"""Training of networks: one seeded loop (``loop``), kinds of training as functions (``objectives``), the recipes of the
shipped networks (``recipe``)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .loop import Trained, accuracy, save, train, train_into
    from .recipe import Recipe, recipes

__all__ = ["Recipe", "Trained", "accuracy", "recipes", "save", "train", "train_into"]


def __getattr__(name: str) -> Any:
    # torch is imported only when training is used.
    if name in __all__:
        return getattr(import_module(".recipe" if name in ("Recipe", "recipes") else ".loop", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
