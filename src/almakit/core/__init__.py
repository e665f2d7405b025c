"""The core used by all attacks: problem, model access, box, result and the attack base class."""

from ..goals.base import Goal
from ..goals.classes import ClassGoal
from .attack import Attack, DistanceLike
from .box import Box
from .counts import Exhausted
from .problem import Problem
from .query import Query
from .result import ImageResult, Result, Status, best_of

__all__ = [
    "Attack",
    "Box",
    "ClassGoal",
    "DistanceLike",
    "Exhausted",
    "Goal",
    "ImageResult",
    "Problem",
    "Query",
    "Result",
    "Status",
    "best_of",
]
