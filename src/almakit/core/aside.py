"""Queries that are not judged: for gradients at points an attack does not offer as results."""

from __future__ import annotations

from torch import Tensor

from .problem import Problem
from .query import Query


def ask_aside(problem: Problem, candidate: Tensor, distance_grad: bool = False) -> Query:
    """A query at ``candidate`` (B, ...), counted like any other, whose successes are not remembered."""
    point, distance = problem.best_point.clone(), problem.best_distance.clone()
    query = problem.query(candidate, distance_grad=distance_grad)
    problem.best_point, problem.best_distance = point, distance
    return query
