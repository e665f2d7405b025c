"""The model as a run calls it: with batches that are never tiny, for on a CPU the kernels for one to three images round
otherwise; and watched."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Event
from typing import Any

import torch
from torch import Tensor, nn

from ..core.oracle import Model
from ..core.outputs import first_rows
from .failures import CalledOff

LEAST = 4
"""From this many rows on torch's CPU kernels give a row the same bits whatever the batch (measured on convolutions and
linear layers)."""


def steady(model: Model, device: torch.device) -> Model:
    """The model with batches of fewer than LEAST rows filled up, so that the last images of a run, or a batch size of
    one, see the same numbers.

    A hundred steps of an attack blow a difference in the last bit up to whole percents. On other devices the model is
    left alone: there the bits depend on more than this, and memory is dearer.
    """
    if device.type != "cpu":
        return model
    return _Filled(model) if isinstance(model, nn.Module) else lambda x: filled(model, x)


def filled(model: Model, x: Tensor) -> Any:
    """What the model returns for ``x`` (B, ...); the last image stands in for what is missing, and no gradient comes
    from it twice."""
    missing = LEAST - len(x)
    if missing <= 0 or not len(x):
        return model(x)
    return first_rows(model(torch.cat([x, x[-1:].detach().expand(missing, *x.shape[1:])])), len(x))


class _Filled(nn.Module):
    """A module that stays a module: its weights tell precision and device, its flags can be set and put back."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner
        self.training = inner.training

    def forward(self, x: Tensor) -> Any:
        return filled(self.inner, x)


def stop_when(called_off: Event) -> Callable[[int], None]:
    """For ``watched``: raises ``CalledOff`` once the event is set, the way to end an attack in another thread."""

    def look(_: int) -> None:
        if called_off.is_set():
            raise CalledOff("the work was called off")

    return look


def watched(model: Model, *looks: Callable[[int], None]) -> Model:
    """The model, with every ``look`` told the number of images before each of its passes; a module stays a module."""
    return _Watched(model, looks) if isinstance(model, nn.Module) else lambda x: _answer(model, looks, x)


def _answer(model: Model, looks: Iterable[Callable[[int], None]], x: Tensor) -> Any:
    for look in looks:
        look(len(x))
    return model(x)


class _Watched(nn.Module):
    def __init__(self, inner: nn.Module, looks: tuple[Callable[[int], None], ...]):
        super().__init__()
        self.inner, self.looks, self.training = inner, looks, inner.training

    def forward(self, x: Tensor) -> Any:
        return _answer(self.inner, self.looks, x)
