"""The core: problem, goals, penalties, domain and results. Attacks are written against it."""

from .attack import Attack
from .domain import Box
from .goals import ClassGoal, Goal
from .problem import Exhausted, Problem, Query
from .result import ImageResult, Result, Status, best_of

__all__ = [
    "Attack",
    "Box",
    "ClassGoal",
    "Exhausted",
    "Goal",
    "ImageResult",
    "Problem",
    "Query",
    "Result",
    "Status",
    "best_of",
]
