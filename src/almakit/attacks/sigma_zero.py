"""sigma-zero: few changed values, by descent on a smooth count of them and a threshold that adapts."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..core import Attack, DistanceLike, Problem
from ..optim import bounds, clip
from ..optim.steps import Adam, cosine_decay
from ..tensors import SMALL, per_image, ranks


@dataclass(frozen=True)
class SigmaZero(Attack):
    """Descends max(margin, 0) + mean of delta^2/(delta^2 + sigma), a smooth l0, and sets values below a threshold tau
    to zero after each step.

    Adam on the gradient divided by its largest entry, rate falling to a tenth along a cosine; tau, in parts of the
    box's width, rises by ``threshold_rate`` times the rate where the goal is reached and falls by as much where it is
    not. Cina et al., *sigma-zero: Gradient-based Optimization of l0-norm Adversarial Examples*, ICLR 2025, Algorithm 1.

    The original may leave changes in place that are not needed. Here, after the steps, one query with a gradient and up
    to ``trim`` forwards restore values of the best point, those that lower the linearised margin least first, in groups
    that double after a success and halve after a failure, while the others go to the end of the box that lowers the
    margin, which l0 does not mind (0: none, as published). No backward pass after the last query; a target is reached
    through its margin (the original is untargeted).

    Args:
        sigma: the width of the smooth l0.
        threshold: values below it are set to zero, in parts of the box's width.
        threshold_rate: how fast the threshold moves.
        trim: number of forwards that remove unnecessary changes at the end.
    """

    title = "sigma-zero"
    does = ("l0",)
    cost = "1 forward, 1 backward per step; then up to trim + 1 forwards, 1 backward"
    paper = "Cina et al., ICLR 2025"
    presets = {"paper": {"steps": 1000, "trim": 0}}
    ranges = {"(0, inf)": "rate sigma", "[0, 1]": "threshold", "[0, inf)": "threshold_rate trim"}

    distance: DistanceLike = "l0"
    steps: int = 100
    rate: float = 1.0
    sigma: float = 1e-3
    threshold: float = 0.3
    threshold_rate: float = 0.01
    trim: int = 20

    def run(self, problem: Problem) -> None:
        x, width = problem.x, problem.box.width
        low, high = bounds(problem.box, x)
        delta, adam = torch.zeros_like(x), Adam(x)
        threshold = x.new_full((len(x),), self.threshold)
        rate = self.rate
        query = problem.start()
        for step in range(self.steps - 1):
            problem.record(
                step, margin=query.margin, distance=query.distance, threshold=threshold, success=query.success
            )
            slope = problem.replace_zero_gradients(query.margin_gradient(), query.success)
            # Both terms by delta / width, so that nothing depends on the units of the box.
            part = delta / width
            count_slope = 2 * self.sigma * part / (part.square() + self.sigma).square() / x[0].numel()
            gradient = per_image((~query.success).to(x.dtype) * width, x) * slope + count_slope
            gradient = gradient / per_image(gradient.flatten(1).abs().amax(1).clamp_min(SMALL), x)
            metric = adam.metric(gradient, step + 1)
            moved = clip(delta - adam.step(width * rate, metric, step + 1), low, high)
            rate = cosine_decay(step, self.steps, self.rate, 0.1 * self.rate)
            change = self.threshold_rate * rate
            threshold = (threshold + torch.where(query.success, change, -change)).clamp(0, 1)
            moved = torch.where(moved.abs() < per_image(threshold * width, x), 0.0, moved)
            delta = problem.delta_or_backtrack(query, moved, delta)
            query = problem.query(x + delta, grad=step < self.steps - 2)

        if self.trim:
            with problem.round():
                self._restore(problem)

    def _restore(self, problem: Problem) -> None:
        """One query with a gradient at the best points, then ``trim`` forwards, each with fewer changed values."""
        x = problem.x
        low, high = bounds(problem.box, x)
        problem.release(~problem.found)
        delta = problem.best_point - x
        query = problem.query(problem.best_point)
        slope = query.margin_gradient()
        full = torch.where(slope < 0, high, torch.where(slope > 0, low, delta)).flatten(1)
        kept = (delta != 0).flatten(1)
        gain = torch.where(kept, -(slope * delta).flatten(1), torch.inf)
        rank = ranks(gain.argsort(dim=1, stable=True))
        count = kept.sum(1)
        at, group = torch.zeros_like(count), (count // 4).clamp_min(1)
        for _ in range(self.trim):
            problem.release((at >= count) | (kept.sum(1) <= 1))
            drop = (rank >= at.unsqueeze(1)) & (rank < (at + group).unsqueeze(1))
            query = problem.query(x + torch.where(kept & ~drop, full, 0.0).reshape(x.shape), grad=False)
            kept = torch.where(query.success.unsqueeze(1), kept & ~drop, kept)
            # A single value that is needed is skipped; a group is tried again in halves.
            at = torch.where(query.success, at + group, torch.where(group > 1, at, at + 1))
            group = torch.where(query.success, 2 * group, group // 2)
            group = torch.minimum(group, count - at).clamp_min(1)
