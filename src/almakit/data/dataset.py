"""What a data set is: ids, labels and a way to read images, so that ten thousand photos need not be in memory at
once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..errors import BadInput, require_text
from .features import Features

IGNORED = 255
"""The class of pixels in a label map that count for nothing."""


def image_sha256(image: Tensor, classes: Tensor | None = None, truth: Tensor | None = None) -> str:
    """The sha256 of an image's values as float32 in memory order (C, H, W), little-endian: what was attacked, however
    it was stored.

    Where its pixels have ``classes`` (H, W), these follow as int32; a ``truth`` (...) of another kind as float64.
    """
    values = image.detach().to(device="cpu", dtype=torch.float32).contiguous()
    content = values.numpy().astype("<f4", copy=False).tobytes()
    if truth is not None:
        content += truth.detach().cpu().double().contiguous().numpy().astype("<f8", copy=False).tobytes()
    return hashlib.sha256(
        content if classes is None else content + classes.cpu().contiguous().numpy().astype("<i4").tobytes()
    ).hexdigest()


@dataclass(frozen=True, eq=False)
class Sample:
    """One image (C, H, W) in [0, 1] with its label; ``target`` is the class a targeted attack aims at, where the data
    set names one."""

    id: str
    image: Tensor
    label: int
    sha256: str
    target: int | None = None


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some samples together: ``x`` float32 (B, C, H, W), or (B, ...) of other data, in [0, 1], ``labels`` int64 (B,),
    ``targets`` int64 (B,) or None.

    ``maps`` int64 (B, H, W): the class of every pixel, where the data set has them, and ``truths`` (B, ...): labels
    that are no class numbers; the labels then say nothing.
    """

    ids: tuple[str, ...]
    x: Tensor
    labels: Tensor
    sha256: tuple[str, ...]
    targets: Tensor | None = None
    maps: Tensor | None = None
    truths: Tensor | None = None

    @property
    def truth(self) -> Tensor:
        """What a model should answer: the maps (B, H, W) or truths (B, ...) where there are any, else the labels
        (B,)."""
        return next(part for part in (self.maps, self.truths, self.labels) if part is not None)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled images. ``read(indices)`` returns them as float32 (B, C, H, W) in [0, 1]; everything else is known
    without reading.

    Other data than images have ``features``, which say what their values (B, ...) are in units of their own.

    For segmentation ``maps(indices)`` returns the class of every pixel, int64 (B, H, W), 255 where a pixel counts for
    nothing; ``labels`` are then all 0. So they are where ``truths`` (N, ...) are labels of another kind: several for an
    image, numbers, whatever a goal can read.
    """

    name: str
    ids: tuple[str, ...]
    labels: Tensor
    read: Callable[[Sequence[int]], Tensor]
    targets: Tensor | None = None
    class_names: tuple[str, ...] | None = None
    alphabetical: bool = False  # labels are places in alphabetical order: what a model calls 3 may be another class
    maps: Callable[[Sequence[int]], Tensor] | None = None
    features: Features | None = None
    truths: Tensor | None = None

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.labels) or (self.targets is not None and len(self.targets) != len(self.ids)):
            raise BadInput(
                f"{self.name} has {len(self.ids)} images and {len(self.labels)} labels; each image needs one label."
            )
        for name in (self.name, *self.ids, *(self.class_names or ())):
            require_text(name, "a name in the data set")
        if len(set(self.ids)) != len(self.ids):
            raise BadInput(f"{self.name} lists an image twice; every id may occur once.")

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, {len(self)} images)"

    def __iter__(self) -> Iterator[Sample]:
        for index in range(len(self)):
            one = self.chunk([index])
            target = None if one.targets is None else int(one.targets[0])
            yield Sample(one.ids[0], one.x[0], int(one.labels[0]), one.sha256[0], target)

    def chunk(self, indices: Sequence[int]) -> Chunk:
        """The samples at these positions."""
        chosen = [int(index) for index in indices]
        if any(not -len(self) <= index < len(self) for index in chosen):
            raise BadInput(f"{self.name} has {len(self)} images; positions must lie below that.")
        chosen = [index % len(self) for index in chosen]
        x = self.read(chosen)
        if len(x) != len(chosen) or x.dtype != torch.float32 or not self._fits(x):
            raise BadInput(
                f"{self.name} was read as {x.dtype} of shape {tuple(x.shape)}; it must be float32 of shape "
                f"({len(chosen)}, {'C, H, W' if self.features is None else str(self.features.lo.shape).strip('(,)')})."
            )
        rows = torch.tensor(chosen, dtype=torch.long)
        targets = None if self.targets is None else self.targets[rows]
        maps = None if self.maps is None else self.maps(chosen)
        if maps is not None and (maps.shape != (len(x), *x.shape[2:]) or maps.dtype != torch.int64):
            raise BadInput(
                f"the label maps of {self.name} have shape {tuple(maps.shape)}, its images {tuple(x.shape)}; each "
                "image needs a class per pixel."
            )
        truths = None if self.truths is None else self.truths[rows]
        hashes = (
            image_sha256(image, None if maps is None else maps[row], None if truths is None else truths[row])
            for row, image in enumerate(x)
        )
        ids = tuple(self.ids[index] for index in chosen)
        return Chunk(ids, x, self.labels[rows], tuple(hashes), targets, maps, truths)

    def _fits(self, x: Tensor) -> bool:
        return x.ndim == 4 if self.features is None else tuple(x.shape[1:]) == self.features.lo.shape

    def chunks(self, size: int) -> Iterator[Chunk]:
        """All samples in order, at most ``size`` at a time."""
        if size < 1:
            raise BadInput(f"a chunk holds at least one image, not {size}.")
        for first in range(0, len(self), size):
            yield self.chunk(range(first, min(first + size, len(self))))

    def tensors(self) -> tuple[Tensor, Tensor]:
        """All images float32 (N, C, H, W) in [0, 1] and their labels int64 (N,), or label maps (N, H, W)."""
        everything = range(len(self))
        labels = self.labels if self.truths is None else self.truths
        return self.read(everything), labels.clone() if self.maps is None else self.maps(everything)

    def numbered_as(self, known: Sequence[str] | None) -> Dataset:
        """Where labels are places in alphabetical order: those of the classes of the same names in ``known``, if it has
        them all; else itself."""
        if not known or not self.alphabetical or self.class_names is None:
            return self
        places: dict[str, list[int]] = {}
        for number, name in enumerate(known):
            places.setdefault(_plain(name), []).append(number)
        own = [places.get(_plain(name), []) for name in self.class_names]
        if any(len(found) != 1 for found in own):
            return self
        numbers = torch.tensor([found[0] for found in own])
        return replace(self, labels=numbers[self.labels], class_names=tuple(map(str, known)), alphabetical=False)

    def select(self, indices: Sequence[int]) -> Dataset:
        """The same data set restricted to these positions; the images keep their ids."""
        chosen = [range(len(self))[index] for index in indices]
        rows = torch.tensor(chosen, dtype=torch.long)
        outer, classes = self.read, self.maps
        return replace(
            self,
            ids=tuple(self.ids[index] for index in chosen),
            labels=self.labels[rows],
            targets=None if self.targets is None else self.targets[rows],
            read=lambda rows: outer([chosen[index] for index in rows]),
            truths=None if self.truths is None else self.truths[rows],
            maps=None if classes is None else lambda rows: classes([chosen[index] for index in rows]),
        )


def _plain(name: str) -> str:
    """A class name without case and punctuation."""
    return re.sub(r"[\W_]+", " ", str(name)).strip().lower()
