"""The core: problem, goals, penalties, domain and results. Attacks are written against it."""

from .attack import Attack
from .class_goal import ClassGoal
from .counts import Exhausted
from .domain import Box
from .goals import Goal
from .problem import Problem
from .query import Query
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
