"""The class of data sets: ids, labels and a function that reads images when they are needed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..errors import BadInput, require_text
from .features import Features

IGNORED = 255
"""The class of ignored pixels in a label map."""


def image_sha256(image: Tensor, classes: Tensor | None = None, truth: Tensor | None = None) -> str:
    """The sha256 of an image's values as little-endian float32 (C, H, W), then of a ``truth`` (...) as float64, then of
    its pixels' ``classes`` (H, W) as int32."""
    digest = hashlib.sha256()
    for values, kind in ((image, "<f4"), (truth, "<f8"), (classes, "<i4")):
        if values is not None:
            digest.update(np.ascontiguousarray(values.detach().cpu().numpy()).astype(kind).tobytes())
    return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some samples together: ``x`` float32 (B, C, H, W), or (B, ...) of other data, in [0, 1], ``labels`` int64 (B,),
    ``targets`` int64 (B,) or None.

    ``maps`` int64 (B, H, W): the class of every pixel. ``truths`` (B, ...): labels that are not class numbers. If one
    of them is present, ``labels`` are not used.
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
        """The true answers: the maps (B, H, W) or truths (B, ...) if present, else the labels (B,)."""
        return next(part for part in (self.maps, self.truths, self.labels) if part is not None)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled images. ``read(indices)`` returns them as float32 (B, C, H, W) in [0, 1]; everything else is known
    without reading.

    Data other than images have ``features``, which describe their values (B, ...) in their own units.

    For segmentation, ``maps(indices)`` returns the class of every pixel, int64 (B, H, W), 255 for ignored pixels.
    ``truths`` (N, ...) are labels of another kind, which a goal reads: several per image, or numbers. In both cases
    ``labels`` are all 0.
    """

    name: str
    ids: tuple[str, ...]
    labels: Tensor
    read: Callable[[Sequence[int]], Tensor]
    targets: Tensor | None = None
    class_names: tuple[str, ...] | None = None
    alphabetical: bool = False  # labels number the classes alphabetically, the model may not
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

    def chunk(self, indices: Sequence[int]) -> Chunk:
        """The samples at these positions."""
        chosen = [range(len(self))[index] for index in indices]
        x = self.read(chosen)
        expected = "(C, H, W)" if self.features is None else str(self.features.lo.shape)
        fits = x.ndim == 4 if self.features is None else tuple(x.shape[1:]) == self.features.lo.shape
        if len(x) != len(chosen) or x.dtype != torch.float32 or not fits:
            got = f"{x.dtype} of shape {tuple(x.shape)}"
            raise BadInput(f"{self.name} was read as {got}; expected {len(chosen)} float32 images of shape {expected}.")
        rows = torch.tensor(chosen, dtype=torch.long)
        maps = None if self.maps is None else self.maps(chosen)
        if maps is not None and (maps.shape != (len(x), *x.shape[2:]) or maps.dtype != torch.int64):
            sides = f"label maps of shape {tuple(maps.shape)} for images of shape {tuple(x.shape)}"
            raise BadInput(f"{self.name} has {sides}; each image needs a class per pixel.")
        targets, truths = (None if part is None else part[rows] for part in (self.targets, self.truths))
        hashes = (
            image_sha256(image, None if maps is None else maps[row], None if truths is None else truths[row])
            for row, image in enumerate(x)
        )
        ids = tuple(self.ids[index] for index in chosen)
        return Chunk(ids, x, self.labels[rows], tuple(hashes), targets, maps, truths)

    def chunks(self, size: int) -> Iterator[Chunk]:
        """All samples in order, at most ``size`` at a time."""
        for first in range(0, len(self), size):
            yield self.chunk(range(first, min(first + size, len(self))))

    def tensors(self) -> tuple[Tensor, Tensor]:
        """All images float32 (N, C, H, W) in [0, 1] and their labels int64 (N,), or label maps (N, H, W)."""
        everything = range(len(self))
        labels = self.labels if self.truths is None else self.truths
        return self.read(everything), labels.clone() if self.maps is None else self.maps(everything)

    def numbered_as(self, known: Sequence[str] | None) -> Dataset:
        """If labels number the classes in alphabetical order, the data set with the labels of the same names in
        ``known``, if it has them all; otherwise unchanged. Case and punctuation do not count unless all names are
        equal."""
        if not known or not self.alphabetical or self.class_names is None:
            return self
        names, own = list(map(str, known)), list(self.class_names)
        if not set(own) <= set(names):
            names, own = ([re.sub(r"[\W_]+", " ", name).strip().lower() for name in part] for part in (names, own))
        if any(names.count(name) != 1 for name in own):
            return self
        numbers = torch.tensor([names.index(name) for name in own])
        targets = None if self.targets is None else numbers[self.targets]
        numbered = replace(self, labels=numbers[self.labels], targets=targets)
        return replace(numbered, class_names=tuple(map(str, known)), alphabetical=False)

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
