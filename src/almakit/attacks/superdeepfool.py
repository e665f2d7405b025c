"""SuperDeepFool: alternates DeepFool steps across the boundary with projections onto the boundary's normal."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..core import Attack, DistanceLike, Problem
from ..optim import bounds, deepfool_step, leading_plane, pull_back, to_halfspace


@dataclass(frozen=True)
class SuperDeepFool(Attack):
    """SDF(inf, 1): alternates DeepFool steps until the boundary is crossed with the shortest step from the clean image
    to the plane that is tangent to the boundary there.

    At x~ beyond the boundary, with w = grad(z_k - z_y), the next point is x + d with the smallest |d|_2 such that
    w.d >= w.(x~ - x) - (z_k - z_y), inside the box. ``pull_back`` of the steps bisect the segment to the clean image at
    the end. Abroshan, Abdollahpoorrostam and Moosavi-Dezfooli, *SuperDeepFool: a new fast and accurate minimal
    adversarial attack*, ICML 2024, Algorithm 2.

    Differences from the original: steps stay in the box; the plane is the linearised boundary and not the level set
    through x~; an image does not stop at the first projected point that is adversarial (``gain=none`` does both as
    published). Only ``damping`` of a DeepFool step longer than a tenth of the way already gone is taken, in the second
    half of the steps only where a crossing is known. Targets are reached through their margin.

    Args:
        gain: an image stops after ``patience`` crossings in a row that left its best distance less than this share
            below that of the crossing before; none stops as published.
        patience: crossings without gain before an image stops.
    """

    title = "SuperDeepFool"
    does = ("l2",)
    cost = (
        "per step 1 forward, 1 backward where across, else 2 forwards, candidates - 1 backwards; usually 20 to 40 "
        "steps; then pull_back forwards"
    )
    paper = "Abroshan et al., ICML 2024"
    presets = {"paper": {"gain": None, "damping": 1.0}}
    ranges = {
        "[2, inf)": "candidates",
        "[0, inf)": "overshoot pull_back",
        "[0, 1)": "gain",
        "[1, inf)": "patience",
        "(0, 1]": "damping",
    }

    distance: DistanceLike = "l2"
    steps: int = 100
    candidates: int = 10
    overshoot: float = 0.02
    gain: float | None = 1e-3
    patience: int = 3
    damping: float = 0.3
    pull_back: int = 10

    def run(self, problem: Problem) -> None:
        x = problem.x
        low, high = bounds(problem.box, x)
        point, taken = x, torch.zeros_like(problem.forwards)
        last, projected = torch.full_like(problem.best_distance, float("inf")), torch.zeros_like(problem.found)
        idle = torch.zeros_like(taken)
        steps = max(self.steps - self.pull_back, (self.steps + 1) // 2)
        with problem.round():
            for step in range(steps):
                final = step == steps - 1
                query = problem.query(point, grad=not final) if step else problem.start()
                taken = taken + problem.active
                gained = problem.best_distance <= (1 - (self.gain or 0)) * last
                idle = torch.where(query.success, torch.where(gained, 0, idle + 1), idle)
                stop = query.success & (projected if self.gain is None else idle >= self.patience)
                last = torch.where(query.success, problem.best_distance, last)
                problem.record(step, margin=query.margin, distance=query.distance, success=query.success)
                if final:
                    break
                normal, need = leading_plane(query)
                problem.release(stop)
                level = (normal * (query.point - x)).flatten(1).sum(1)
                projected_point = x + to_halfspace(normal, level if self.gain is None else level + need, low, high, 2)
                projected = query.success
                images = (~query.success & problem.active).nonzero().flatten()
                moved = problem.step_or_backtrack(query, projected_point, point)
                if len(images):
                    planes = problem.query(point[images], images=images, gradients=self.candidates)
                    # Half of the steps without a crossing: damped steps may be too short for the grid of the box, or
                    # for the way.
                    late = 1.0 if 2 * step >= steps else self.damping
                    damping = torch.where(problem.found[images], self.damping, late).to(x.dtype)
                    known = normal[images], need[images]
                    ahead = deepfool_step(problem, planes, point, self.candidates, damping, self.overshoot, known)
                    moved = moved.index_copy(0, images, ahead)
                point = problem.box.project_continuous(moved, x)
        pull_back(problem, self.pull_back, self.steps - taken)
