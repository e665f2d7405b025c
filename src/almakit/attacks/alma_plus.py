"""ALMA-plus: the default attack. One knob, the budget; any distance."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..core import Attack, Problem
from ..core.attack import DistanceLike
from ..core.steps import per_image
from .plus.free_searches import free_searches
from .plus.level import level
from .plus.others import fast_minimum_norm, sigma_zero
from .plus.rounds import BRIEF, brief_search, searches
from .plus.scan import scan
from .plus.sparse import sparse

# The budget from which l0 is searched in two ways.
DIVIDED = 60


@dataclass(frozen=True)
class ALMAPlus(Attack):
    """Finds small perturbations in few model passes: at most ``steps`` forwards and ``steps`` backwards per image.

    l1 and l2: a scan of the likely rival classes, augmented-Lagrangian searches with a soft margin over a detached scale and every size in
    units of the linearised distance to the boundary, then a polish by sequential programming on the linearised constraint. Brendel & Bethge's walk follows a
    shorter search where the margin does not do what its gradient says, follows FMN's in l1 where the boundary is near or the budget below 50, and begins
    outside where the clean gradient misleads. linf: FMN, then a search over the radius. l0: a search over the number of values, then sigma-zero. Any other
    distance: searches with free steps, many on the distance between two model passes.
    On a linear model the scan gives the exact answer for l1 (from 50 steps on), l2 and linf where it has seen the nearest class (at most 9 are scanned, at
    least 3 from 15 steps on).
    After Rony et al., *Augmented Lagrangian Adversarial Attacks*, ICCV 2021; docs/alma-plus.md has the algorithm and what each piece is worth.
    """

    title = "ALMA-plus"
    cost = "at most 1 forward, 1 backward per step"
    paper = "almakit; after Rony et al., ICCV 2021"

    distance: DistanceLike = "l2"
    steps: int = 100

    def run(self, problem: Problem) -> None:
        norm = problem.bound.distance.norm
        if norm == 0.0:
            # Which of the two finds fewer values depends on the network; short budgets are not worth dividing.
            first = self.steps if self.steps < DIVIDED else self.steps // 2
            sparse(problem, first)
            sigma_zero(problem, self.steps - first)
        elif norm not in (1.0, 2.0, float("inf")):
            free_searches(problem, self.steps)
        elif norm == 1.0 and self.steps < BRIEF:
            brief_search(problem, self.steps)
        else:
            # Rivals are worth a twentieth of the budget; what more than three cost in backwards is taken from the searches.
            rivals = max(min(3, self.steps // 5), min(9, self.steps // 20), 1)
            seen = scan(problem, rivals, norm)
            still = torch.zeros_like(seen.margin)
            if self.steps > 1:
                still = problem.query(seen.nearest, grad=False).margin
            rest = self.steps - 2 - max(0, seen.classes.shape[1] - 3)
            if norm == float("inf"):
                first = rest * 7 // 10
                fast_minimum_norm(problem, first)
                level(problem, rest - first, torch.where(per_image(problem.found, problem.x), problem.best_point, seen.nearest))
            else:
                searches(problem, rest, norm, seen, still)
