"""Batches filled up to a least size, because torch's CPU kernels round tiny batches differently."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...goals.outputs import first_rows
from .borrowing import Model

LEAST = 4
"""From this many rows on torch's CPU kernels give a row the same bits whatever the batch (measured on convolutions and
linear layers)."""


def filled(model: Model, x: Tensor, size: int) -> Any:
    """What the model returns for ``x`` (B, ...) in a batch of at least ``size`` rows: the last image stands in for what
    is missing, and no gradient comes from it twice."""
    missing = size - len(x)
    if missing <= 0 or not len(x):
        return model(x)
    return first_rows(model(torch.cat([x, x[-1:].detach().expand(missing, *x.shape[1:])])), len(x))


def steady(model: Model, device: torch.device) -> Model:
    """The model with batches of fewer than LEAST rows filled up, so that the last images of a run, or a batch size of
    one, see the same numbers.

    A hundred steps of an attack blow a difference in the last bit up to whole percents. On other devices the model is
    left alone: there the bits depend on more than this, and memory is dearer.
    """
    if device.type != "cpu":
        return model
    return _Steady(model) if isinstance(model, nn.Module) else lambda x: filled(model, x, LEAST)


class _Steady(nn.Module):
    """A module that stays a module: its weights tell precision and device, its flags can be set and put back."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner
        self.training = inner.training

    def forward(self, x: Tensor) -> Any:
        return filled(self.inner, x, LEAST)
