"""Wrappers of networks: images in [0, 1] in, logits out, normalisation inside, evaluation mode, frozen."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from ..core.oracle import Function, filled, precision_and_device
from ..errors import BadModel
from ..goals.outputs import logits_of


class Classifier(nn.Module):
    """Wraps a network: logits = network((x - mean) / std), for images ``x`` (B, C, H, W) in [0, 1]; the logits are (B,
    classes), or (B, classes, H, W) where every pixel has a class; ``fit_output``: such logits on a coarser or finer
    grid are resized to the images' by bilinear interpolation.

    The network is put into evaluation mode and its parameters are frozen. Images are cast to the network's floating
    type; the logits of a half-precision network come back as float32, so that margins are not rounded a second time.
    ``dataset``, ``shape`` (C, H, W), ``classes`` and ``class_names`` are facts where they are known and None
    otherwise.
    """

    mean: Tensor | None
    std: Tensor | None

    def __init__(
        self,
        network: nn.Module | Callable[[Tensor], Tensor],
        *,
        name: str,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        dataset: str | None = None,
        shape: tuple[int, int, int] | None = None,
        classes: int | None = None,
        class_names: Sequence[str] | None = None,
        fit_output: bool = False,
    ):
        super().__init__()
        if not callable(network):
            raise BadModel(
                f"{name} is a {type(network).__name__}; a model is a torch module or a function from images to logits."
            )
        self.network = network if isinstance(network, nn.Module) else Function(network)
        self.name, self.dataset, self.shape, self.classes = name, dataset, shape, classes
        self.class_names, self.fit_output = None if class_names is None else tuple(class_names), fit_output
        self.by_name = False  # whether ``load`` made it from a name that determines it
        self.normalise(mean, std)
        self.eval()
        self.requires_grad_(False)

    def normalise(self, mean: Sequence[float] | None, std: Sequence[float] | None) -> None:
        """Subtract these means and divide by these standard deviations, one for each channel."""
        # Not part of the weights: two networks that differ in nothing but the normalisation have the same weights.
        self.register_buffer("mean", _per_channel(self.name, mean, "mean"), persistent=False)
        self.register_buffer("std", _per_channel(self.name, std, "standard deviation"), persistent=False)
        if self.std is not None and not bool((self.std > 0).all()):
            raise BadModel(f"the standard deviations of {self.name} must be positive.")

    def forward(self, x: Tensor) -> Any:
        """Logits (B, classes) of the images ``x`` (B, C, H, W) in [0, 1]; of a network with several outputs and no
        ``logits`` among them all, for a goal to pick from."""
        x = x.to(self.dtype)
        if self.mean is not None:
            x = x - self.mean.to(x.dtype)
        if self.std is not None:
            x = x / self.std.to(x.dtype)
        output = self.network(x)
        logits = output if isinstance(output, Tensor) else _only_tensor(self.name, output)
        if logits is None:
            return output
        if self.fit_output and logits.ndim == 4 and logits.shape[2:] != x.shape[2:]:
            logits = interpolate(logits, size=x.shape[2:], mode="bilinear", align_corners=False)
        return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits

    @property
    def dtype(self) -> torch.dtype:
        """The floating type of the network: that of its first floating parameter or buffer, float32 if it has none."""
        return precision_and_device(self.network)[0] or torch.float32

    @property
    def weights_sha256(self) -> str | None:
        """The sha256 over the names, types, shapes and values of all parameters and buffers; None if there are none."""
        return state_sha256(self.network.state_dict())

    @property
    def preprocessing(self) -> str | None:
        """Description of the preprocessing inside the model; None if there is none."""
        if self.mean is None and self.std is None:
            return None
        mean, std = (
            " ".join(f"{number:.4g}" for number in value.flatten().tolist()) if value is not None else "none"
            for value in (self.mean, self.std)
        )
        return f"{self.name} normalises inside (mean {mean}, std {std}): images are given in [0, 1]."


def state_sha256(state: dict[str, Any]) -> str | None:
    """The sha256 over the entries of a state dict in the order of their names; None for an empty one."""
    digest = hashlib.sha256()
    tensors = {key: value for key, value in state.items() if isinstance(value, Tensor)}
    for key in sorted(tensors):
        value = tensors[key].detach().cpu().contiguous()
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b"")
    return digest.hexdigest() if tensors else None


def _per_channel(name: str, values: Sequence[float] | None, what: str) -> Tensor | None:
    if values is None:
        return None
    tensor = torch.as_tensor(values, dtype=torch.float32)
    if tensor.ndim != 1 or not bool(tensor.isfinite().all()):
        raise BadModel(f"the {what} of {name} must be one finite number per channel, not {values!r}.")
    return tensor.reshape(1, -1, 1, 1)


def _only_tensor(name: str, output: Any) -> Tensor | None:
    """The logits of a network that wraps them: ``.logits``, or the only tensor of a tuple, list or dict; None where
    there are several."""
    if isinstance(logits := logits_of(output), Tensor):
        return logits
    items = output.values() if isinstance(output, dict) else output if isinstance(output, (tuple, list)) else ()
    tensors = [item for item in items if isinstance(item, Tensor)]
    if not tensors:
        raise BadModel(
            f"{name} returned a {type(output).__name__} without tensors; it must return the logits, one tensor "
            "(B, classes)."
        )
    return tensors[0] if len(tensors) == 1 else None


def in_fixed_batches(network: Callable[[Tensor], Tensor], x: Tensor, size: int) -> Tensor:
    """Logits of the images ``x`` (B, C, H, W) from a network that takes exactly ``size`` images at a time."""
    return torch.cat([filled(network, part, size) for part in x.split(size)])


class InUnits(nn.Module):
    """A model of values in their own units, called with values in [0, 1]: x (B, ...) -> model(lo + sides x).

    Values with a step are rounded to whole steps; gradients pass through the rounding unchanged.
    """

    def __init__(self, model: Callable[[Tensor], Any], lo: Any, sides: Any, step: Any):
        """``lo``, ``sides`` and ``step`` (0: none) are arrays in the shape of one input."""
        super().__init__()
        self.inner = model
        self.training = getattr(model, "training", False)
        # Not buffers, because they describe the data and must not be part of the model's state.
        self.units = [torch.as_tensor(part, dtype=torch.float64) for part in (lo, sides, step)]

    def forward(self, x: Tensor) -> Any:
        lo, sides, step = self.units = [part.to(x.device) for part in self.units]
        offset = x.double() * sides
        steps = torch.where(step > 0, step, torch.ones_like(step))
        offset = offset + torch.where(step > 0, (offset / steps).round() * steps - offset, 0.0).detach()
        return self.inner((lo + offset).to(x.dtype))
