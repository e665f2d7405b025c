"""Rules of steps that several attacks share: the first step, decays, Adam, radii, randomness of one's own for each
image."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..tensors import TINY, largest_entry, per_image, powers


def first_step(
    distance_after: Callable[[Tensor], Tensor], gradient: Tensor, epsilon: float | Tensor, width: float
) -> Tensor:
    """(B,) step sizes eta with ``distance_after(eta)`` = epsilon, by a list of powers of two and 20 bisections; always
    ends.

    ``distance_after`` maps eta (B,) to the distance (B,) of the image moved by eta against ``gradient`` (B, ...) inside
    the box. Where epsilon is out of reach, the step that moves the largest gradient entry a thousand box widths is
    taken: everything that can move has moved.
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
    """(B,) 1 until ``start`` (B,), then ``floor`` ** ((step - start)/(total - start))."""
    progress = ((step - start) / (total - start).clamp_min(1)).clamp(0, 1)
    return powers(floor, progress)


def cosine_decay(step: int, total: int, first: float = 1.0, last: float = 0.01) -> float:
    """From ``first`` at step 0 to ``last`` at step ``total``, along half a cosine."""
    return last + (first - last) * (1 + math.cos(math.pi * min(step, total) / max(total, 1))) / 2


def cooled(spread: Tensor, progress: float) -> Tensor:
    """(B,) the temperature of a soft margin: from 0.2 to 0.02 times the ``spread`` (B,) of the logits as ``progress``
    goes from 0 to 1."""
    temperature: Tensor = (torch.nan_to_num(spread, nan=1.0, posinf=1.0) * 0.2 * 0.1**progress).clamp_min(TINY)
    return temperature


def linearised_change(margin: Tensor, along: Tensor, least: float, most: float) -> Tensor:
    """(B,) the relative change of a radius that brings ``margin`` (B,) to zero, to first order, between ``least`` and
    ``most``; ``along`` (B,) is how much the margin falls when the perturbation doubles."""
    wanted = torch.where(along > 0, margin.abs() / along.clamp_min(TINY), torch.ones_like(along))
    return wanted.clamp(least, most)


class Adam:
    """Running means of a gradient (B, ...) and of its square, both corrected for their start at zero: Kingma and Ba,
    *Adam*, ICLR 2015. ``age`` counts the gradients taken in: one number, or (B,) where images begin at different
    times."""

    BETA1, BETA2, TINY = 0.9, 0.999, 1e-8

    def __init__(self, x: Tensor):
        self.first, self.second = torch.zeros_like(x), torch.zeros_like(x)

    def metric(self, gradient: Tensor, age: int | Tensor) -> Tensor:
        """Takes a gradient in; (B, ...) the root of the mean square, by which a step is divided."""
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
