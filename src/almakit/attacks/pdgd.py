"""PDGD and PDPGD: descent on the perturbation and ascent on a multiplier, with the distance in the loss or in a
proximal step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..core import Attack, DistanceLike, Problem
from ..optim import bounds, clip, dual_length, length, proximal
from ..optim.steps import Adam
from ..tensors import TINY, per_image, powers

# The log of the largest ratio of the two multipliers, either way.
LIMIT = math.log(1e6)
# The softplus' width, in linearised distances of the clean image.
WIDTH = 0.03
# The length of the first step in l2 and linf, in the same unit.
FIRST = 2.0
# As a share of the box's width: the first step in norms that do not limit single values.
SPARSE_RATE = 0.1
# lambda_0 / lambda_1 at the start: where they balance with ``scaled``; l2/3 lets nothing leave zero until the margin
# outweighs it by far.
RATIO, RATIO_L0 = 0.5, 0.1
# (part of the steps, share of the margin, ratio, first step): after this part, an image without a success that keeps
# more than this share of its margin starts again with this ratio and first step.
BOLDER = ((0.12, 0.8, 1e-4, 0.1), (0.6, 0.0, 1e-6, 0.3))
# The multipliers of hard images move faster the longer they move one way: by this factor each step, up to this much;
# and by half on a turn.
FASTER, FASTEST = 1.2, 10.0
PUBLISHED: dict[str, object] = {"steps": 500, "rate": 0.1, "ratio": 0.01, "scaled": False}


@dataclass(frozen=True)
class PrimalDual(Attack):
    """Base class of PDGD and PDPGD: min over delta, max over lambda of lambda_0 |delta| + lambda_1 softplus(margin),
    lambda_0 + lambda_1 = 1.

    delta follows Adam with a rate that falls to ``final_rate`` of itself; log(lambda_1 / lambda_0) starts at
    -log(``ratio``) (none: 1/2, l0 1/10) and moves by ``dual_rate`` (which falls to a tenth) up where the margin is
    positive, down where it is negative; the multipliers used are running averages with ``smoothing``.

    Unlike in the original, with ``scaled`` an image whose margin has hardly changed after an eighth of the steps
    (because gradients around clean images are flat) starts again with a dense, long first step, and the multipliers of
    images without a success after a third of the steps move faster.

    Args:
        ratio: the multipliers' ratio at the start.
        dual_rate: how fast the multipliers move.
        smoothing: of the multipliers' running averages.
        scaled: whether margin and steps are in units of the linearised distance; false is the original.
    """

    paper = "Matyasko and Chau, 2021"
    cost = "1 forward, 1 backward per step"
    ranges = {"(0, inf)": "rate dual_rate", "(0, 1]": "final_rate", "[0, 1)": "smoothing", "[1e-6, 1e6]": "ratio"}

    steps: int = 100
    rate: float | None = None
    final_rate: float = 0.01
    ratio: float | None = None
    dual_rate: float = 0.1
    smoothing: float = 0.9
    scaled: bool = True

    proximal: ClassVar[bool]
    """Whether the distance is minimised by a proximal step (PDPGD), not in the loss (PDGD)."""

    def run(self, problem: Problem) -> None:
        x, norm = problem.x, problem.norm
        low, high = bounds(problem.box, x)
        delta, adam = torch.zeros_like(x), Adam(x)
        log_ratio = x.new_full((len(x),), -math.log(self.ratio or (RATIO if norm else RATIO_L0)))
        weights = _weights(log_ratio)
        unit = width = rate = haste = torch.ones_like(log_ratio)
        side = torch.zeros_like(log_ratio)
        began = side.double()
        clean_slope, clean_margin = delta, side
        query = problem.start()
        for step in range(self.steps - 1):
            slope = problem.replace_zero_gradients(query.margin_gradient(), query.success)
            margin = torch.where(query.valid, query.margin + query.tolerance, 0.0)
            if step == 0:
                clean_slope, clean_margin = slope, margin
                if self.scaled:
                    unit = dual_length(slope, norm or 1.0).clamp_min(TINY)
                    width = (WIDTH * margin / unit).clamp_min(TINY)
                rate = self._first_rate(problem, slope, margin, norm)
            for patience, kept, bold_ratio, bold_rate in BOLDER if self.scaled else ():
                if step != math.ceil(self.steps * patience):
                    continue
                lost = ~problem.found & (margin > kept * clean_margin)
                delta, adam.first, adam.second, slope = (
                    torch.where(per_image(lost, x), fresh, values)
                    for fresh, values in ((0.0, delta), (0.0, adam.first), (0.0, adam.second), (clean_slope, slope))
                )
                began, margin = torch.where(lost, float(step), began), torch.where(lost, clean_margin, margin)
                rate = torch.where(lost, bold_rate * problem.box.width, rate)
                log_ratio = torch.where(lost, -math.log(bold_ratio), log_ratio)
                weights = torch.where(lost, _weights(log_ratio), weights)
            age = step - began
            steepness = 1 / (1 + torch.exp((-margin / unit / width).clamp_max(80)))
            push = slope * per_image(steepness / unit, x)
            problem.record(step, margin=query.margin, distance=query.distance, ratio=log_ratio, success=query.success)

            gradient = push
            if not self.proximal:
                pull = delta * per_image(weights[0] / length(delta, 2).clamp_min(TINY), x)
                gradient = pull + per_image(weights[1], x) * push
            metric = adam.metric(gradient, age + 1)
            pace = rate * powers(self.final_rate, age / (self.steps - began)).to(x.dtype)
            moved = delta - adam.step(pace, metric, age + 1)
            if self.proximal:
                moved = proximal(moved, pace * weights[0] / weights[1], metric, low, high, norm or 2 / 3)
            else:
                moved = clip(moved, low, high)
            delta = problem.delta_or_backtrack(query, moved, delta)

            if self.scaled:
                hard = (began > 0) | (~problem.found & (step >= 0.3 * self.steps))
                haste = torch.where(
                    hard, torch.where(margin.sign() == side, FASTER * haste, haste / 2).clamp(1, FASTEST), 1.0
                )
                side = margin.sign()
            rise = self.dual_rate * (1 - 0.9 * step / max(self.steps - 1, 1))
            log_ratio = (log_ratio + rise * haste * margin.sign()).clamp(-LIMIT, LIMIT)
            weights = self.smoothing * weights + (1 - self.smoothing) * _weights(log_ratio)
            query = problem.query(x + delta, grad=step < self.steps - 2)

    def _first_rate(self, problem: Problem, slope: Tensor, margin: Tensor, norm: float) -> Tensor:
        """(B,) how far Adam's first step moves each value."""
        if self.rate is not None or norm < 2:
            return torch.full_like(margin, (self.rate or SPARSE_RATE) * problem.box.width)
        # The first step moves all values alike.
        moving = length((slope != 0).to(slope.dtype), norm).clamp_min(1)
        return (FIRST * margin / dual_length(slope, norm).clamp_min(TINY) / moving).clamp_max(problem.box.width)


