"""FAB: moves along the decision boundary with a bias towards the clean image."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import Attack, DistanceLike, Problem
from ..core.query import Query
from ..optim import bounds, leading_plane, length, nearest_plane, to_halfspace
from ..tensors import SMALL, per_image
from .fixed_epsilon import random_start

# How far a random start may lie from the image at most, in box widths; half of it, or of the best distance where that
# is less, is used.
FARTHEST_START = {1.0: 5.0, 2.0: 1.0, float("inf"): 0.3}
# Steps without a success after which linearised boundaries outside the box are avoided.
PATIENCE = 10


@dataclass(frozen=True)
class FAB(Attack):
    """Projects iterate and clean image onto the nearest linearised boundary, takes a mean of both, and steps back
    towards the image once across.

    pi is the boundary z_k = z_y, linearised at x_i, of smallest distance |z_k - z_y| / |grad z_k - grad z_y|_q (q dual
    to the norm); d and d_o are the shortest steps to it inside the box from x_i and from x. With
    a = min(|d| / (|d| + |d_o|), alpha_max): x_i+1 = clip((1 - a)(x_i + eta d) + a (x + eta d_o)). If that is
    adversarial, it becomes x + beta (x_i+1 - x) after it was noted. Croce and Hein, *Minimally distorted adversarial
    examples with a fast adaptive boundary attack*, ICML 2020, Algorithm 1.

    ``targeted_classes=9`` is FAB-T: one run of ``steps`` towards the boundary of each of the 9 classes that rank next
    to the label on the clean image; whatever leaves the label counts. Otherwise each step takes one backward for each
    of the ``candidates`` - 1 likeliest classes beside the label, where the original takes one per logit.

    Differences from the original: after 10 steps without a success a plane that misses the box comes after all that
    meet it. Targets (not in the paper), and goals without rival classes, have one boundary, that of the margin. The
    clean pass serves the first step. The last steps are replaced by ``search`` forwards of regula falsi on the segment
    from the best point to the clean image, so that no more than 2 N + 1 forwards are made (0: N steps, no search).
    ``restarts`` - 1 further runs begin at random points at most half the best distance away.

    Args:
        alpha_max: the largest weight of the clean image's projection.
        eta: factor by which a step passes the boundary.
        beta: factor by which the perturbation of a success is scaled.
        targeted_classes: number of target classes of FAB-T, one run each; none for FAB.
        search: forwards of the final search on the segment to the clean image.
    """

    title = "FAB"
    does = ("l1", "l2", "linf")
    cost = "2 forwards, candidates - 1 backwards per step; with targeted_classes=9 18 forwards, 9 backwards"
    paper = "Croce and Hein, ICML 2020"
    presets = {"paper": {"search": 0}, "paper-imagenet": {"search": 0, "targeted_classes": 9}}
    ranges = {
        "[1, inf)": "restarts eta targeted_classes",
        "[0, 1]": "alpha_max beta",
        "[2, inf)": "candidates",
        "[0, inf)": "search",
    }

    distance: DistanceLike = "l2"
    steps: int = 100
    restarts: int = 1
    alpha_max: float = 0.1
    eta: float = 1.05
    beta: float = 0.9
    candidates: int = 10
    targeted_classes: int | None = None
    search: int = 3

    def run(self, problem: Problem) -> None:
        assert problem.clean_logits is not None
        rivals: list[Tensor | None] = [None]
        if self.targeted_classes is not None and (ways := problem.goal.rivals(problem.clean_logits)) is not None:
            rivals = list(ways[:, : self.targeted_classes].unbind(1))
        # Each omitted step saves two forwards; using the clean pass for the first step saves one more.
        reserved = min(self.search // 2, self.steps - 1)
        lead = torch.full_like(problem.best_distance, float("inf"))
        runs = [(start, rival) for start in range(self.restarts) for rival in rivals]
        for number, (start, rival) in enumerate(runs):
            first = self._random_start(problem) if start else problem.x
            lead = self._walk(problem, first, rival, self.steps - (reserved if number == len(runs) - 1 else 0), lead)
        if self.search:
            _secant(problem, lead, min(self.search, 2 * reserved + 1))

    def _random_start(self, problem: Problem) -> Tensor:
        """Points (B, ...) in random directions from ``x``, at half of the best distance or of ``FARTHEST_START`` box
        widths, whichever is smaller."""
        x, box, norm = problem.x, problem.box, problem.norm
        far = problem.best_distance.clamp_max(FARTHEST_START[norm] * box.width)
        return box.project_continuous(x + per_image(far / 2, x) * random_start(problem, norm), x)

    def _walk(self, problem: Problem, point: Tensor, rival: Tensor | None, steps: int, lead: Tensor) -> Tensor:
        """One run from ``point`` (B, ...) over all boundaries or that of the classes ``rival`` (B,); gives the margin
        (B,) at the best points."""
        x, box, norm = problem.x, problem.box, problem.norm
        low, high = bounds(box, x)
        for step in range(steps):
            before = problem.best_distance
            clean = step == 0 and point is x
            query = (
                problem.start(gradients=self.candidates) if clean else problem.query(point, gradients=self.candidates)
            )
            lead = torch.where(problem.best_distance < before, query.margin, lead)
            normal, need = self._nearest_plane(problem, query, rival, ~problem.found & (step >= PATIENCE))
            normal = problem.replace_zero_gradients(normal, query.success | ~query.valid)
            # With a grid the model saw a rounded point: the plane is measured from the iterate itself.
            need_here = need - (normal * (point - query.point)).flatten(1).sum(1)
            need_clean = need - (normal * (x - query.point)).flatten(1).sum(1)
            here = _onto_plane(normal, need_here, *bounds(box, point), norm)
            from_clean = _onto_plane(normal, need_clean, low, high, norm)
            to_here, to_clean = length(here, norm), length(from_clean, norm)
            bias = per_image((to_here / (to_here + to_clean).clamp_min(SMALL)).clamp_max(self.alpha_max), x)
            moved = (1 - bias) * (point + self.eta * here) + bias * (x + self.eta * from_clean)
            moved = box.project_continuous(problem.step_or_backtrack(query, moved, point), x)
            before = problem.best_distance
            check = problem.query(moved, grad=False)
            lead = torch.where(problem.best_distance < before, check.margin, lead)
            problem.record(step, margin=check.margin, distance=check.distance, success=check.success)
            point = torch.where(per_image(check.success, x), x + self.beta * (moved - x), moved)
        return lead

    def _nearest_plane(
        self, problem: Problem, query: Query, rival: Tensor | None, lost: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The normal (B, ...) and the need (B,) of the linearised boundary nearest to the query's points; for ``lost``
        images (B,) of those that meet the box.

        On a linear model a plane outside the box is never reached; on a network, the boundary itself may still be
        inside.
        """
        ways = query.goal.rivals(query.values)
        if ways is None:
            return leading_plane(query)
        rivals = ways[:, : self.candidates - 1] if rival is None else rival.unsqueeze(1)
        low, high = bounds(problem.box, query.point)

        def reachable(w: Tensor, need: Tensor) -> Tensor:
            return ~lost | (torch.where(w > 0, w * high, w * low).flatten(1).sum(1) >= need)

        return nearest_plane(query, rivals, problem.norm, reachable)[1:]


