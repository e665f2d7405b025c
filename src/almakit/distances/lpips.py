"""Perceptual distances between AlexNet features: the paper's LPIPS (unweighted) and Zhang's learned LPIPS.

Near the reference two feature maps agree in most of their digits, and subtracting them would leave rounding noise. So the reference's
activations are kept, and the *difference* y - x is sent through the network instead: convolutions are linear, and each ReLU, pooling and
normalisation is written so that a small difference stays exact. At y = x the distance is exactly zero, on any device and batch size.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import BadInput
from .base import Bound, Distance
from .delta_e import safe_sqrt

SMALLEST = 31  # the second pooling sees at least one window from 31 pixels on
_TINY = 1e-24


class _Layer(NamedTuple):
    """A convolution of AlexNet, and whether a 3 x 3 pooling of stride 2 comes before it."""

    key: str
    stride: int
    padding: int
    pooled: bool


_LAYERS = (
    _Layer("features.0", 4, 2, False),
    _Layer("features.3", 1, 2, True),
    _Layer("features.6", 1, 1, True),
    _Layer("features.8", 1, 1, False),
    _Layer("features.10", 1, 1, False),
)


@lru_cache(maxsize=8)
def _weights(name: str, dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
    """The tensors of a weights file, read once per process, dtype and device; frozen."""
    from safetensors.torch import load_file

    # Imported here and not above: distances know torch only, and only these two ever need a file.
    from ..data import hub

    return {key: value.to(device, dtype).requires_grad_(False) for key, value in load_file(hub.path(name)).items()}


class _Activation(NamedTuple):
    """One layer of the reference u before its ReLU: min(u, 0), -max(u, 0), the channel norm of what leaves it, and that pooled (or None)."""

    below: Tensor  # (B, C, H, W)
    floor: Tensor  # (B, C, H, W)
    norm: Tensor  # (B, 1, H, W)
    pooled: Tensor | None  # (B, C, H', W')

    def take(self, rows: Tensor) -> _Activation:
        return _Activation(self.below[rows], self.floor[rows], self.norm[rows], None if self.pooled is None else self.pooled[rows])


def _channel_norm(features: Tensor) -> Tensor:
    """The Euclidean norm over channels, (B, C, H, W) -> (B, 1, H, W); gradient zero where all channels are zero."""
    return features.square().sum(1, keepdim=True).clamp(min=_TINY).sqrt()


def _pool(features: Tensor) -> Tensor:
    return F.max_pool2d(features, 3, 2)


def _pool_difference(reference: _Activation, step: Tensor) -> Tensor:
    """The difference after pooling: where both sides take the same place, exactly the step there."""
    assert reference.pooled is not None
    _, places = F.max_pool2d((step - reference.floor).detach(), 3, 2, return_indices=True)
    at = places.flatten(2)
    drop = -reference.floor.flatten(2).gather(2, at) - reference.pooled.flatten(2)
    return (step.flatten(2).gather(2, at) + drop).view(places.shape)


def _unit_difference(reference: _Activation, step: Tensor) -> tuple[Tensor, Tensor]:
    """v/|v| - u/|u| over channels, for the reference u and v = u + step; a zero vector stays zero. Returned as a vector and its divisor.

    With the larger norm m and the unit vector e of the shorter one it is (step - e (|v| - |u|)) / m, which divides by nothing small.
    """
    after = step - reference.floor
    norm = _channel_norm(after)
    growth = (step * (after - reference.floor)).sum(1, keepdim=True) / (norm + reference.norm)
    shrunk = (norm < reference.norm).to(norm.dtype)  # then the shorter one is v, else u; both are -(floor - shrunk * step)
    shorter = torch.minimum(norm, reference.norm)
    return torch.addcmul(step, torch.addcmul(reference.floor, shrunk, step, value=-1), growth / shorter), torch.maximum(norm, reference.norm)


class _LPIPSBound(Bound):
    distance: LPIPS

    def __init__(self, distance: LPIPS, x: Tensor, activations: list[_Activation] | None = None):
        super().__init__(distance, x)
        self.weights = _weights("lpips/alexnet-features.safetensors", x.dtype, x.device)
        mean, std = (torch.tensor(values, dtype=x.dtype, device=x.device).view(1, 3, 1, 1) for values in (distance.mean, distance.std))
        self.std = std
        self.activations = self._activate((x - mean) / std) if activations is None else activations

    def _activate(self, features: Tensor) -> list[_Activation]:
        activations = []
        for layer, following in zip(_LAYERS, (*_LAYERS[1:], None), strict=True):
            weight, bias = self.weights[f"{layer.key}.weight"], self.weights[f"{layer.key}.bias"]
            before = F.conv2d(features, weight, bias, layer.stride, layer.padding)
            features = before.clamp(min=0)
            pooled = _pool(features) if following is not None and following.pooled else None
            activations.append(_Activation(before.clamp(max=0), -features, _channel_norm(features), pooled))
            features = features if pooled is None else pooled
        return activations

    def squares(self, y: Tensor, heads: list[Tensor] | None = None) -> Tensor:
        """Per image and layer (B, 5): the squared difference of normalised features, summed over channels (or by ``heads``), mean over places."""
        step, layers = (y - self.x) / self.std, []
        for index, (layer, reference) in enumerate(zip(_LAYERS, self.activations, strict=True)):
            if layer.pooled:
                step = _pool_difference(self.activations[index - 1], step)
            step = F.conv2d(step, self.weights[f"{layer.key}.weight"], None, layer.stride, layer.padding)
            # relu(u + d) - relu(u) = max(d + min(u, 0), -max(u, 0))
            step = (step + reference.below).clamp(min=reference.floor)
            vector, divisor = _unit_difference(reference, step)
            square = vector.square()
            summed = square.sum(1, keepdim=True) if heads is None else F.conv2d(square, heads[index])
            layers.append((summed / divisor.square()).mean((1, 2, 3)))
        return torch.stack(layers, 1)

    def __call__(self, y: Tensor) -> Tensor:
        return safe_sqrt(self.squares(y).sum(1))

    def take(self, rows: Tensor) -> Bound:
        return type(self)(self.distance, self.x[rows], [activation.take(rows) for activation in self.activations])


class LPIPS(Distance):
    """The paper's LPIPS: the l2 norm between normalised AlexNet features, unweighted.

    D(x, y) = sqrt(sum over the five ReLU outputs l of the mean over places of |phi_l(x) - phi_l(y)|**2), phi_l of unit length over channels;
    input normalised with ImageNet's mean and standard deviation (Laidlaw, Singla, Feizi 2021, section 3; Zhang et al. 2018). This is another
    number than the ``lpips`` package's, which is ``lpips-learned``.
    """

    name, degree, about = "lpips", 1, "l2 norm between normalised AlexNet features, unweighted (the paper's LPIPS)"
    first_step = {"paper": 1e-3, "scripts": 1e-2}
    mean: ClassVar[tuple[float, float, float]] = (0.485, 0.456, 0.406)
    std: ClassVar[tuple[float, float, float]] = (0.229, 0.224, 0.225)

    def check(self, x: Tensor) -> None:
        if x.ndim != 4 or x.shape[1] != 3:
            raise BadInput(f"{self.name} looks at colour images of shape (B, 3, H, W), not {tuple(x.shape)}.")
        if min(x.shape[2:]) < SMALLEST:
            raise BadInput(
                f"{self.name} sends images through AlexNet, which needs at least {SMALLEST} x {SMALLEST} pixels, and these are "
                f"{x.shape[2]} x {x.shape[3]}: enlarge them, or choose another distance, such as ssim."
            )

    def bind(self, x: Tensor) -> Bound:
        self.check(x)
        return _LPIPSBound(self, x)


class _LPIPSLearnedBound(_LPIPSBound):
    def __call__(self, y: Tensor) -> Tensor:
        heads = _weights("lpips/alexnet-heads-v0.1.safetensors", self.x.dtype, self.x.device)
        return self.squares(y, [heads[f"lin{index}.model.1.weight"] for index in range(len(_LAYERS))]).sum(1)


class LPIPSLearned(LPIPS):
    """Zhang's learned LPIPS, version 0.1, AlexNet: squared differences of normalised features under non-negative linear heads.

    D(x, y) = sum over layers l of the mean over places of sum over channels c of w_lc (phi_lc(x) - phi_lc(y))**2 (Zhang, Isola, Efros,
    Shechtman, Wang 2018, eq. 1). Equal to the ``lpips`` package on its inputs 2x - 1; it grows with the square of a small perturbation.
    """

    name, degree, about = "lpips-learned", 2, "Zhang's learned LPIPS v0.1, AlexNet (the lpips package's number)"
    first_step = {}
    # The package shifts and scales images in [-1, 1]; the same for images in [0, 1].
    mean = ((1 - 0.030) / 2, (1 - 0.088) / 2, (1 - 0.188) / 2)
    std = (0.458 / 2, 0.448 / 2, 0.450 / 2)

    def bind(self, x: Tensor) -> Bound:
        self.check(x)
        return _LPIPSLearnedBound(self, x)
