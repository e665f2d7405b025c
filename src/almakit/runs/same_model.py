"""Is the model that a run goes on with the one it began with? Hashes see weights and files; what it answers shows the
rest."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..core.model import borrowed
from .failures import SpecChanged
from .records import ImageInfo
from .store import CLEAN, ChunkKey
from .work import Bench

SAMPLE = 16
"""So many stored images are asked about again, those the model was least sure of: there a change shows first."""


def same_answers(bench: Bench, todo: Sequence[ChunkKey]) -> None:
    """Asks the model about a sample of the images whose clean pass is stored, and refuses one that answers otherwise
    than it did then.

    One forward pass of at most ``SAMPLE`` images, which counts for none of them. Images without finite logits then are
    not asked about: a fault may have passed. A model whose answers change from pass to pass is held to no more than it
    holds itself to.
    """
    open_chunks = {key.chunk for key in todo if key.kind == CLEAN}
    stored = [info for info in bench.known.values() if info.chunk not in open_chunks and info.top]
    sample = sorted(stored, key=lambda info: (info.top[0][1], info.index))[:SAMPLE]
    if not sample:
        return
    subject, size = bench.subject, min(bench.batch, SAMPLE)
    x = bench.dataset.chunk([info.index for info in sample]).x
    with borrowed(subject.model):
        logits = subject.logits(x, size)
        apart = [_apart(info, row) for info, row in zip(sample, logits, strict=True)]
        if max(apart) <= subject.near:
            return
        other = torch.softmax(subject.logits(x, size // 2 + 1), 1) - torch.softmax(logits, 1)
    near = max(subject.near, 4 * float(torch.nan_to_num(other, nan=0.0).abs().max()))
    differing = [place for place, value in enumerate(apart) if value > near]
    if differing:
        first, now = sample[differing[0]], _says(logits[differing[0]])
        raise SpecChanged(
            f"the model {bench.spec.model} answers otherwise than when this run began: {len(differing)} of "
            f"{len(sample)} stored images that were asked about "
            f"again differ, image {first.id} for one (then class {first.top[0][0]} with {first.top[0][1]:.4f}, now "
            f"{now}). Bring the old model back (its code, "
            "what its functions and attributes refer to, its settings), or choose another folder (--out) for a new run."
        )


def _apart(info: ImageInfo, logits: Tensor) -> float:
    """The largest difference between the recorded probabilities of an image and those of ``logits`` (K,); infinite
    where they cannot be compared."""
    if not bool(torch.isfinite(logits).all()) or any(not 0 <= label < len(logits) for label, _ in info.top):
        return float("inf")
    now = torch.softmax(logits, 0)
    return max(abs(float(now[label]) - probability) for label, probability in info.top)


def _says(logits: Tensor) -> str:
    if not bool(torch.isfinite(logits).all()):
        return "no finite logits"
    probability, label = torch.softmax(logits, 0).max(0)
    return f"class {int(label)} with {float(probability):.4f}"
