"""ALMA-plus: the default attack. One knob, the budget; any distance."""

from __future__ import annotations

from dataclasses import dataclass

from ..core import Attack, Problem
from ..core.attack import DistanceLike
from .plus.free_steps import free_steps
from .plus.lagrangian import Lagrangian, lagrangian
from .plus.polish import polish
from .plus.scan import scan


@dataclass(frozen=True)
class ALMAPlus(Attack):
    """An augmented-Lagrangian search followed by a polish for l1, l2 and linf, and free steps on the distance for every other one."""

    title = "ALMA-plus"
    cost = "1 forward, 1 backward per step"
    paper = "almakit; after Rony et al., ICCV 2021"

    distance: DistanceLike = "l2"
    steps: int = 100

    def run(self, problem: Problem) -> None:
        norm = problem.bound.distance.norm
        if norm not in (1.0, 2.0, float("inf")):
            free_steps(problem, self.steps)
            return
        rivals = max(1, min(9, self.steps // 10))
        found = scan(problem, rivals, norm)
        problem.query(found.nearest, grad=False)
        rest = self.steps - 2 - max(0, rivals - 4)
        last = rest // 5
        lagrangian(problem, rest - last, found.unit, Lagrangian(first=0.4 if norm == 1 else 0.2), start=problem.x)
        polish(problem, last, norm)
