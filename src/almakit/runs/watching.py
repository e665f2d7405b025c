"""The model as attacks of a run call it: with somebody told of every pass, who may end it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Event
from typing import Any

from torch import Tensor, nn

from ..core.model import Model
from .failures import CalledOff


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
