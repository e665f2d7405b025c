"""Random numbers that depend only on an image and the seed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..tensors import cheap_sync

ROTATION = 7919
"""Offset by which numbers that are drawn once are rotated between calls."""


class ImageRandom:
    """Random numbers per image, seeded from (seed, pixels, label), so that they do not depend on batch, order or
    shard."""

    def __init__(self, seed: int, x: Tensor, labels: Tensor):
        """``x`` (B, ...) the clean images, ``labels`` (B,)."""
        self.seed, self.x, self.labels = seed, x, labels
        self._generators: list[torch.Generator] | None = None
        self._drawn: Tensor | None = None
        self._calls = 0

    @property
    def generators(self) -> list[torch.Generator]:
        """One CPU generator per image, created when first needed."""
        if self._generators is None:
            pixels, labels = self.x.detach().cpu().contiguous(), self.labels.tolist()
            self._generators = []
            for image, label in zip(pixels, labels, strict=True):
                digest = hashlib.sha256(f"{self.seed}:{label}:".encode() + image.numpy().tobytes()).digest()
                self._generators.append(torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1))
        return self._generators

    def again(self) -> ImageRandom:
        """A copy that starts from the beginning of the random numbers."""
        return ImageRandom(self.seed, self.x, self.labels)

    def take(self, rows: Tensor) -> ImageRandom:
        """The random numbers of the images ``rows`` (R,), with shared generators."""
        part = ImageRandom(self.seed, self.x[rows], self.labels[rows])
        part._generators = [self.generators[row] for row in rows.tolist()]
        return part

    def normal(self, rows: list[int] | None = None) -> Tensor:
        """Standard normal images (B, ...). With ``rows``, only these images draw numbers; the others are zero."""
        return self._draw(torch.randn, self.x.shape[1:], rows)

    def uniform(self, rows: list[int] | None = None) -> Tensor:
        """Images uniform in [0, 1), shape (B, ...). With ``rows``, only these images draw numbers; the others are
        zero."""
        return self._draw(torch.rand, self.x.shape[1:], rows)

    def uniform_where(self, images: Tensor) -> Tensor:
        """Images uniform in [0, 1), shape (B, ...), for the marked ``images`` (B,). If reading the marks is expensive,
        each image's numbers are drawn once and rotated in every call."""
        if cheap_sync(images.device):
            return self.uniform(images.nonzero().flatten().tolist())
        if self._drawn is None:
            self._drawn = self.uniform().flatten(1)
        self._calls += 1
        return self._drawn.roll(ROTATION * self._calls, 1).view_as(self.x)

    def numbers(self, count: int, rows: list[int] | None = None) -> Tensor:
        """``count`` uniform numbers for each image, shape (B, count)."""
        return self._draw(torch.rand, (count,), rows)

    def _draw(self, draw: Callable[..., Tensor], shape: Sequence[int], rows: list[int] | None) -> Tensor:
        out = torch.zeros(len(self.x), *shape, dtype=self.x.dtype)
        for row in range(len(self.x)) if rows is None else rows:
            out[row] = draw(tuple(shape), generator=self.generators[row], dtype=self.x.dtype)
        return out.to(self.x.device)
