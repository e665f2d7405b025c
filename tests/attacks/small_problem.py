"""A small smooth classifier with double-precision images, shared by the tests of single attacks."""

from __future__ import annotations

from typing import Any

import torch
from laws.models import RowWise
from torch import Tensor

from almakit.core import Attack, Result

SHAPE = (3, 4, 4)
X = torch.rand(5, *SHAPE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
MODEL = RowWise(SHAPE).double().eval()
with torch.no_grad():
    CLEAN = MODEL(X)
LABELS = CLEAN.argmax(1)
SECOND = CLEAN.argsort(1, descending=True)[:, 1]


def fools(images: Tensor) -> Tensor:
    """(B,) whether each image leaves its label in a fresh forward."""
    with torch.no_grad():
        return MODEL(images).argmax(1) != LABELS


def traced(attack: Attack, **options: Any) -> tuple[Result, list[dict[str, Any]]]:
    """A result and the notes of its trace."""
    notes: list[dict[str, Any]] = []
    return attack(MODEL, X, LABELS, trace=notes.append, **options), notes
