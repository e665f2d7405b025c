"""A model with randomness of its own: asked several times about each image, with random numbers that belong to the
image."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
import torch
from torch import Tensor

from ...errors import BadInput


@dataclass(frozen=True)
class Draws:
    """How a random model is attacked and judged: gradients are means over ``eot`` passes, and a point counts where the
    goal is reached in at least a ``share`` of ``votes`` fresh passes.

    The random numbers of a pass come from the image it is about, ``seed`` and ``purpose``, whatever the batch: torch's,
    NumPy's and Python's global generators are set before it and put back. Randomness from elsewhere is not held.
    """

    eot: int
    votes: int = 100
    share: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("eot", "votes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or not 1 <= int(value) <= 100_000:
                raise BadInput(f"{name}={value!r}: how many passes, a whole number from 1 to 100000.")
        if isinstance(self.share, bool) or not isinstance(self.share, Real) or not 0 < self.share <= 1:
            raise BadInput(f"vote_share={self.share!r}: the part of the passes, above 0 and at most 1.")

    @contextmanager
    def of(self, image: Tensor, purpose: str) -> Iterator[None]:
        """The random numbers of passes about ``image`` (...), for one purpose."""
        content = image.detach().to(device="cpu", dtype=torch.float64).contiguous().numpy().tobytes()
        digest = hashlib.sha256(f"{self.seed}:{purpose}:".encode() + content).digest()
        with seeded(int.from_bytes(digest[:4], "big"), image.device):
            yield


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seeds the global generators of torch, numpy and Python for the time of the block, and puts them back."""
    state, python = np.random.get_state(), random.getstate()
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(state)
            random.setstate(python)
