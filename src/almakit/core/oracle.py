"""The model as an attack may use it: called in eval mode with frozen parameters and in its own precision, and given back as it came."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..errors import BadModel

Model = Callable[[Tensor], Any]
"""From images (B, ...) to logits (B, K), or to a record with an entry ``logits``."""


@contextmanager
def borrowed(model: Model) -> Iterator[None]:
    """Puts a module into eval mode with frozen parameters for the time of the block, and restores every flag afterwards."""
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


class Oracle:
    """Calls the model on (R, ...) images in the working precision and returns logits (R, K) in the same precision."""

    rank: ClassVar[int] = 2
    shape: ClassVar[str] = "(batch, classes)"

    def __init__(self, model: Model, working: torch.dtype, autocast: torch.dtype | None = None):
        # ``plain`` is the model as it came where ``model`` is a faster way to call it.
        self.model, self.plain, self.working, self.autocast = model, model, working, autocast
        self.native, self.device = precision_and_device(model)
        self.precision = autocast or self.native or working
        self.classes: int | None = None  # as the first answer had them

    def place(self, tensor: Tensor) -> Tensor:
        """``tensor`` on the model's device."""
        return tensor if self.device is None else tensor.to(self.device)

    def __call__(self, images: Tensor, exact: bool = False) -> Tensor:
        """Logits (R, K) of ``images`` (R, ...); ``exact`` leaves autocast out."""
        # A copy: a model that normalises in place must change neither the caller's images nor the leaf of the graph.
        inputs = images.to(self.native or images.dtype, copy=True)
        low = self.autocast is not None and not exact
        # No cache: frozen weights are never in it, and a CUDA graph must not be recorded with one.
        with torch.autocast(images.device.type, dtype=self.autocast, cache_enabled=False) if low else nullcontext():
            logits = logits_of(self.model(inputs))
        if not isinstance(logits, Tensor) or logits.ndim != self.rank or len(logits) != len(images):
            got = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
            raise BadModel(
                f"the model must return logits of shape {self.shape}; for {len(images)} images it returned {got}. "
                "Wrap it in a function that returns the logits alone."
            )
        if logits.shape[1] < 2:
            raise BadModel("the model returns a single logit; stack (-z/2, z/2) to make a two-class classifier of it.")
        if logits.shape[1] != self.classes:
            if self.classes is not None:
                raise BadModel(f"the model returned {logits.shape[1]} logits for an image and {self.classes} before; it must always have the same classes.")
            self.classes = logits.shape[1]
        if not low and logits.dtype in (torch.float16, torch.bfloat16):
            self.precision = logits.dtype
        return logits.to(self.working)


def logits_of(output: Any) -> Any:
    """What a model returned, or its entry ``logits`` where it returned a record with one, as those of transformers do.

    The room of models does not know this one and says the same in ``classifier.wrapped_logits``.
    """
    if isinstance(output, Tensor):
        return output
    inner = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    return inner if isinstance(inner, Tensor) else output


def precision_and_device(model: Model) -> tuple[torch.dtype | None, torch.device | None]:
    """The dtype and device of a module's first floating-point parameter or buffer; None for a plain function."""
    if isinstance(model, nn.Module):
        for tensors in (model.parameters(), model.buffers()):
            for tensor in tensors:
                if tensor.device.type == "meta":
                    raise BadModel("the model's weights are on the device meta, which holds shapes and no values; load it onto the CPU or a GPU.")
                if tensor.is_floating_point():
                    return tensor.dtype, tensor.device
    return None, None


def check_outputs(logits: Tensor) -> None:
    """Warns where clean logits (B, K) look like probabilities."""
    rows = logits.detach().double()
    finite = rows[torch.isfinite(rows).all(1)]
    if len(finite) and bool(((finite >= 0) & (finite <= 1)).all()) and bool(((finite.sum(1) - 1).abs() < 1e-3).all()):
        warnings.warn(
            "the model's outputs look like probabilities (in [0, 1], summing to 1); gradients vanish there. "
            "Give the logits before the softmax for results that mean something.",
            stacklevel=4,
        )


def check_deterministic(oracle: Oracle, x: Tensor, clean: Tensor) -> None:
    """Asks for the first image alone and compares with its row of the clean pass: ``x`` (B, ...), ``clean`` (B, K)."""
    with torch.no_grad():
        again = oracle(x[:1]).double()
    before = clean[:1].detach().double()
    scale = before.abs().amax().clamp_min(1e-6)
    allowed = {torch.bfloat16: 0.1, torch.float16: 0.05}.get(oracle.precision, 1e-3)
    if bool(torch.isfinite(before).all()) and not bool(((again - before).abs() <= allowed * scale).all()):
        raise BadModel(
            "the model is not deterministic: the same image got different logits twice (random layers, or a dependence on the rest of the "
            "batch). Fix its randomness, or pass check=False if you know what the numbers will mean."
        )
