"""A model on loan: in eval mode with frozen parameters for as long as it is needed, and given back as it came."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ...goals.outputs import logits_of

Model = Callable[[Tensor], Any]
"""From images (B, ...) to logits (B, K), or to whatever a goal can read."""


@contextmanager
def borrowed(model: object) -> Iterator[None]:
    """Puts a module into eval mode with frozen parameters for the time of the block, and restores every flag
    afterwards."""
    if not isinstance(model, nn.Module):
        yield
        return
    modes = [(module, module.training) for module in model.modules()]
    frozen = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        # Each flag is set by hand: model.eval() may be overridden, and train() would not bring back mixed modes.
        for module, _ in modes:
            module.training = False
        for parameter in frozen:
            parameter.requires_grad_(False)
        yield
    finally:
        for module, training in modes:
            module.training = training
        for parameter in frozen:
            parameter.requires_grad_(True)


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


@torch.no_grad()
def predict(model: Model, x: Tensor) -> Any:
    """What the model says of the images ``x`` (B, ...), its logits (B, K) where it wraps them; no gradient."""
    with borrowed(model):
        return logits_of(model(x.clone()))  # some models normalise in place


class Function(nn.Module):
    """A plain function as a module."""

    def __init__(self, function: Model):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on a GPU or on the CPU."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(
        word in str(error) for word in ("out of memory", "can't allocate memory", "not enough memory")
    )
