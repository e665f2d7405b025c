"""The only caller of the model during an attack. It uses the model's precision and counts every image."""

from __future__ import annotations

import hashlib
import random
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import BadInput, BadModel
from ..goals.outputs import first_rows, logits_of

Model = Callable[[Tensor], Any]
"""A function from images (B, ...) to logits (B, K), or to outputs that a goal can read."""
Read = Callable[[Any, int], Tensor]
"""A function from a model's answer and the number of images to the outputs (B, ...) that a goal needs."""
NO_GRADIENT = (
    "the model's logits carry no gradient, and this attack needs one: leave out torch.no_grad(), detach() and "
    "conversions to numpy inside the model, take an attack that needs none, square (scores) or hopskipjump "
    "(decisions), or give surrogate=, a model that has gradients."
)
LEAST = 4
"""In batches of at least this many rows, torch's CPU kernels compute a row with the same bits in any batch (measured
for convolutions and linear layers)."""


class Oracle:
    """Calls the model on images (R, ...) and returns the outputs (R, ...) that ``read`` selects from its answer, in the
    working precision. With ``eot``, outputs are means over several passes of a random model, with random numbers from
    the image and ``seed``. With a ``surrogate``, gradients are those of the surrogate."""

    def __init__(
        self,
        model: Model,
        working: torch.dtype,
        autocast: torch.dtype | None = None,
        read: Read | None = None,
        eot: EOT | None = None,
        surrogate: Model | None = None,
        seed: int = 0,
    ):
        self.model, self.working, self.autocast, self.eot, self.seed = model, working, autocast, eot, seed
        self.native, self.device = precision_and_device(model)
        self.precision = autocast or self.native or working
        self.read: Read = read or (lambda answer, images: logits_of(answer))
        self.shape: torch.Size | None = None  # shape of one image's outputs, from the first answer
        self.rows = 0  # images that went through the model, from all callers
        self.surrogate = None if surrogate is None else Oracle(surrogate, working, read=read)
        self._exact: Oracle | None = None

    @property
    def exact(self) -> Oracle:
        """The same oracle without autocast."""
        if self.autocast is None:
            return self
        if self._exact is None:
            self._exact = Oracle(self.model, self.working, read=self.read, eot=self.eot, seed=self.seed)
        return self._exact

    @property
    def queried(self) -> int:
        """Number of images that went through the model, with and without autocast."""
        return self.rows + (0 if self._exact is None else self._exact.rows)

    def __call__(self, images: Tensor) -> Tensor:
        """Outputs (R, ...) of ``images`` (R, ...)."""
        if self.eot is not None:
            return torch.stack([self.passes(image, self.eot.passes, "attack").mean(0) for image in images])
        if self.surrogate is not None and images.requires_grad and torch.is_grad_enabled():
            return self._with_surrogate(images)
        self.rows += len(images)
        # A copy, because a model that normalises in place must not change the caller's images or the leaf of the graph.
        inputs = images.to(self.native or images.dtype, copy=True)
        try:
            with (
                nullcontext()
                if self.autocast is None
                else torch.autocast(images.device.type, dtype=self.autocast, cache_enabled=False)
            ):
                outputs = self.read(self.model(inputs), len(images))
        except RuntimeError as error:
            # A model that computes with numpy fails if a gradient is needed.
            if inputs.requires_grad and "on Tensor that requires grad" in str(error):
                raise BadModel(NO_GRADIENT) from error
            raise
        if outputs.shape[1:] != self.shape:
            self._check_shape(outputs)
        if self.autocast is None and outputs.dtype in (torch.float16, torch.bfloat16):
            self.precision = outputs.dtype
        return outputs.to(self.working)

    def passes(self, image: Tensor, count: int, purpose: str) -> Tensor:
        """Outputs (M, ...) of one ``image`` (...) in ``count`` passes of a random model, at most 256 rows per call,
        with random numbers determined by the image and the purpose."""
        single, self.eot = self.eot, None
        try:
            with seeded(image_seed(self.seed, image, purpose), image.device):
                sizes = [min(256, count - begun) for begun in range(0, count, 256)]
                return torch.cat([self(image.expand(size, *image.shape)) for size in sizes])
        finally:
            self.eot = single

    def _with_surrogate(self, images: Tensor) -> Tensor:
        assert self.surrogate is not None
        with torch.no_grad():
            outputs = self(images.detach())
        stand_in = self.surrogate(images).to(outputs.device)
        if stand_in.shape != outputs.shape:
            raise BadModel(
                f"the surrogate's outputs have shape {tuple(stand_in.shape)} and the model's {tuple(outputs.shape)}; "
                "its gradients can stand in for the model's where both have the same classes."
            )
        # The difference is zero and has the surrogate's gradient.
        return outputs + torch.where(torch.isfinite(stand_in), stand_in - stand_in.detach(), 0.0)

    def _check_shape(self, outputs: Tensor) -> None:
        if self.shape is not None:
            now, before = (
                str(shape[0]) if len(shape) == 1 else f"{tuple(shape)}" for shape in (outputs.shape[1:], self.shape)
            )
            raise BadModel(
                f"the model returned {now} logits for an image and {before} before; it must always have the same "
                "classes."
            )
        self.shape = outputs.shape[1:]


