"""Perceptual distances between AlexNet features: the paper's LPIPS (unweighted) and Zhang's learned LPIPS.

Near the reference two feature maps agree in most of their digits, and subtracting them would leave rounding noise. So
the reference's activations are kept, and the *difference* y - x is sent through the network instead: convolutions are
linear, and each ReLU, pooling and normalisation is written so that a small difference stays exact. At y = x the
distance is exactly zero, on any device and batch size. The gradient is computed in closed form, at about the cost of
the convolutions alone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..data import hub
from ..errors import BadInput
from ..tensors import per_image
from .alexnet import LAYERS, Convolutions
from .base import Bound, Distance

SMALLEST = 31  # the second pooling sees at least one window from 31 pixels on
_TINY = 1e-24


@lru_cache(maxsize=8)
def _weights(name: str, dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
    """The tensors of a weights file, read once per process, dtype and device; frozen."""
    # Imported here, because distances import only torch, and only these two need a file.
    return {key: value.to(device, dtype).requires_grad_(False) for key, value in load_file(hub.path(name)).items()}


@lru_cache(maxsize=8)
def _network(dtype: torch.dtype, device: torch.device) -> Convolutions:
    return Convolutions(_weights("lpips/alexnet-features.safetensors", dtype, device))


class _Activation(NamedTuple):
    """One layer of the reference u before its ReLU: min(u, 0), -max(u, 0), the channel norm of the ReLU's output, and
    the pooled norm (or None)."""

    below: Tensor  # (B, C, H, W)
    floor: Tensor  # (B, C, H, W)
    norm: Tensor  # (B, 1, H, W)
    pooled: Tensor | None  # (B, C, H', W')

    def take(self, rows: Tensor) -> _Activation:
        # Indexing forgets the layout, and mixed layouts are slow.
        layout = (
            torch.channels_last
            if self.below.is_contiguous(memory_format=torch.channels_last)
            else torch.contiguous_format
        )
        below, floor = (value[rows].contiguous(memory_format=layout) for value in (self.below, self.floor))
        return _Activation(below, floor, self.norm[rows], None if self.pooled is None else self.pooled[rows])


def _channel_norm(features: Tensor) -> Tensor:
    """The Euclidean norm over channels, (B, C, H, W) -> (B, 1, H, W); gradient zero where all channels are zero."""
    return features.square().sum(1, keepdim=True).clamp(min=_TINY).sqrt()


def _pool(features: Tensor) -> Tensor:
    return F.max_pool2d(features, 3, 2)


class _Seen(NamedTuple):
    """Values of one layer of the forward pass for the gradient; v is the ReLU's output."""

    after: Tensor  # v (B, C, H, W)
    vector: Tensor  # v/|v| - u/|u| (B, C, H, W)
    norm: Tensor  # |v| (B, 1, H, W), at least sqrt(TINY)
    square: Tensor  # |v/|v| - u/|u||^2 (B, 1, H, W)
    places: Tensor | None  # positions that the pooling before this layer selected
    entering: torch.Size  # shape of the convolution's input


