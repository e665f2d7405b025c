"""TR: steps along the linearised margin inside a trust region whose radius follows how well the margin is predicted."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import Attack, DistanceLike, Problem
from ..optim import bounds, dual_length, leading_plane, length, nearest_plane, pull_back, to_halfspace
from ..tensors import SMALL, per_image

# rho above HIGH lets the radius grow by RATE, below LOW it shrinks by RATE and the step is taken back.
HIGH, LOW, RATE = 0.9, 0.5, 1.2


@dataclass(frozen=True)
class TR(Attack):
    """Minimises the margin m towards one class by trust-region steps until the goal is reached.

    Each step d_j solves min_d <grad m(x_j), d> subject to |d|_p <= eps_j, and goes no farther than the linearised
    boundary. With rho = (m(x_j) - m(x_j + d_j)) / -<grad m(x_j), d_j>, the radius eps becomes 1.2 eps where rho > 0.9
    and eps / 1.2 where rho < 0.5. Yao, Gholami, Xu, Keutzer and Mahoney, *Trust Region Based Adversarial Attack on
    Neural Networks*, CVPR 2019, Algorithm 1, with the quadratic term left out, which is zero for ReLU networks. The
    class is the one whose linearised boundary is nearest to the clean image in l_p, among ``candidates``.

    Differences from the original: the step is the shortest one inside the box, a step with rho < 0 is undone, radii are
    measured in linearised distances of the clean image, and up to ``pull_back`` of the remaining forwards bisect the
    segment to the clean image at the end (0: none). For a target, the margin is that of the target.

    Args:
        radius: the first radius, in linearised distances of the clean image; none for 2 / steps.
        largest: the largest radius, in the same unit; none for 5 / steps.
        adaptive: whether the radius follows rho; false keeps the first radius.
        candidates: how many of the likeliest classes the nearest boundary is searched among.
        overshoot: factor by which a step passes the linearised boundary.
        pull_back: forwards spent on the segment to the clean image at the end.
    """

    title = "TR"
    does = ("l2", "linf")
    cost = "candidates backwards, then 1 forward, 1 backward per step until across; then pull_back forwards"
    paper = "Yao et al., CVPR 2019"
    ranges = {"(0, inf)": "radius largest", "[1, inf)": "candidates", "[0, inf)": "overshoot pull_back"}

    distance: DistanceLike = "l2"
    steps: int = 100
    radius: float | None = None
    largest: float | None = None
    adaptive: bool = True
    candidates: int = 9
    overshoot: float = 0.02
    pull_back: int = 10

    def run(self, problem: Problem) -> None:
        x, norm = problem.x, problem.norm
        low, high = bounds(problem.box, x)
        query = problem.start(gradients=self.candidates)
        rivals = query.goal.rivals(query.values)
        rival: Tensor | None = None
        if rivals is None:
            normal, need = leading_plane(query)
        else:
            rival, normal, need = nearest_plane(query, rivals[:, : self.candidates], norm)
        normal = problem.replace_zero_gradients(normal)
        nearest = need / dual_length(normal, norm).clamp_min(SMALL)
        first, largest = self.radius or 2 / self.steps, self.largest or 5 / self.steps
        eps = first * nearest
        point, queried, taken = x, x, torch.ones_like(problem.forwards)
        with problem.round():
            for step in range(1, self.steps):
                d = self._step(normal, need, eps, low - (point - x), high - (point - x), norm)
                candidate = problem.box.project_continuous(point + d, x)
                query = problem.query(candidate)
                taken = taken + problem.active
                new_normal, new_need = leading_plane(query, rival)
                # Between the points of the grid that were queried; a step within one level says nothing.
                predicted = (normal * (query.point - queried)).flatten(1).sum(1)
                rho = torch.where(predicted > 0, (need - new_need) / predicted.clamp_min(SMALL), 1.0)
                problem.record(step, margin=query.margin, distance=query.distance, radius=eps, rho=rho)
                problem.release(problem.found)
                if self.adaptive:
                    factor = torch.where(rho > HIGH, RATE, torch.where(rho < LOW, 1 / RATE, 1.0)).to(eps.dtype)
                    eps = torch.minimum(eps * factor, largest * nearest)
                # A step that increased the margin, or led to non-finite logits, is undone.
                kept = query.valid & ((rho >= 0) | (not self.adaptive))
                wide = per_image(kept, x)
                new_normal = problem.replace_zero_gradients(new_normal, ~kept)
                point, queried = torch.where(wide, candidate, point), torch.where(wide, query.point, queried)
                normal = torch.where(wide, new_normal, normal)
                need = torch.where(kept, new_need, need)
                eps = torch.where(query.valid, eps, eps / 2)
        pull_back(problem, self.pull_back, self.steps - taken)

    def _step(self, normal: Tensor, need: Tensor, eps: Tensor, low: Tensor, high: Tensor, norm: float) -> Tensor:
        """(B, ...) the shortest step to the linearised boundary inside the box, or as much of its gain as eps allows:
        lengths are convex in the gain, so a share of the gain takes at most that share of the length."""
        far = (1 + self.overshoot) * need
        whole = length(to_halfspace(normal, far, low, high, norm), norm)
        share = (eps / whole.clamp_min(SMALL)).clamp_max(1)
        return to_halfspace(normal, share * far, low, high, norm)