def _weights(log_ratio: Tensor) -> Tensor:
    """(2, B) lambda_0 and lambda_1, whose sum is one and whose ratio has the log ``log_ratio`` (B,)."""
    return 1 / (1 + torch.exp(torch.stack([log_ratio, -log_ratio])))


@dataclass(frozen=True)
class PDGD(PrimalDual):
    """Primal-dual gradient descent for l2: Adam on lambda_0 |delta|_2 + lambda_1 softplus(margin), ascent on the
    multipliers.

    Matyasko and Chau, *PDPGD: Primal-Dual Proximal Gradient Descent Adversarial Attack*, 2021 (arXiv 2106.01538),
    Algorithm 1.

    The original's settings depend on the scale of logits and images: its first step moves every value by 0.1, past most
    boundaries, and 100 steps are not enough to return. With ``scaled`` the margin is measured by the clean image's
    gradient, as a distance, the softplus is 3 % of the first margin wide, and the multipliers start near their balance;
    without ``rate`` the first step is twice as long as the linearised distance. ``presets["paper"]`` has the published
    settings. No backward pass after the last query.
    """

    title = "PDGD"
    does = ("l2",)
    presets = {"paper": PUBLISHED}

    distance: DistanceLike = "l2"
    proximal = False


@dataclass(frozen=True)
class PDPGD(PrimalDual):
    """Primal-dual proximal gradient descent: Adam on softplus(margin), then the proximal map of (rate lambda_0 /
    lambda_1) |delta| in Adam's metric.

    delta <- argmin over the box of rate (lambda_0 / lambda_1) |d| + sum h (d - z)^2 / 2, z where Adam went, h its root
    of squares. l0 takes the proximal map of the l2/3 quasi-norm. Matyasko and Chau, *PDPGD: Primal-Dual Proximal
    Gradient Descent Adversarial Attack*, 2021 (arXiv 2106.01538), Algorithm 2 and section 4.3.

    The original approximates the proximal map by a few clipped inner iterations; here it is solved exactly with the
    box. Settings are adapted as in PDGD. In l0 and l1, whose solutions move few values far, the first step is a tenth
    of the box.
    """

    title = "PDPGD"
    does = ("l0", "l1", "l2", "linf")
    presets = {"paper": PUBLISHED}

    distance: DistanceLike = "l2"
    proximal = True
