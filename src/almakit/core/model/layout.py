"""How long a pass takes, and the memory layout of a model's weights for the time of an attack: channels_last makes
convolutions and poolings faster on many machines.

Another layout changes the last bits of the logits, so a choice that timing makes must not be made twice in one run: it
is off unless asked for, and an evaluation records what it chose.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ...errors import BadInput
from .borrowing import Model, borrowed
from .outputs import logits_of

AUTO, CONTIGUOUS, CHANNELS_LAST = "auto", "contiguous", "channels_last"
LAYOUTS = (AUTO, CONTIGUOUS, CHANNELS_LAST)
WORTHWHILE = 0.95
"""channels_last is taken from this part of the time on: below it lies what other programs do to a measurement."""


def check_layout(layout: str) -> None:
    """Raises where ``layout`` is not one of LAYOUTS."""
    if layout not in LAYOUTS:
        raise BadInput(f"layout={layout!r}: choose {', '.join(LAYOUTS)}.")


@contextmanager
def laid_out(model: Model, layout: str) -> Iterator[None]:
    """Gives a module's convolution weights the layout for the time of the block; afterwards the very tensors it came
    with are back.

    torch's convolutions follow their weights: images need not be converted, and what lies between two convolutions
    stays in the layout. A plain function has no weights to be seen, and ``contiguous`` means as the model came: nothing
    happens.
    """
    if layout != CHANNELS_LAST or not isinstance(model, nn.Module):
        yield
        return
    before = [(weight, weight.data) for weight in _convolution_weights(model)]
    try:
        for weight, data in before:
            weight.data = data.contiguous(memory_format=torch.channels_last)
        yield
    finally:
        for weight, data in before:
            weight.data = data


def _convolution_weights(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.ndim == 4]


def faster_layout(model: Model, x: Tensor, seconds: float = 2.0) -> str:
    """The layout in which a forward and backward pass of ``x`` (B, C, H, W) is faster: the two take turns, the fastest
    of each counts.

    ``contiguous`` where the model has no convolutions to be seen, and unless channels_last saves 5 % or more.
    """
    if x.ndim != 4 or not isinstance(model, nn.Module) or not _convolution_weights(model):
        return CONTIGUOUS
    best = {CONTIGUOUS: float("inf"), CHANNELS_LAST: float("inf")}
    began, rounds = time.perf_counter(), 0
    with borrowed(model):
        while rounds < 3 or (rounds < 12 and time.perf_counter() - began < seconds):
            for layout in best:
                with laid_out(model, layout):
                    best[layout] = min(best[layout], pass_seconds(model, x))
            rounds += 1
            if rounds == 1:  # the first passes also build what torch keeps for the rest
                best = dict.fromkeys(best, float("inf"))
    return CHANNELS_LAST if best[CHANNELS_LAST] < WORTHWHILE * best[CONTIGUOUS] else CONTIGUOUS


def pass_seconds(model: Model, x: Tensor, autocast: torch.dtype | None = None) -> float:
    """How long a forward and backward pass of ``x`` (B, ...) takes: the one timing of a model. A model without
    gradients is timed forward."""
    # On one thread of a CPU processor time counts: other programs must not make a choice.
    clock = time.process_time if x.device.type == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    low = torch.autocast(x.device.type, autocast, autocast is not None, cache_enabled=False)
    began = clock()
    with torch.inference_mode(False), torch.enable_grad():
        leaf = x.detach().clone().requires_grad_(True)
        with low:
            logits = logits_of(model(leaf.clone()))
        if isinstance(logits, Tensor) and logits.requires_grad:
            # Reading a number waits for the device.
            float(torch.autograd.grad(logits.float().sum(), leaf)[0].flatten()[0])
    return max(clock() - began, 1e-9)
