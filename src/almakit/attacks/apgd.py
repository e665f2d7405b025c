"""APGD: projected gradient ascent whose step size adapts itself, in l1, l2 and linf balls of fixed radius, and its
multi-class form APGD-T."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..core import Box, DistanceLike, Problem, Query
from ..optim import bounds, clip, length, onto_ball
from ..tensors import per_image
from .fixed_epsilon import (
    FixedEpsilon,
    Loss,
    ascent_loss,
    check_loss,
    onto_grid,
    random_start,
    reached,
    safe_radius,
    sparse_signs,
)

MOMENTUM = 0.75
# l1: how much sparser a step is than the best point so far, the factor and the floor of its step sizes.
SPARSER, SMALLER, SMALLEST = 1.5, 1.5, 10.0
# With finalists: the share of the steps towards every rival, and the first step size after them, in radii.
FIRST, RESUMED = 0.11, 1.0


@dataclass(frozen=True)
class APGD(FixedEpsilon):
    """Maximises a loss inside |x' - x| <= epsilon; the step, first 2 epsilon, is halved and the best point restored
    when the loss stops growing.

    z = P(x_k + eta g/|g|), x_k+1 = P(x_k + a (z - x_k) + (1 - a)(x_k - x_k-1)), a = 0.75, P the exact projection onto
    ball and box; at checkpoints after 22 %, then ever shorter parts of the steps, eta is halved where fewer than
    ``rho`` of the steps increased the loss, or where neither eta nor the best loss has changed since the last one.
    Croce and Hein, *Reliable evaluation of adversarial robustness with an ensemble of diverse parameter-free attacks*,
    ICML 2020, Algorithm 1. In l1 the steps go along the sign of the largest gradient entries, 1.5 times sparser than
    the best perturbation, without momentum, and with ``widen`` the first 30 % and next 30 % of the steps use 3 and 2
    epsilon: Croce and Hein, *Mind the box*, ICML 2021.

    ``loss``: "ce", "dlr", "margin" (the paper's CW loss), or "targeted-dlr", which is APGD-T: one run towards each of
    the ``rivals`` likeliest other classes. With ``finalists``, the first 11 % of the steps go towards every rival, and
    the rest, from the best point, towards those whose loss is largest then. With steps of fixed length the margin
    depends on the scale of the logits as little as DLR does, and its slope does not vanish where the label is third.
    Every image leaves as soon as a point inside epsilon is found; with ``stop=False`` only when the run it was found in
    ends, as in the original. Unlike the original, sparse steps pass over pixels at the bound they are pushed against
    and round their number down. All iterates are projected onto a radius below epsilon by the rounding of x + delta, so
    a success holds the radius. No backward pass after the last query of a run.

    Args:
        loss: the loss to maximise: margin, ce, dlr, targeted-dlr (APGD-T), or in Python a function f(logits, labels) ->
            (B,).
        rivals: number of target classes of APGD-T, one run each.
        finalists: number of rivals per image that get all steps (default: all).
        rho: share of the steps that must increase the loss for the step size to stay.
        widen: l1: whether the first steps use 3 and 2 epsilon.
        stop: whether an image stops at its first success.
    """

    title = "APGD"
    does: ClassVar[tuple[str, ...] | None] = ("l1", "l2", "linf")
    cost = (
        "steps + 1 forwards, steps backwards per run (l1: steps + 3 forwards), and the clean pass; targeted-dlr "
        "makes up to 9 runs"
    )
    paper = "Croce and Hein, ICML 2020; ICML 2021 (l1)"
    presets = {"paper": {"distance": "l2", "steps": 100, "loss": "targeted-dlr", "rivals": 9}}
    ranges = {"[1, inf)": "restarts rivals finalists", "[0, 1]": "rho"}

    distance: DistanceLike = "linf"
    steps: int = 100
    loss: str | Loss = "margin"
    restarts: int = 1
    rivals: int = 9
    finalists: int | None = None
    rho: float = 0.75
    widen: bool | None = None
    stop: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_loss()

    def check_loss(self) -> None:
        check_loss(self.loss)

    def needs_classes(self) -> bool:
        return isinstance(self.loss, str) and self.loss != "margin"

    def run_at(self, problem: Problem, epsilon: Tensor) -> None:
        wide = self.widen if self.widen is not None else self.measure.norm == 1
        classes: list[Tensor | None] = [None]
        if self.loss == "targeted-dlr":
            assert problem.clean_logits is not None
            ways = problem.goal.rivals(problem.clean_logits)
            ways = None if ways is None else ways[:, : self.rivals]
            if ways is not None and self.finalists is not None and self.finalists < ways.shape[1]:
                for _ in range(self.restarts):
                    self._run_halving(problem, epsilon, ways, self.finalists, wide)
                return
            classes = [None] if ways is None else list(ways.unbind(1))
        for rival in classes:
            for _ in range(self.restarts):
                start: Tensor | None = None
                for widening, steps in self._phases(wide):
                    start, _loss = self._climb(problem, epsilon, widening, rival, steps, start)
                problem.release(reached(problem, epsilon))

    def _run_halving(self, problem: Problem, epsilon: Tensor, ways: Tensor, finalists: int, wide: bool) -> None:
        """Make a few steps towards each of ``ways`` (B, R), and the rest towards the ``finalists`` with the largest
        loss."""
        few = max(1, round(FIRST * self.steps))
        middle = round(0.43 * (self.steps - few)) if wide else 0
        begun = [self._climb(problem, epsilon, 3.0 if wide else 1.0, rival, few, None) for rival in ways.unbind(1)]
        problem.release(reached(problem, epsilon))
        points, losses = torch.stack([point for point, _ in begun], 1), torch.stack([loss for _, loss in begun], 1)
        rows = torch.arange(len(ways), device=ways.device)
        for place in losses.argsort(dim=1, descending=True, stable=True)[:, :finalists].unbind(1):
            start, rival = points[rows, place], ways[rows, place]
            if middle:
                start, _ = self._climb(problem, epsilon, 2.0, rival, middle, start)
            self._climb(problem, epsilon, 1.0, rival, self.steps - few - middle, start, RESUMED)
            problem.release(reached(problem, epsilon))

    def _phases(self, wide: bool) -> list[tuple[float, int]]:
        """Radius factors and numbers of steps; one run is one phase unless it starts in wider balls."""
        early = math.ceil(0.3 * self.steps)
        if not wide or self.steps - 2 * early < 1:
            return [(1.0, self.steps)]
        return [(3.0, early), (2.0, early), (1.0, self.steps - 2 * early)]

    def _random_point(self, problem: Problem, radius: Tensor) -> Tensor:
        """A random point (B, ...) at the distance ``radius`` (B,); in l1 noise as wide as the box, of which a
        projection leaves few values."""
        x, norm = problem.x, problem.norm
        if norm == 1:
            return x + problem.box.width * math.sqrt(x[0].numel()) * random_start(problem, 2)
        return x + per_image(radius, x) * random_start(problem, norm)

    def value(
        self, problem: Problem, query: Query, rival: Tensor | None, progress: float
    ) -> tuple[Tensor | None, Tensor]:
        """The loss that is maximised (B,), None for minus the margin, and the one that ranks points (B,); ``progress``
        runs from 0 to 1."""
        if self.loss == "margin":
            return None, -query.margin
        value = ascent_loss(self.loss, problem.goal, query.logits, rival)
        return value, value.detach()

    def _climb(
        self,
        problem: Problem,
        epsilon: Tensor,
        widening: float,
        rival: Tensor | None,
        steps: int,
        start: Tensor | None,
        size: float = 2.0,
    ) -> tuple[Tensor, Tensor]:
        """One run from ``start`` (B, ...) or a random point, in balls of ``widening`` times ``epsilon`` (B,), with
        steps of ``size`` radii at first in l2 and linf; the point of largest loss (B, ...) and this loss (B,)."""
        x, norm = problem.x, problem.norm
        radius = safe_radius(problem, widening * epsilon, norm)
        low, high = bounds(problem.box, x)
        limit, lowest = problem.grid.limit(epsilon), -problem.infinity
        if norm == float("inf"):
            ball = per_image(radius, x)
            low, high = clip(low, -ball, ball), clip(high, -ball, ball)

        def project(point: Tensor) -> Tensor:
            delta = point - x
            return x + (clip(delta, low, high) if norm == float("inf") else onto_ball(delta, radius, low, high, norm))

        point = project(self._random_point(problem, radius) if start is None else start)
        # In a run with phases, the first step is as sparse as its starting point.
        known = point if start is not None or widening > 1 else None
        climber = (
            _SparseSteps(x, problem.box, radius, steps, known)
            if norm == 1
            else _HalvedSteps(size * radius, steps, norm, self.rho)
        )
        last = point
        best_point, best_slope = point, torch.zeros_like(x)
        best_loss = x.new_full((len(x),), float("-inf"))
        for step in range(steps + 1):
            final = step == steps
            query = problem.query(onto_grid(problem, point, widening * epsilon, norm), grad=not final)
            if self.stop:
                problem.release(problem.best_distance <= limit)
            value, measured = self.value(problem, query, rival, step / steps)
            loss = torch.where(query.valid, measured, lowest)
            better = loss > best_loss
            best_point, best_loss = _where(better, point, best_point), torch.where(better, loss, best_loss)
            if final:
                break
            slope = -query.margin_gradient() if value is None else query.gradient(value)
            slope = problem.replace_zero_gradients(slope)
            best_slope = _where(better, slope, best_slope)
            problem.record(step, loss=loss, epsilon=epsilon, distance=query.distance, success=query.success)
            # After a check that says so, or logits that are not finite.
            back = climber.check(step, loss, best_loss, best_point) >= query.valid
            point, slope = _where(back, best_point, point), _where(back, best_slope, slope)
            moved = project(climber.moved(point, slope))
            if norm != 1 and step:
                moved = project(point + MOMENTUM * (moved - point) + (1 - MOMENTUM) * (point - last))
            last, point = point, moved
        return best_point, best_loss


def _where(rows: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    return torch.where(per_image(rows, yes), yes, no)


class _HalvedSteps:
    """Step sizes in l2 and linf: halved at checkpoints if the loss oscillates or no longer improves."""

    def __init__(self, size: Tensor, steps: int, norm: float, rho: float):
        self.size, self.norm, self.rho = size, norm, rho
        self.window, self.shortest, self.shrinking = (max(int(part * steps), 1) for part in (0.22, 0.06, 0.03))
        self.since = 0
        self.rises = torch.zeros_like(size)
        self.last_loss = self.best_at_check = torch.full_like(size, float("-inf"))
        self.halved = self.none = torch.zeros_like(size, dtype=torch.bool)

    def check(self, step: int, loss: Tensor, best: Tensor, best_point: Tensor) -> Tensor:
        """(B,) the images that return to their best point, from the losses (B,) of this step and the best so far."""
        if step == 0:
            self.last_loss = self.best_at_check = loss
            return self.none
        self.rises += loss > self.last_loss
        self.last_loss, self.since = loss, self.since + 1
        if self.since < self.window:
            return self.none
        self.halved = (self.rises <= self.rho * self.window) | (~self.halved & (best <= self.best_at_check))
        self.size = torch.where(self.halved, self.size / 2, self.size)
        self.best_at_check, self.rises, self.since = best, torch.zeros_like(self.rises), 0
        self.window = max(self.window - self.shrinking, self.shortest)
        return self.halved

    def moved(self, point: Tensor, slope: Tensor) -> Tensor:
        """``point`` (B, ...) a step of the current size further up the slope: along its sign (linf) or itself (l2)."""
        if self.norm == float("inf"):
            return torch.addcmul(point, per_image(self.size, slope), slope.sign())
        steepness = length(slope, 2)
        size = self.size / torch.where(steepness > 0, steepness, torch.ones_like(steepness))
        return point + per_image(size, slope) * slope


class _SparseSteps:
    """Steps in l1 along the signs of the largest entries: fewer entries as the best perturbation gets sparser, and a
    smaller step each time it does not."""

    def __init__(self, x: Tensor, box: Box, radius: Tensor, steps: int, start: Tensor | None):
        self.x, self.bounds, self.radius, self.size = x, bounds(box, x), radius, radius
        self.pixels, self.window = x[0].numel(), max(int(0.04 * steps), 1)
        self.used = torch.full_like(radius, float(self.pixels)) if start is None else _changed(start, x)
        self.share = torch.full_like(radius, 0.2) if start is None else self.used / self.pixels / SPARSER

    def check(self, step: int, loss: Tensor, best: Tensor, best_point: Tensor) -> Tensor:
        """(B,) the images that return to their best point: those whose best perturbation has become sparser."""
        if step == 0 or step % self.window:
            return torch.zeros_like(self.radius, dtype=torch.bool)
        used = _changed(best_point, self.x)
        sparser = used < 0.95 * self.used
        self.share = used / self.pixels / SPARSER
        self.size = torch.where(sparser, self.radius, torch.maximum(self.size / SMALLER, self.radius / SMALLEST))
        self.used = used
        return sparser

    def moved(self, point: Tensor, slope: Tensor) -> Tensor:
        """``point`` (B, ...) a step of l1 length ``size`` further up the slope."""
        # Rounded down: of two pixels used, a step along both could never shift weight to the steeper one.
        count = (self.share * self.pixels).long().clamp(1, self.pixels)
        signs = sparse_signs(slope, point - self.x, *self.bounds, count)
        return point + (signs * (self.size / signs.abs().sum(1).clamp_min(1)).unsqueeze(1)).reshape(slope.shape)


def _changed(point: Tensor, x: Tensor) -> Tensor:
    """(B,) how many values of ``point`` (B, ...) differ from ``x``."""
    return (point != x).flatten(1).sum(1).to(x.dtype)
