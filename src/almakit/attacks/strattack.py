"""StrAttack: a perturbation sparse in groups of neighbouring pixels, by ADMM on Carlini & Wagner's penalty."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..core import Attack, DistanceLike, Problem
from ..optim import bounds, clip
from ..optim.penalties import WeightSearch, hinge_of
from ..tensors import TINY, per_image, unit


@dataclass(frozen=True)
class StrAttack(Attack):
    """Minimises c max(0, margin(x + z)) + gamma |delta|_2^2 + tau sum over groups g of |y_g|_2, with w in the box and
    delta = y = w = z split by ADMM.

    delta = rho/(rho + 2 gamma) (z - u); w = box(z - s); y_g = max(0, 1 - tau/(rho |c_g|)) c_g, c = z - v; z <- (eta z +
    rho (delta + u + w + s + y + v) - c grad hinge(z)) / (eta + 3 rho), eta = ``alpha`` sqrt(k); then u += delta - z, v
    += y - z, s += w - z. Groups are squares of ``group`` x ``group`` pixels, all channels together (runs of group^2
    values where images have no two last dimensions). c is searched per image and multiplied by 5 until a success.
    ``refine`` more steps then descend on the best perturbation without the group term, its zero groups kept at zero. Xu
    et al., *Structured Adversarial Attack: Towards General Implementation and Better Interpretability*, ICLR 2019, eq.
    10, 11, 17, 18 and section 5.

    Differences from the published code: z, w and y carry the weights of eq. 18; only y, the sparse one, is judged, and
    brought into the box before; the multipliers are reset in each search; groups do not overlap; refinement keeps zero
    groups and not a share of the values. ``tau`` is a tenth of the published value, with which few groups of small
    images survive.

    Args:
        rho: the ADMM penalty.
        alpha: the step of z, times the root of the iteration.
        tau: the weight of the groups' lengths.
        gamma: the weight of the squared l2 norm.
        group: the side of a group, in pixels.
        refine: further iterations inside the groups found.
    """

    title = "StrAttack"
    does = ("l2",)
    cost = "searches x 2 steps + refine forwards, searches x steps + refine backwards"
    paper = "Xu et al., ICLR 2019"
    presets = {"paper": {"steps": 2000, "tau": 2.0}}
    ranges = {"[1, inf)": "searches group", "[0, inf)": "refine tau gamma", "(0, inf)": "weight rho alpha"}

    distance: DistanceLike = "l2"
    steps: int = 200
    searches: int = 6
    weight: float = 1.0
    rho: float = 1.0
    alpha: float = 5.0
    tau: float = 0.2
    gamma: float = 1.0
    group: int = 2
    refine: int = 100

    def run(self, problem: Problem) -> None:
        x, rho = problem.x, self.rho
        low, high = bounds(problem.box, x)
        query = problem.start()
        clean_pull, clean_hinge = problem.replace_zero_gradients(query.margin_gradient()), hinge_of(query)
        search = WeightSearch(x, self.weight, factor=5.0)
        for _ in range(self.searches):
            c, found = search.weight, torch.zeros_like(problem.found)
            pull = per_image(c * (clean_hinge > 0), x) * clean_pull
            z, u, v, s = (torch.zeros_like(x) for _ in range(4))
            for k in range(1, self.steps + 1):
                delta = rho / (rho + 2 * self.gamma) * (z - u)
                w = clip(z - s, low, high)
                y = clip(self._thin(z - v), low, high)
                eta = self.alpha * k**0.5
                z = clip((eta * z + rho * (delta + u + w + s + y + v) - pull) / (eta + 3 * rho), low, high)
                u, v, s = u + delta - z, v + y - z, s + w - z
                judged = problem.query(x + y, grad=False)
                found |= judged.success
                problem.record(k - 1, weight=c, distance=judged.distance, success=judged.success)
                if k < self.steps:
                    # The penalty's gradient is taken at z, which is not sparse; its successes do not count.
                    query = problem.query(x + z, aside=True)
                    pull = per_image(c * (hinge_of(query) > 0), x) * query.margin_gradient()
            search.update(found)
        if self.refine:
            self._refine(problem)

    def _thin(self, c: Tensor) -> Tensor:
        """Groups of ``c`` (B, ...) shrunk by tau/rho in length, the shorter ones to zero."""
        return c * (1 - self.tau / self.rho / self._group_length(c).clamp_min(TINY)).clamp_min(0)

    def _group_length(self, c: Tensor) -> Tensor:
        """The l2 length of the group each value of ``c`` (B, ...) is in, shaped to multiply ``c``."""
        if c.ndim < 3:
            flat, window = c.flatten(1)[:, None, None], (1, self.group**2)
        else:
            flat, window = c.reshape(len(c), -1, *c.shape[-2:]), (self.group, self.group)
        height, width = flat.shape[-2:]
        squares = flat.square().sum(1, keepdim=True)
        padded = F.pad(squares, (0, -width % window[1], 0, -height % window[0]))
        sums = F.avg_pool2d(padded, window) * (window[0] * window[1])
        spread = sums.repeat_interleave(window[0], 2).repeat_interleave(window[1], 3)[..., :height, :width]
        return spread.clamp_min(0).sqrt().expand_as(flat).reshape(c.shape)

    def _refine(self, problem: Problem) -> None:
        """Minimise |delta|_2 while the zeros of the best perturbation stay zero, with falling step sizes; only for
        images that have one."""
        problem.release(~problem.found)
        x, box = problem.x, problem.box
        delta = problem.best_point - x
        support = delta != 0
        rate = 0.1 * problem.best_distance.clamp_max(1e6)
        for step in range(self.refine - 1):
            query = problem.query(x + delta)
            push = query.margin_gradient() * support
            # A success moves towards the image, another point along the gradient, each by a unit direction.
            ahead = torch.where(per_image(query.success, x), -unit(delta), -unit(push))
            shrink = per_image(rate * (1 - step / self.refine), x)
            delta = (box.project_continuous(x + delta + shrink * ahead, x) - x) * support
        problem.query(x + delta, grad=False)
