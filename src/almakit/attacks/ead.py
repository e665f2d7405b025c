"""EAD, the elastic-net attack: Carlini & Wagner's penalty with an l1 term, by (accelerated) shrinkage-thresholding."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import Attack, DistanceLike, Problem
from ..distances.base import Distance, FunctionDistance
from ..errors import BadInput
from ..optim.penalties import WeightSearch, hinge_of
from ..optim.steps import Stagnation
from ..tensors import per_image


@dataclass(frozen=True)
class EAD(Attack):
    """Minimises c max(0, margin(x')) + |x' - x|_2^2 + beta |x' - x|_1 in the box by FISTA, and searches the smallest c
    that succeeds.

    Each step: x_k+1 = S_beta(y_k - eta grad(c hinge + |.|_2^2)(y_k)), y_k+1 = x_k+1 + k/(k+3) (x_k+1 - x_k). S_beta is
    soft thresholding of the change by beta; eta falls as the square root of the remaining steps. Chen et al., *EAD:
    Elastic-Net Attacks to Deep Neural Networks via Adversarial Examples*, AAAI 2018, eq. 4, 5 and Algorithm 1.

    Differences from the original: with ``abort_early`` each image stops separately, once its best objective no longer
    falls; y is projected into the box before the query and may be a success; the clean image's gradient is computed
    once.

    Args:
        beta: the weight of the l1 norm.
        rule: which point is returned: l1 for the nearest in l1, the distance reported, or en for the smallest
            |d|_2^2 + beta |d|_1, as in the paper's tables.
        accelerated: FISTA; false is ISTA (y = x), one forward a step.
    """

    title = "EAD"
    does = ("l1",)
    cost = "searches x 2 steps forwards, searches x steps backwards, fewer with early stops"
    paper = "Chen et al., AAAI 2018"
    presets = {"paper": {"rule": "en"}}
    ranges = {"[1, inf)": "searches", "(0, inf)": "rate weight", "[0, inf)": "beta"}

    distance: DistanceLike = "l1"
    steps: int = 100
    searches: int = 9
    rate: float = 0.01
    beta: float = 0.01
    weight: float = 1e-3
    rule: str = "l1"
    accelerated: bool = True
    abort_early: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rule not in ("l1", "en"):
            raise BadInput(
                f"rule={self.rule!r}: choose l1 (the nearest point in l1) or en (the smallest elastic-net value)."
            )

    def run(self, problem: Problem) -> None:
        x, box = problem.x, problem.box
        query = problem.start()
        clean_slope, clean_hinge = problem.replace_zero_gradients(query.margin_gradient()), hinge_of(query)
        search = WeightSearch(x, self.weight)
        for attempt in range(self.searches):
            c, found = search.weight, torch.zeros_like(problem.found)
            progress = Stagnation(x, math.ceil(self.steps / 10))
            progress.stalled(0, c * clean_hinge)
            x_k = y_k = x
            gradient = per_image(c * (clean_hinge > 0), x) * clean_slope
            with problem.round():
                for k in range(self.steps):
                    final = k == self.steps - 1
                    eta = self.rate * math.sqrt(1 - k / self.steps)
                    last, x_k = x_k, box.project_continuous(x + shrink(y_k - eta * gradient - x, self.beta), x)
                    momentum = k / (k + 3) if self.accelerated else 0.0
                    y_k = box.project_continuous(x_k + momentum * (x_k - last), x)
                    if momentum or final:
                        found |= problem.query(x_k, grad=False).success
                    if final:
                        break
                    query = problem.query(y_k)
                    found |= query.success
                    hinge = hinge_of(query)
                    loss = c * hinge + self._elastic_net(x, query.point)
                    problem.record(k, weight=c, loss=loss, distance=query.distance, success=query.success)
                    stalled = progress.stalled(k + 1, loss) if self.abort_early else None
                    if stalled is not None:
                        # A search with a success does not stop early: l1 still falls while its objective is constant.
                        problem.release(stalled & ~found)
                    gradient = 2 * (query.point - x) + per_image(c * (hinge > 0), x) * query.margin_gradient()
            search.update(found, repeat_best=self.searches >= 10 and attempt == self.searches - 2)

    @property
    def ranking(self) -> Distance | None:
        """The elastic-net rule keeps the point of smallest |d|_2^2 + beta |d|_1; its l1 distance is reported."""
        return None if self.rule == "l1" else FunctionDistance(self._elastic_net)

    def _elastic_net(self, x: Tensor, y: Tensor) -> Tensor:
        delta = (y - x).flatten(1)
        return delta.square().sum(1) + self.beta * delta.abs().sum(1)


def shrink(delta: Tensor, by: float) -> Tensor:
    """Entries of ``delta`` (B, ...) moved towards zero by ``by``, those smaller than it to zero."""
    return delta.sign() * (delta.abs() - by).clamp_min(0)