@dataclass(frozen=True)
class EOT:
    """Settings for random models (expectation over transformation; Athalye et al., ICML 2018).

    Args:
        passes: number of passes per query; outputs and gradients are means over them, and each pass is counted.
        votes: number of additional passes that judge each point found.
        share: a point is a success if the goal is reached in at least this share of the votes.
    """

    passes: int
    votes: int = 100
    share: float = 0.5

    def __post_init__(self) -> None:
        for name, value in (("eot", self.passes), ("votes", self.votes)):
            if isinstance(value, bool) or not isinstance(value, Integral) or not 1 <= int(value) <= 100_000:
                raise BadInput(f"{name}={value!r}: how many passes, a whole number from 1 to 100000.")
        if isinstance(self.share, bool) or not isinstance(self.share, Real) or not 0 < self.share <= 1:
            raise BadInput(f"share={self.share!r}: the part of the votes, above 0 and at most 1.")


def image_seed(seed: int, image: Tensor, purpose: str) -> int:
    """The seed of passes of ``image`` (...) for one purpose; independent of its batch."""
    content = image.detach().to(device="cpu", dtype=torch.float64).contiguous().numpy().tobytes()
    return int.from_bytes(hashlib.sha256(f"{seed}:{purpose}:".encode() + content).digest()[:4], "big")


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the global generators of torch, numpy and Python during the block and restore them afterwards. Other sources
    of randomness are not controlled."""
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


# The model before and after the attack.


@contextmanager
def borrowed(*models: object) -> Iterator[None]:
    """Put a module into eval mode with frozen parameters during the block and restore every flag afterwards. Models
    that are not modules are unchanged."""
    inside = [module for model in models if isinstance(model, nn.Module) for module in model.modules()]
    modes = [(module, module.training) for module in inside]
    frozen = {
        parameter
        for model in models
        if isinstance(model, nn.Module)
        for parameter in model.parameters()
        if parameter.requires_grad
    }
    try:
        # Each flag is set directly: model.eval() may be overridden, and train() would not restore mixed modes.
        for module in inside:
            module.training = False
        for parameter in frozen:
            parameter.requires_grad_(False)
        yield
    finally:
        for module, training in modes:
            module.training = training
        for parameter in frozen:
            parameter.requires_grad_(True)


@torch.no_grad()
def predict(model: Model, x: Tensor) -> Any:
    """The model's output for the images ``x`` (B, ...), or its logits (B, K) if they are wrapped; without gradients."""
    with borrowed(model):
        return logits_of(model(x.clone()))  # a copy, because some models normalise in place


def pass_seconds(model: Model, x: Tensor) -> float:
    """Seconds of a forward and backward pass of ``x`` (B, ...); of a forward pass if the model has no gradients."""
    # With one CPU thread, processor time is used, so that other programs do not influence the result.
    clock = time.process_time if x.device.type == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    began = clock()
    with torch.inference_mode(False), torch.enable_grad():
        leaf = x.detach().clone().requires_grad_(True)
        logits = logits_of(model(leaf.clone()))
        if isinstance(logits, Tensor) and logits.requires_grad:
            # Reading a value waits for the device.
            float(torch.autograd.grad(logits.float().sum(), leaf)[0].flatten()[0])
    return max(clock() - began, 1e-9)


