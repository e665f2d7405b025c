"""Carlini & Wagner's attack: a penalty on the margin in tanh space, for l2 as published and for any other distance."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import Attack, DistanceLike, Problem
from ..optim import length
from ..optim.penalties import WeightSearch, hinge_of
from ..optim.steps import Adam, Stagnation
from ..tensors import per_image

# Distance of the image's tanh coordinates to the ends of (-1, 1), so that they are finite.
INSIDE = 1 - 1e-6
# In linf, all values above this share of the largest one share the gradient.
NEAR = 0.9
# If tanh passes less than this share of the gradient, a constant loss does not stop the search.
SATURATED = 0.01


@dataclass(frozen=True)
class CW(Attack):
    """Minimises D(x', x) + c max(0, margin(x')) with Adam over w, x' = lo + (hi - lo)(tanh w + 1)/2, and searches the
    smallest c that succeeds.

    D is the squared norm for l2 and the distance itself otherwise. c starts at ``weight``, is multiplied by 10 until
    something is found and then halves its bracket, ``searches`` times in all. Carlini and Wagner, *Towards Evaluating
    the Robustness of Neural Networks*, S&P 2017, section V and VI-A; other distances as in the ALMA paper, section 5.
    The gradient of linf is shared by all values above 0.9 of the largest, after section VI-C.

    Differences from the original: with ``abort_early`` each image stops separately, once its best loss has not fallen
    by 0.01 % within a tenth of the steps, unless it has no success and tanh is saturated (the values of a binary image
    start at |w| = 7.25 and hardly change for a few hundred steps, so ``rate`` times ``steps`` must be several units).
    The clean image's gradient is computed once; no backward follows the last query of a search.

    Args:
        squared: whether the squared distance is minimised; none: for l2 only.
    """

    title = "C&W"
    cost = "searches x steps forwards and as many backwards, less one per search"
    paper = "Carlini and Wagner, S&P 2017"
    presets = {"paper": {"steps": 1000, "searches": 9}, "paper-10000": {"steps": 10000, "searches": 9}}
    ranges = {"[1, inf)": "searches", "(0, inf)": "rate weight"}

    distance: DistanceLike = "l2"
    steps: int = 1000
    searches: int = 9
    rate: float = 0.01
    weight: float = 1e-3
    abort_early: bool = True
    squared: bool | None = None

    def run(self, problem: Problem) -> None:
        x, box, linf = problem.x, problem.box, problem.bound.distance.norm == float("inf")
        squared = self.squared if self.squared is not None else problem.bound.distance.norm == 2
        w_clean = torch.atanh(((2 * (x - box.lo) / box.sides - 1) * INSIDE).double()).to(x.dtype)
        query = problem.start()
        # The first step of every search starts at the clean image, where the distance has no gradient.
        clean_slope, clean_hinge = problem.replace_zero_gradients(query.margin_gradient()), hinge_of(query)
        search = WeightSearch(x, self.weight)
        for attempt in range(self.searches):
            c, found = search.weight, torch.zeros_like(problem.found)
            adam, progress = Adam(x), Stagnation(x, self.steps // 10)
            progress.stalled(0, c * clean_hinge)
            slope = per_image(c * (clean_hinge > 0), x) * clean_slope
            shift, bent = torch.zeros_like(x), bend(w_clean)
            # The clean pass was the first query of the first search.
            queries = self.steps - (attempt == 0)
            with problem.round():
                for step in range(1, queries + 1):
                    gradient = slope * (box.sides / 2) * (1 - bent.square())
                    shift = shift - adam.step(self.rate, adam.metric(gradient, step), step)
                    bent = bend(w_clean + shift)
                    more = step < queries
                    query = problem.query(box.lo + box.sides * (bent + 1) / 2, grad=more, distance_grad=more)
                    found |= query.success
                    if not more:
                        break
                    hinge = hinge_of(query)
                    loss = (query.distance.square() if squared else query.distance) + c * hinge
                    problem.record(step, weight=c, loss=loss, distance=query.distance, success=query.success)
                    stalled = progress.stalled(step, loss) if self.abort_early else None
                    if stalled is not None:
                        problem.release(stalled & (found | ~saturated(slope, bent)))
                    pull = shared_pull(query.point - x, query.distance) if linf else query.distance_gradient
                    pull = per_image(2 * query.distance, x) * pull if squared else pull
                    slope = pull + per_image(c * (hinge > 0), x) * query.margin_gradient()
            search.update(found, repeat_best=self.searches >= 10 and attempt == self.searches - 2)


def saturated(slope: Tensor, bent: Tensor) -> Tensor:
    """(B,) whether tanh, with the values ``bent`` (B, ...), suppresses nearly all of the ``slope`` (B, ...)."""
    return length(slope * (1 - bent.square()), 2) < SATURATED * length(slope, 2)


def shared_pull(delta: Tensor, largest: Tensor) -> Tensor:
    """Signs of the values of ``delta`` (B, ...) near the ``largest`` (B,) of their image, each with an equal part of
    the weight one."""
    near = delta.abs() >= per_image(NEAR * largest, delta)
    count = near.flatten(1).sum(1).clamp_min(1).to(delta.dtype)
    return delta.sign() * near / per_image(count, delta)


def bend(w: Tensor) -> Tensor:
    """tanh of ``w``, computed so that the last bit does not depend on the position in the batch, as torch's float32
    tanh does."""
    return torch.tanh(w.double()).to(w.dtype)
