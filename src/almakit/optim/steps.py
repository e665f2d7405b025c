"""Step rules used by several attacks: first step, decays, temperatures, radii, Adam, and detection of stagnation."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..tensors import TINY, largest_entry, per_image, powers


def first_step(
    distance_after: Callable[[Tensor], Tensor], gradient: Tensor, epsilon: float | Tensor, width: float
) -> Tensor:
    """Step sizes eta with ``distance_after(eta)`` = epsilon, by powers of two and 20 bisections.

    If epsilon cannot be reached, the step moves the largest gradient entry by a thousand box widths, so that every
    value that can move has moved.

    Args:
        distance_after: maps eta (B,) to the distance (B,) of the images moved by eta against the gradient in the box.
        gradient: direction of the step, shape (B, ...).
        epsilon: the distance to reach, a number or of shape (B,).
        width: width of the box.

    Returns:
        Step sizes, shape (B,).
    """
    largest = largest_entry(gradient)
    unit = width / torch.where(largest > 0, largest, torch.ones_like(largest))
    # The bracket is the first of these powers of two that goes far enough and the one before it, found by halving the
    # list. A NaN distance counts as far enough: the comparison is false.
    powers = torch.tensor([2.0**power for power in range(-20, 11)], dtype=unit.dtype, device=unit.device)
    first, last = torch.zeros_like(unit, dtype=torch.long), torch.full_like(unit, len(powers) - 1, dtype=torch.long)
    for _ in range(5):
        middle_power = (first + last) // 2
        short = distance_after(unit * powers[middle_power]) < epsilon
        first, last = (
            torch.where(short & (first < last), middle_power + 1, first),
            torch.where(short, last, middle_power),
        )
    high = unit * powers[first]
    low = torch.where(first > 0, high / 2, torch.zeros_like(high))
    for _ in range(20):
        middle = (low + high) / 2
        short = distance_after(middle) < epsilon
        low, high = torch.where(short, middle, low), torch.where(short, high, middle)
    return high


def exponential_decay(step: Tensor | int, start: Tensor, total: int, floor: float = 0.01) -> Tensor:
    """(B,) factors of a step size: 1 until ``start`` (B,), then floor^((step - start) / (total - start))."""
    progress = ((step - start) / (total - start).clamp_min(1)).clamp(0, 1)
    return powers(floor, progress)


def cosine_decay(step: int, total: int, first: float = 1.0, last: float = 0.01) -> float:
    """last + (first - last) (1 + cos(pi step / total)) / 2: from ``first`` at step 0 to ``last`` at ``total``."""
    return last + (first - last) * (1 + math.cos(math.pi * min(step, total) / max(total, 1))) / 2


def cooled(spread: Tensor, progress: float) -> Tensor:
    """(B,) the temperature of a soft margin: 0.2 * 0.1^progress times the ``spread`` (B,) of the logits."""
    temperature: Tensor = spread * (0.2 * 0.1**progress)
    return temperature.clamp_min(TINY)


def linearised_change(margin: Tensor, along: Tensor, least: float, most: float) -> Tensor:
    """Relative change of a radius that brings the margin to zero to first order: |margin| / along, clamped.

    Args:
        margin: margins, shape (B,).
        along: decrease of the margin when the perturbation doubles, <-grad margin, delta>, shape (B,).
        least: smallest change.
        most: largest change.
    """
    return (margin.abs() / along.clamp_min(TINY)).clamp(least, most)


class Adam:
    """Adam: step m / sqrt(v), with running means m of the gradient and v of its square, corrected for their start.

    Kingma and Ba, *Adam: a method for stochastic optimization*, ICLR 2015, Algorithm 1. ``age`` is the number of
    gradients seen: a number, or of shape (B,) if images start at different times.
    """

    BETA1, BETA2, TINY = 0.9, 0.999, 1e-8

    def __init__(self, x: Tensor):
        self.first, self.second = torch.zeros_like(x), torch.zeros_like(x)

    def metric(self, gradient: Tensor, age: int | Tensor) -> Tensor:
        """Update with a gradient. Returns the root of the mean square (B, ...), by which a step is divided."""
        self.first = self.BETA1 * self.first + (1 - self.BETA1) * gradient
        self.second = self.BETA2 * self.second + (1 - self.BETA2) * gradient.square()
        if isinstance(age, int):
            return self.second.sqrt() / math.sqrt(1 - self.BETA2**age) + self.TINY
        grown = (1 - powers(self.BETA2, age)).sqrt().to(gradient.dtype)
        return self.second.sqrt() / per_image(grown, gradient) + self.TINY

    def step(self, rate: float | Tensor, metric: Tensor, age: int | Tensor) -> Tensor:
        """(B, ...) the step of size ``rate``, one number or (B,), to be subtracted."""
        grown = 1 - self.BETA1**age if isinstance(age, int) else (1 - powers(self.BETA1, age)).to(metric.dtype)
        size = rate / grown
        return (per_image(size, metric) if isinstance(size, Tensor) else size) * self.first / metric


class Stagnation:
    """Detects images that have stopped improving, from the best loss at a check and at the previous one.

    Args:
        x: images, shape (B, ...).
        every: steps between two checks.
        improvement: factor that the best loss must have fallen by.
    """

    def __init__(self, x: Tensor, every: int, improvement: float = 0.9999):
        self.every, self.improvement = max(every, 1), improvement
        self.best = x.new_full((len(x),), float("inf"))
        self.at_check = self.best.clone()

    def stalled(self, step: int, loss: Tensor) -> Tensor | None:
        """At a check (B,) the images that have not improved since the last one, else None; ``loss`` (B,) of a step."""
        self.best = torch.minimum(self.best, loss)
        if step % self.every:
            return None
        stuck = ~(self.best <= self.improvement * self.at_check)
        self.at_check = self.best
        return stuck