class Function(nn.Module):
    """A plain function as a module."""

    def __init__(self, function: Model):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out, on a GPU or on the CPU."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(
        word in str(error) for word in ("out of memory", "can't allocate memory", "not enough memory")
    )


def filled(model: Model, x: Tensor, size: int) -> Any:
    """The model's output for ``x`` (B, ...) in a batch of at least ``size`` rows. The batch is padded with copies of
    the last image, which give no gradient."""
    missing = size - len(x)
    if missing <= 0 or not len(x):
        return model(x)
    return first_rows(model(torch.cat([x, x[-1:].detach().expand(missing, *x.shape[1:])])), len(x))


def steady(model: Model, device: torch.device) -> Model:
    """The model with batches padded to at least LEAST rows, so that the last images of a run, or a batch size of one,
    give the same numbers.

    Over a hundred steps, a difference in the last bit grows to percents. On other devices batches are not padded,
    because there the bits depend on more than the batch size and memory is scarcer.
    """
    if device.type != "cpu":
        return model
    return _Steady(model) if isinstance(model, nn.Module) else lambda x: filled(model, x, LEAST)


class _Steady(nn.Module):
    """The same as a module, so that precision, device and flags of the inner module remain accessible."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner
        self.training = inner.training

    def forward(self, x: Tensor) -> Any:
        return filled(self.inner, x, LEAST)


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


# Checks that the model is deterministic and returns logits.


def check_outputs(logits: Tensor) -> None:
    """Warn if clean logits (B, K) look like probabilities."""
    rows = logits.detach().double()
    finite = rows[torch.isfinite(rows).all(1)]
    if len(finite) and bool(((finite >= 0) & (finite <= 1)).all()) and bool(((finite.sum(1) - 1).abs() < 1e-3).all()):
        warnings.warn(
            "the model's outputs look like probabilities (in [0, 1], summing to 1); gradients vanish there. "
            "Give the logits before the softmax for results that mean something.",
            stacklevel=5,
        )


def probe_rows(count: int) -> list[int]:
    """The rows of a batch of ``count`` images that are also queried alone: the first, one with an odd index in the
    middle, and the last."""
    return sorted({0, min(count // 2 | 1, count - 1), count - 1})


@torch.no_grad()
def outputs_alone(oracle: Oracle, x: Tensor) -> Tensor:
    """Outputs (P, ...) of the ``probe_rows`` of ``x`` (B, ...), each image in a call of its own."""
    try:
        return torch.cat([oracle(x[row : row + 1]) for row in probe_rows(len(x))])
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        _explain_failure(oracle, x, error)
        raise


def _explain_failure(oracle: Oracle, x: Tensor, error: Exception) -> None:
    """Raise a clearer error if the model fails because images have channels last, or on a batch of one."""
    why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    if x.ndim == 4 and x.shape[1] not in (1, 3) and x.shape[3] in (1, 3):
        raise BadInput(
            f"the model fails on images of shape {tuple(x.shape)}, whose channels are last ({why}); give "
            "x.permute(0, 3, 1, 2)."
        ) from error
    if out_of_memory(error):
        return
    try:
        oracle(torch.cat([x, x])[:2])
    except Exception:
        return  # it fails on any batch, so the original error explains why
    raise BadModel(
        f"the model fails on a batch of one image ({why}), and not on two; it must take batches of any size: let batch "
        "norm use its running statistics, and do not squeeze the batch dimension away."
    ) from error


def check_deterministic(oracle: Oracle, alone: Tensor, clean: Tensor) -> None:
    """Compare the outputs ``alone`` (P, ...) of the ``probe_rows`` with those of the ``clean`` pass (B, ...)."""
    before, again = clean[probe_rows(len(clean))].detach().double().flatten(1), alone.double().flatten(1)
    scale = before.abs().amax(1, keepdim=True).clamp_min(1e-6)
    allowed = {torch.bfloat16: 0.1, torch.float16: 0.05}.get(oracle.precision, 1e-3)
    same = ((again - before).abs() <= allowed * scale).all(1)
    if not bool((same | ~torch.isfinite(before).all(1)).all()):
        raise BadModel(
            "the model is not deterministic: the same image got different logits twice (random layers, or a dependence "
            "on the rest of the batch). Average over randomness with eot=16, fix it, or pass check=False if you know "
            "what the numbers will mean."
        )
