"""The core: problem, goals, penalties, domain and results. Attacks are written against it."""

from ..goals.base import Goal
from ..goals.classes import ClassGoal
from .attack import Attack, DistanceLike
from .box import Box
from .problem import Exhausted, Problem, Query
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