def _onto_plane(normal: Tensor, need: Tensor, low: Tensor, high: Tensor, norm: float) -> Tensor:
    """The shortest d (B, ...) between ``low`` and ``high`` with normal.d = need, whichever side the plane lies on."""
    side = torch.where(need < 0, -1.0, 1.0).to(need)
    return to_halfspace(normal * per_image(side, normal), need.abs(), low, high, norm)


def _secant(problem: Problem, lead: Tensor, forwards: int) -> None:
    """Looks for the boundary between the clean image and the best point, where the margin is ``lead`` (B,), by regula
    falsi."""
    assert problem.clean_logits is not None
    delta = problem.best_point - problem.x
    tolerance = 1.5 * problem.goal.tolerance(problem.clean_logits, problem.oracle.precision)
    near, far = torch.zeros_like(lead), torch.ones_like(lead)
    above, below = problem.goal.margin(problem.clean_logits) + tolerance, lead + tolerance
    with problem.round():
        problem.release(~problem.found)
        for _ in range(forwards):
            share = above / (above - below)
            # Outside (0, 1) or NaN: a margin is unknown or below the tolerance.
            share = torch.where((share > 0) & (share < 1), share, 0.5)
            middle = near + share * (far - near)
            query = problem.query(problem.x + per_image(middle, delta) * delta, grad=False)
            value = query.margin + 1.5 * query.tolerance
            near, above = torch.where(query.success, near, middle), torch.where(query.success, above, value)
            far, below = torch.where(query.success, middle, far), torch.where(query.success, value, below)