class _Differentiable(torch.autograd.Function):
    """The distance of ``y`` as a part of autograd's graph, with the closed-form gradient."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, bound: Bound) -> Tensor:
        value, gradient = bound.value_and_grad(y)
        ctx.save_for_backward(gradient)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weights: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * per_image(weights, gradient), None


class _LPIPSBound(Bound):
    distance: LPIPS

    def __init__(self, distance: LPIPS, x: Tensor, activations: list[_Activation] | None = None):
        super().__init__(distance, x)
        self.network = _network(x.dtype, x.device)
        mean, std = (
            torch.tensor(values, dtype=x.dtype, device=x.device).view(1, 3, 1, 1)
            for values in (distance.mean, distance.std)
        )
        self.std = std
        self.activations = self._activate((x - mean) / std) if activations is None else activations

    def _activate(self, features: Tensor) -> list[_Activation]:
        activations: list[_Activation] = []
        for layer, following in zip(LAYERS, (*LAYERS[1:], None), strict=True):
            weight, bias = self.network.weights[f"{layer.key}.weight"], self.network.weights[f"{layer.key}.bias"]
            before = F.conv2d(features, weight, bias, layer.stride, layer.padding)
            before = before.contiguous(memory_format=torch.contiguous_format if activations else torch.channels_last)
            features = before.clamp(min=0)
            pooled = _pool(features) if following is not None and following.pooled else None
            activations.append(_Activation(before.clamp(max=0), -features, _channel_norm(features), pooled))
            features = features if pooled is None else pooled
        return activations

    @property
    def heads(self) -> list[Tensor] | None:
        """Five weights (1, C, 1, 1) of the learned distance; None without."""
        if not self.distance.learned:
            return None
        weights = _weights("lpips/alexnet-heads-v0.1.safetensors", self.x.dtype, self.x.device)
        return [weights[f"lin{index}.model.1.weight"] for index in range(len(LAYERS))]

    def __call__(self, y: Tensor) -> Tensor:
        if y.requires_grad and torch.is_grad_enabled():
            value: Tensor = _Differentiable.apply(y, self)  # type: ignore[no-untyped-call]
            return value
        return self._value(self._look(y.detach()), self.heads)

    @torch.no_grad()
    def _look(self, y: Tensor) -> list[_Seen]:
        """The forward pass of ``y`` (B, 3, H, W), layer by layer, in place where possible.

        With u and v = u + step the two inputs of a ReLU: relu(v) - relu(u) = max(step + min(u, 0), -max(u, 0)). Where
        pooling selects one position on both sides, the difference is the step at it. With the larger norm m and the
        unit vector e of the shorter one, v/|v| - u/|u| = (step - e (|v| - |u|)) / m, which divides by nothing small.
        """
        step = (y - self.x) / self.std
        layers_y: list[_Seen] = []
        for index, (layer, reference) in enumerate(zip(LAYERS, self.activations, strict=True)):
            places: Tensor | None = None
            if layer.pooled:
                places = F.max_pool2d_with_indices(layers_y[-1].after, (3, 3), (2, 2))[1]
                before, at = self.activations[index - 1], places.flatten(2)
                assert before.pooled is not None
                drop = -before.floor.flatten(2).gather(2, at) - before.pooled.flatten(2)
                step = step.flatten(2).gather(2, at).add_(drop).view(places.shape).contiguous()
            entering = step.shape
            step = self.network.convolve(layer, step).add_(reference.below).clamp_(min=reference.floor)
            after = step - reference.floor
            norm = _channel_norm(after)
            vector = (after - reference.floor).mul_(step)
            growth = vector.sum(1, keepdim=True) / (norm + reference.norm)
            shrunk = (norm < reference.norm).to(norm.dtype)
            torch.addcmul(reference.floor, shrunk, step, value=-1, out=vector)
            vector.mul_(growth / torch.minimum(norm, reference.norm)).add_(step).div_(
                torch.maximum(norm, reference.norm)
            )
            layers_y.append(_Seen(after, vector, norm, vector.square().sum(1, keepdim=True), places, entering))
        return layers_y

    @torch.no_grad()
    def _value(self, layers_y: list[_Seen], heads: list[Tensor] | None) -> Tensor:
        """(B,) the distance: the root of the sum over layers of the mean over places, without root under ``heads``."""
        if heads is None:
            return torch.stack([layer.square.mean((1, 2, 3)) for layer in layers_y], 1).sum(1).sqrt()
        means = [
            F.conv2d(layer.vector.square(), head).mean((1, 2, 3)) for layer, head in zip(layers_y, heads, strict=True)
        ]
        return torch.stack(means, 1).sum(1)

    @torch.no_grad()
    def value_and_grad(self, y: Tensor) -> tuple[Tensor, Tensor]:
        layers_y, heads = self._look(y.detach()), self.heads
        value, gradient = self._value(layers_y, heads), self._pull_back(layers_y, heads)
        # d sqrt(s) = ds / (2 sqrt(s)); where all is equal the gradient of s is zero, and stays zero
        return value, gradient if heads is not None else gradient / per_image(2 * value.masked_fill(value == 0, 1), y)

    def _pull_back(self, layers_y: list[_Seen], heads: list[Tensor] | None) -> Tensor:
        """The gradient in y (B, 3, H, W) of the sum over layers of the mean over places of w.w (or w.hw under
        ``heads``), w = v/|v| - u/|u|.

        In v it is (2/|v|) (h w - e (e . h w)) with e = v/|v|; for h = 1 the product e . w is w.w/2. A place where v
        vanishes has no direction and gets none.
        """
        gradient: Tensor | None = None
        for index in reversed(range(len(LAYERS))):
            layer = layers_y[index]
            rate = 2 / layer.norm * (layer.norm.square() > 2 * _TINY) / layer.square[0].numel()
            if heads is None:
                weighted, along = layer.vector, layer.square / 2
            else:
                weighted = layer.vector * heads[index].view(1, -1, 1, 1)
                along = (weighted * layer.after).sum(1, keepdim=True) / layer.norm
            own = (weighted * rate).addcmul_(layer.after, rate * along / layer.norm, value=-1)
            gradient = own if gradient is None else gradient.add_(own)
            gradient = torch.ops.aten.threshold_backward(gradient, layer.after, 0)  # the ReLU
            gradient = self.network.convolve_back(LAYERS[index], gradient, layer.entering)
            if layer.places is not None:
                below = layers_y[index - 1].after
                gradient = torch.ops.aten.max_pool2d_with_indices_backward(
                    gradient, below, [3, 3], [2, 2], [0, 0], [1, 1], False, layer.places
                )
        assert gradient is not None
        return gradient / self.std

    def take(self, rows: Tensor) -> Bound:
        return _LPIPSBound(self.distance, self.x[rows], [activation.take(rows) for activation in self.activations])


class LPIPS(Distance):
    """The paper's LPIPS: the l2 norm between normalised AlexNet features, unweighted.

    D(x, y) = sqrt(sum over the five ReLU outputs l of the mean over places of |phi_l(x) - phi_l(y)|^2), phi_l of unit
    length over channels; input normalised with ImageNet's mean and standard deviation (Laidlaw, Singla, Feizi 2021,
    section 3; Zhang et al. 2018). This is another number than the ``lpips`` package's, which is ``lpips-learned``.
    """

    name, degree, about = "lpips", 1, "l2 norm between normalised AlexNet features, unweighted (the paper's LPIPS)"
    first_step = {"paper": 1e-3, "scripts": 1e-2}
    mean: ClassVar[tuple[float, float, float]] = (0.485, 0.456, 0.406)
    std: ClassVar[tuple[float, float, float]] = (0.229, 0.224, 0.225)
    learned: ClassVar[bool] = False

    def check(self, x: Tensor) -> None:
        if x.ndim != 4 or x.shape[1] != 3:
            raise BadInput(f"{self.name} needs colour images of shape (B, 3, H, W), not {tuple(x.shape)}.")
        if min(x.shape[2:]) < SMALLEST:
            raise BadInput(
                f"{self.name} sends images through AlexNet, which needs at least {SMALLEST} x {SMALLEST} pixels, and "
                f"these are {x.shape[2]} x {x.shape[3]}: enlarge them, or choose another distance, such as ssim."
            )

    def bind(self, x: Tensor) -> Bound:
        self.check(x)
        return _LPIPSBound(self, x)


class LPIPSLearned(LPIPS):
    """Zhang's learned LPIPS, version 0.1, AlexNet: squared differences of normalised features under non-negative linear
    heads.

    D(x, y) = sum over layers l of the mean over places of sum over channels c of w_lc (phi_lc(x) - phi_lc(y))^2
    (Zhang, Isola, Efros, Shechtman, Wang 2018, eq. 1). Equal to the ``lpips`` package on its inputs 2x - 1; it grows
    with the square of a small perturbation.
    """

    name, degree, about = "lpips-learned", 2, "Zhang's learned LPIPS v0.1, AlexNet (the lpips package's number)"
    first_step = {}
    learned = True
    # The package shifts and scales images in [-1, 1]; the same for images in [0, 1].
    mean = ((1 - 0.030) / 2, (1 - 0.088) / 2, (1 - 0.188) / 2)
    std = (0.458 / 2, 0.448 / 2, 0.450 / 2)
