"""Searches that are attacks of their own, used as one part of a budget: their points count like any others."""

from __future__ import annotations

from torch import Tensor

from ... import registry
from ...core import Problem

# Passes that sigma-zero spends on restoring values at its end, after one that says which.
TRIM = 10


def fast_minimum_norm(problem: Problem, steps: int, gamma: float | None = None) -> None:
    """FMN in the problem's norm, its radius changing by at most ``gamma`` in a step; nothing without any ``steps``."""
    if steps < 1:
        return
    norm = problem.bound.distance.norm
    registry.get("attacks", "fmn")(distance="linf" if norm == float("inf") else f"l{norm:g}", steps=steps, gamma=gamma).run(problem)


def sigma_zero(problem: Problem, steps: int) -> None:
    """sigma-zero and its restoring of values, which begins at the best point known, whoever found it; nothing without any ``steps``."""
    if steps <= TRIM + 1:
        return
    registry.get("attacks", "sigma-zero")(steps=steps - TRIM - 1, trim=TRIM).run(problem)


def brendel_bethge(problem: Problem, steps: int, halvings: int, start: Tensor | None = None) -> None:
    """B&B's walk along the boundary from the best points known or from ``start`` (B, ...), its trust radius halved ``halvings`` times;
    nothing without any ``steps``."""
    if steps < 1:
        return
    norm = problem.bound.distance.norm
    walk = registry.get("attacks", "bb")(distance=f"l{norm:g}", steps=steps, halvings=halvings)
    walk.walk(problem, problem.best_point if start is None else start)
