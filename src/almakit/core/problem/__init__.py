"""The problem an attack works on: sealed, the only way to the model; its queries, counts and best points."""

from .best import Best
from .counts import Counts, Exhausted
from .course import MARKS, Course, expected_forwards
from .problem import Problem
from .query import Query
from .state import Trace

__all__ = ["MARKS", "Best", "Counts", "Course", "Exhausted", "Problem", "Query", "Trace", "expected_forwards"]
