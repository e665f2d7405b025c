"""Batches filled up to a size: because tiny ones round otherwise on a CPU, or because a faster way to call the model
wants one size, ``torch.compile`` anywhere and CUDA graphs on a CUDA device. The latter are off unless asked for.

An attack's batches shrink as images finish; here they are filled up again, so that one compiled program or one recorded
graph serves all of them. Compiling takes seconds to minutes and pays for long runs only. Neither has been measured on a
GPU yet; on the CPU the results agree with eager calls up to rounding. Hooks on the model are not called while a graph
is replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import BadInput, BadModel, Unavailable
from .borrowing import Model
from .outputs import first_rows, logits_of

NONE, COMPILE, GRAPH = "none", "compile", "graph"
ACCELERATIONS = (NONE, COMPILE, GRAPH)
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


def check_acceleration(accelerate: str) -> None:
    """Raises where ``accelerate`` is not one of ACCELERATIONS."""
    if accelerate not in ACCELERATIONS:
        raise BadInput(f"accelerate={accelerate!r}: choose {', '.join(ACCELERATIONS)}.")


def accelerated(model: Model, how: str, size: int, device: torch.device, backend: str = "inductor") -> Model:
    """``model`` for batches of up to ``size`` images on ``device``: itself, compiled by ``backend``, or as a recorded
    CUDA graph."""
    if how == NONE:
        return model
    if how == COMPILE:
        return FixedBatch(model, torch.compile(model, dynamic=False, backend=backend), size)
    if device.type != "cuda":
        raise Unavailable(
            f"accelerate='graph' records CUDA graphs, and the model is on {device}; choose 'compile' or 'none'."
        )
    return FixedBatch(model, Graphed(model), size)


class FixedBatch(nn.Module):
    """Calls ``fast`` with batches of exactly ``size`` rows; ``model`` itself where less than half of one would be
    filled.

    Rows are independent, so what fills a batch up (its last image, without gradient) changes nothing but rounding.
    """

    def __init__(self, model: Model, fast: Model, size: int):
        super().__init__()
        # The model is registered where it is a module: its weights tell precision and device. ``fast`` may hold it a
        # second time.
        self.model = model
        self._fast: list[Model] = [fast]
        self.size = size
        self.training = False

    def forward(self, x: Tensor) -> Any:
        """What the model returns for ``x`` (B, ...)."""
        few = 2 * len(x) < self.size
        return self.model(x) if few or len(x) > self.size else filled(self._fast[0], x, self.size)


class Graphed:
    """A model recorded as CUDA graphs, forward and backward, at its first call; later calls of that shape replay them.

    A graph has one set of buffers: logits are copied out, and a gradient must be taken before the next call. One that
    comes later would be wrong, and is refused. ``record`` makes the graph; a test may put another way in its place.
    """

    def __init__(self, model: Model, record: Callable[[Model, Tensor], Model] | None = None):
        self.model, self.record = model, record or _record
        self.replay: Model | None = None
        self.calls = 0

    def __call__(self, x: Tensor) -> Any:
        if self.replay is None:
            self.replay = self.record(self.model, x)
        self.calls += 1
        call = self.calls
        logits = logits_of(self.replay(x))
        logits = logits.clone() if isinstance(logits, Tensor) else logits
        if isinstance(logits, Tensor) and logits.requires_grad:
            logits.register_hook(lambda gradient: self._still_there(call, gradient))
        return logits

    def _still_there(self, call: int, gradient: Tensor) -> Tensor:
        if call != self.calls:
            raise BadModel(
                "this attack asks for a gradient after a later call of the model, which a recorded graph has "
                "overwritten; use accelerate='none'."
            )
        return gradient


def _record(model: Model, x: Tensor) -> Model:
    """The model as graphs for batches shaped like ``x`` (B, ...)."""
    sample = x.detach().clone().requires_grad_(True)
    with torch.enable_grad():
        # As a function: given the module itself, torch would replace its forward for good.
        graphed: Model = torch.cuda.make_graphed_callables(lambda images: logits_of(model(images)), (sample,))
    return graphed
