"""Goals: what is wanted of a model's outputs. Each is a value with one margin per image, negative when it is reached.

``almakit.attack(model, x, goal=goals.top_k(k=3), labels=y)``; a function of the outputs will do as well.
``get("top-k(k=3)")`` reads one from text.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .base import Goal
from .check import check_goal
from .classes import ClassGoal
from .combined import all_of, any_of
from .embedding import Embedding
from .given import FunctionGoal, GoalLike
from .pixels import PixelGoal as pixels
from .rules import Reject as reject
from .rules import Targeted
from .rules import TopK as top_k
from .scores import Detection as detection
from .scores import Multilabel as multilabel
from .scores import Regression as regression
from .scores import Threshold as threshold
from .text import get, names, text_of

__all__ = [
    "FunctionGoal",
    "Goal",
    "GoalLike",
    "all_of",
    "any_of",
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
    """``embedding(below=0.5)``, away from ``reference`` (B, d) or the clean image; ``embedding(target=t, above=0.8)``;
    ``embedding(prompts=p)``."""
    return Embedding(reference_embedding=reference, target_embedding=target, **settings)
