"""Goals: values with one margin per image, computed from the model's outputs, negative when the goal is reached.

>>> almakit.attack(model, x, labels, goal=goals.top_k(k=3))
>>> almakit.attack(model, x, goal=goals.threshold(above=0) & goals.threshold(below=3, index=1))
>>> almakit.attack(model, x, goal=lambda outputs: 4 - outputs[:, 3])      # a function is a goal
>>> goals.get("top-k(k=3)")                                               # from text
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .base import FunctionGoal, Goal, GoalLike
from .check import check_goal
from .classes import ClassGoal, Targeted
from .classes import Reject as reject
from .classes import TopK as top_k
from .pixels import PixelGoal as pixels
from .resolve import get, names, text_of
from .scores import Detection as detection
from .scores import Embedding
from .scores import Multilabel as multilabel
from .scores import Regression as regression
from .scores import Threshold as threshold

__all__ = [
    "FunctionGoal",
    "Goal",
    "GoalLike",
    "check_goal",
    "detection",
    "embedding",
    "get",
    "multilabel",
    "names",
    "pixels",
    "regression",
    "reject",
    "targeted",
    "text_of",
    "threshold",
    "top_k",
    "untargeted",
]

untargeted = ClassGoal


def targeted(targets: Tensor | int | None = None, **settings: Any) -> Targeted:
    """Be classified as ``targets`` (B,), or as one class for all."""
    return Targeted(target=targets, **settings) if isinstance(targets, int) else Targeted(targets=targets, **settings)


def embedding(reference: Tensor | None = None, target: Tensor | None = None, **settings: Any) -> Embedding:
    """Away from ``reference`` (B, d) or the clean image, ``embedding(below=0.5)``; or near ``target`` (B, d)."""
    return Embedding(reference_embedding=reference, target_embedding=target, **settings)
