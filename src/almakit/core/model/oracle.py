"""The model as an attack may use it: called in its own precision, counted, and watched while it is on loan."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import BadModel
from ...goals.outputs import logits_of
from .backward import NO_GRADIENT
from .borrowing import Model
from .draws import Draws

Read = Callable[[Any, int], Tensor]
"""From a model's answer for so many images to the outputs (B, ...) that a goal needs."""


class Oracle:
    """Calls the model on (R, ...) images in the working precision and returns the outputs (R, ...) that ``read`` finds
    in its answer, in the same precision."""

    def __init__(
        self,
        model: Model,
        working: torch.dtype,
        autocast: torch.dtype | None = None,
        read: Read | None = None,
        draws: Draws | None = None,
        surrogate: Model | None = None,
    ):
        self.model, self.working, self.autocast = model, working, autocast
        self.native, self.device = precision_and_device(model)
        self.precision = autocast or self.native or working
        self.read: Read = read or (lambda answer, images: logits_of(answer))
        self.shape: torch.Size | None = None  # of one image's outputs, as the first answer had them
        self.rows = 0  # images that went through the model, whoever sent them
        self.draws = draws  # of a random model: its outputs are then means over several passes for each image
        # Another model that gradients come from, while the outputs stay this one's.
        self.surrogate = None if surrogate is None else Oracle(surrogate, working, read=read)
        self._exact: Oracle | None = None

    @property
    def exact(self) -> Oracle:
        """The same model without autocast."""
        if self.autocast is None:
            return self
        if self._exact is None:
            self._exact = Oracle(self.model, self.working, read=self.read, draws=self.draws)
        return self._exact

    @property
    def asked(self) -> int:
        """How many images went through the model in either way."""
        return self.rows + (0 if self._exact is None else self._exact.rows)

    def place(self, tensor: Tensor) -> Tensor:
        """``tensor`` on the model's device."""
        return tensor if self.device is None else tensor.to(self.device)

    def __call__(self, images: Tensor) -> Tensor:
        """Outputs (R, ...) of ``images`` (R, ...); means over so many passes each where the model is random."""
        if self.draws is not None:
            return torch.stack([self.drawn(image, self.draws.eot, "attack").mean(0) for image in images])
        return self._asked(images)

    def drawn(self, image: Tensor, passes: int, purpose: str) -> Tensor:
        """Outputs (M, ...) of one ``image`` (...) in so many passes of a random model, in calls of at most 256 rows,
        with the random numbers that the image has for this purpose."""
        assert self.draws is not None
        with self.draws.of(image, purpose):
            counts = [min(256, passes - begun) for begun in range(0, passes, 256)]
            return torch.cat([self._asked(image.expand(count, *image.shape)) for count in counts])

    def _asked(self, images: Tensor) -> Tensor:
        if self.surrogate is None or not (images.requires_grad and torch.is_grad_enabled()):
            return self._answer(images)
        with torch.no_grad():
            outputs = self._answer(images.detach())
        lent = self.surrogate(images).to(outputs.device)
        if lent.shape != outputs.shape:
            raise BadModel(
                f"the surrogate's outputs have shape {tuple(lent.shape)} and the model's {tuple(outputs.shape)}; its "
                "gradients can stand in for the model's where both have the same classes."
            )
        # The difference is zero and has the surrogate's gradient.
        return outputs + torch.where(torch.isfinite(lent), lent - lent.detach(), torch.zeros_like(lent))

    def _answer(self, images: Tensor) -> Tensor:
        self.rows += len(images)
        # A copy: a model that normalises in place must change neither the caller's images nor the leaf of the graph.
        inputs = images.to(self.native or images.dtype, copy=True)
        low = self.autocast is not None
        try:
            with torch.autocast(images.device.type, dtype=self.autocast, cache_enabled=False) if low else nullcontext():
                outputs = self.read(self.model(inputs), len(images))
        except RuntimeError as error:
            # A model that computes in numpy fails as soon as a gradient is asked for.
            if inputs.requires_grad and "on Tensor that requires grad" in str(error):
                raise BadModel(NO_GRADIENT) from error
            raise
        if outputs.shape[1:] != self.shape:
            if self.shape is not None:
                now, before = (
                    str(shape[0]) if len(shape) == 1 else f"{tuple(shape)}" for shape in (outputs.shape[1:], self.shape)
                )
                raise BadModel(
                    f"the model returned {now} logits for an image and {before} before; it must always have the same "
                    "classes."
                )
            self.shape = outputs.shape[1:]
        if not low and outputs.dtype in (torch.float16, torch.bfloat16):
            self.precision = outputs.dtype
        return outputs.to(self.working)


def precision_and_device(model: Model) -> tuple[torch.dtype | None, torch.device | None]:
    """The dtype and device of a module's first floating-point parameter or buffer; None for a plain function."""
    if isinstance(model, nn.Module):
        for tensors in (model.parameters(), model.buffers()):
            for tensor in tensors:
                if tensor.device.type == "meta":
                    raise BadModel(
                        "the model's weights are on the device meta, which holds shapes and no values; load it onto "
                        "the CPU or a GPU."
                    )
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


def probe_rows(count: int) -> list[int]:
    """The rows of a batch of ``count`` images that are asked about alone as well: the first, one of odd index in the
    middle and the last."""
    return sorted({0, min(count // 2 | 1, count - 1), count - 1})


@torch.no_grad()
def outputs_alone(oracle: Oracle, x: Tensor) -> Tensor:
    """Outputs (P, ...) of the ``probe_rows`` of ``x`` (B, ...), each image in a call of its own."""
    return torch.cat([oracle(x[row : row + 1]) for row in probe_rows(len(x))])


def check_deterministic(oracle: Oracle, alone: Tensor, clean: Tensor) -> None:
    """Compares the outputs ``alone`` (P, ...) of the ``probe_rows`` with theirs in the ``clean`` pass (B, ...)."""
    before, again = clean[probe_rows(len(clean))].detach().double().flatten(1), alone.double().flatten(1)
    scale = before.abs().amax(1, keepdim=True).clamp_min(1e-6)
    allowed = {torch.bfloat16: 0.1, torch.float16: 0.05}.get(oracle.precision, 1e-3)
    same = ((again - before).abs() <= allowed * scale).all(1)
    if not bool((same | ~torch.isfinite(before).all(1)).all()):
        raise BadModel(
            "the model is not deterministic: the same image got different logits twice (random layers, or a dependence "
            "on the rest of the batch). Fix its randomness, or pass check=False if you know what the numbers will mean."
        )
