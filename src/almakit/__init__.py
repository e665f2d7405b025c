"""almakit finds the smallest change that makes an image classifier wrong, measures it in any distance, and proves what it found.

>>> import almakit
>>> result = almakit.attack(model, x, labels, distance="l2", steps=100)   # the default attack
>>> result = almakit.ALMA(distance="l1", steps=1000)(model, x, labels)    # one by name
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import VERSION as __version__

if TYPE_CHECKING:
    from . import attacks, data, distances, models
    from .attacks.alma import ALMA
    from .attacks.soft_walk import SoftWalk as ALMAPlus
    from .core import Box, Result, Status
    from .distances import check_distance
    from .errors import AlmakitError
    from .eval.run import evaluate
    from .front import attack
    from .standard import standard_evaluation

# Loaded when first used, so that importing almakit (and asking the command line for help) costs nothing.
_HOME = {
    "ALMA": "almakit.attacks.alma",
    "ALMAPlus": "almakit.attacks.soft_walk",
    "AlmakitError": "almakit.errors",
    "Box": "almakit.core",
    "Result": "almakit.core",
    "Status": "almakit.core",
    "attack": "almakit.front",
    "check_distance": "almakit.distances",
    "evaluate": "almakit.eval.run",
    "standard_evaluation": "almakit.standard",
}
_ROOMS = ("attacks", "data", "distances", "models")

__all__ = [
    "ALMA", "ALMAPlus", "AlmakitError", "Box", "Result", "Status", "__version__", "attack", "attacks", "check_distance", "data", "distances",
    "evaluate", "models", "standard_evaluation",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _ROOMS:
        return import_module(f"almakit.{name}")
    raise AttributeError(f"module 'almakit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
