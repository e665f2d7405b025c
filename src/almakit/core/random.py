"""Random numbers that belong to an image."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..tensors import cheap_sync

ROTATION = 7919
"""Values by which numbers drawn once are rotated from call to call."""


class ImageRandom:
    """Random numbers that belong to an image: seeded from (seed, pixels, label), so neither batch nor order nor shard
    matters."""

    def __init__(self, seed: int, x: Tensor, labels: Tensor):
        """``x`` (B, ...) the clean images, ``labels`` (B,)."""
        self.seed, self.x, self.labels = seed, x, labels
        self._generators: list[torch.Generator] | None = None
        self._drawn: Tensor | None = None
        self._calls = 0

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

    def uniform_where(self, images: Tensor) -> Tensor:
        """Images uniform in [0, 1) (B, ...) for the marked ``images`` (B,). Where reading the marks is expensive, each
        image's numbers are drawn once and rotated for every call."""
        if cheap_sync(images.device):
            return self.uniform(images.nonzero().flatten().tolist())
        if self._drawn is None:
            self._drawn = self.uniform().flatten(1)
        self._calls += 1
        return self._drawn.roll(ROTATION * self._calls, 1).view_as(self.x)

    def numbers(self, count: int, rows: list[int] | None = None) -> Tensor:
        """(B, count) the same of so many numbers for each image."""
        return self._draw(torch.rand, (count,), rows)

    def _draw(self, draw: Callable[..., Tensor], shape: Sequence[int], rows: list[int] | None) -> Tensor:
        out = torch.zeros(len(self.x), *shape, dtype=self.x.dtype)
        for row in range(len(self.x)) if rows is None else rows:
            out[row] = draw(tuple(shape), generator=self.generators[row], dtype=self.x.dtype)
        return out.to(self.x.device)
