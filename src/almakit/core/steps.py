"""Rules of steps that several attacks share: the first step, decays, Adam, radii, randomness of one's own for each
image."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

TINY = 1e-30


def per_image(values: Tensor, like: Tensor) -> Tensor:
    """(B,) -> (B, 1, ..., 1), to multiply images shaped like ``like`` (B, ...)."""
    return values.reshape(-1, *[1] * (like.ndim - 1))


def largest_entry(values: Tensor) -> Tensor:
    """(B,) the largest absolute entry of ``values`` (B, ...); two reductions cost less than one and a tensor of
    absolute values."""
    flat = values.flatten(1)
    return torch.maximum(flat.amax(1), -flat.amin(1))


def soft_maximum(values: Tensor, temperature: Tensor) -> Tensor:
    """(B,) T logsumexp(values / T) over ``values`` (B, N), at ``temperature`` (B,); entries of -inf do not count."""
    best = values.detach().amax(1)
    return temperature * torch.logsumexp((values - best.unsqueeze(1)) / temperature.unsqueeze(1), dim=1) + best


def deviation(values: Tensor) -> Tensor:
    """(B,) the standard deviation of each row of ``values`` (B, N)."""
    if values.dtype == torch.float32:
        return values.std(1)
    # In double precision the last bit of std depends on the other rows.
    centred = values - values.mean(1, keepdim=True)
    return (centred.square().sum(1) / (values.shape[1] - 1)).sqrt()


def choose(rows: Tensor, chosen: Tensor, others: Tensor, look: bool) -> Tensor:
    """``chosen`` (B, ...) in the marked ``rows`` (B,), ``others`` (B, ...) elsewhere; ``look`` allows reading which
    rows are marked.

    A mask over whole images is dear on a CPU, and mostly few rows are marked.
    """
    if not look:
        return torch.where(per_image(rows, chosen), chosen, others)
    places = rows.nonzero().flatten()
    return others.index_copy(0, places, chosen[places]) if len(places) else others


def ranks(order: Tensor) -> Tensor:
    """(B, N) the place of each value in the ``order`` (B, N) that an argsort found."""
    return torch.empty_like(order).scatter_(
        1, order, torch.arange(order.shape[1], device=order.device).expand_as(order)
    )


def unit(direction: Tensor) -> Tensor:
    """``direction`` (B, ...) with l2 length 1 per image, zero where it is zero."""
    length = torch.linalg.vector_norm(direction.flatten(1), dim=1)
    return direction / per_image(torch.where(length > 0, length, torch.ones_like(length)), direction)


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


def powers(base: float, exponent: Tensor) -> Tensor:
    """(B,) ``base`` to the power of ``exponent`` (B,). Not torch.pow: its last bit depends on where in the batch an
    image stands."""
    return torch.exp(exponent * math.log(base))


class ImageRandom:
    """Random numbers that belong to an image: seeded from (seed, pixels, label), so neither batch nor order nor shard
    matters."""

    def __init__(self, seed: int, x: Tensor, labels: Tensor):
        """``x`` (B, ...) the clean images, ``labels`` (B,)."""
        self.seed, self.x, self.labels = seed, x, labels
        self._generators: list[torch.Generator] | None = None

    @property
    def generators(self) -> list[torch.Generator]:
        """One CPU generator per image, made when first needed."""
        if self._generators is None:
            pixels, labels = self.x.detach().cpu().contiguous(), self.labels.tolist()
            self._generators = []
            for image, label in zip(pixels, labels, strict=True):
                digest = hashlib.sha256(f"{self.seed}:{label}:".encode() + image.numpy().tobytes()).digest()
                self._generators.append(torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1))
        return self._generators

    def again(self) -> ImageRandom:
        """The same random numbers from their beginning."""
        return ImageRandom(self.seed, self.x, self.labels)

    def take(self, rows: Tensor) -> ImageRandom:
        """The generators of the images ``rows`` (R,), shared with this one."""
        part = ImageRandom(self.seed, self.x[rows], self.labels[rows])
        part._generators = [self.generators[row] for row in rows.tolist()]
        return part

    def normal(self, rows: list[int] | None = None) -> Tensor:
        """Standard normal images (B, ...); with ``rows`` only those draw, the others are zero."""
        return self._draw(torch.randn, self.x.shape[1:], rows)

    def uniform(self, rows: list[int] | None = None) -> Tensor:
        """Images uniform in [0, 1) (B, ...); with ``rows`` only those draw, the others are zero."""
        return self._draw(torch.rand, self.x.shape[1:], rows)

    def numbers(self, count: int, rows: list[int] | None = None) -> Tensor:
        """(B, count) the same of so many numbers for each image."""
        return self._draw(torch.rand, (count,), rows)

    def _draw(self, draw: Callable[..., Tensor], shape: Sequence[int], rows: list[int] | None) -> Tensor:
        out = torch.zeros(len(self.x), *shape, dtype=self.x.dtype)
        for row in range(len(self.x)) if rows is None else rows:
            out[row] = draw(tuple(shape), generator=self.generators[row], dtype=self.x.dtype)
        return out.to(self.x.device)
