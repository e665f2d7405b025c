"""AlexNet's convolutions without their biases, forward and transposed, in the forms that cost least on a CPU."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

DENSE = 9
"""Maps of up to this many places go through a convolution as one product with a dense matrix: no padding is
multiplied."""
BLOCK = 4


class Layer(NamedTuple):
    """A convolution of AlexNet, and whether a 3 x 3 pooling of stride 2 comes before it."""

    key: str
    stride: int
    padding: int
    pooled: bool


LAYERS = (
    Layer("features.0", 4, 2, False),
    Layer("features.3", 1, 2, True),
    Layer("features.6", 1, 1, True),
    Layer("features.8", 1, 1, False),
    Layer("features.10", 1, 1, False),
)


class Convolutions:
    """The five convolutions with ``weights`` by torchvision's names."""

    def __init__(self, weights: dict[str, Tensor]):
        self.weights = weights
        self._folded = _fold(weights[f"{LAYERS[0].key}.weight"])
        self._dense: dict[tuple[str, int, int], Tensor] = {}

    def convolve(self, layer: Layer, step: Tensor) -> Tensor:
        """The convolution of ``step`` (B, C, H, W); of the first layer the result is channels_last."""
        if layer is LAYERS[0]:
            blocks = F.pixel_unshuffle(F.pad(step, _margins(*step.shape[2:])), BLOCK)
            return F.conv2d(blocks.contiguous(memory_format=torch.channels_last), self._folded)
        if step.shape[2] * step.shape[3] <= DENSE:
            # These layers keep the size of a map.
            return (step.flatten(1) @ self._matrix(layer, *step.shape[2:])).view(len(step), -1, *step.shape[2:])
        return F.conv2d(step, self.weights[f"{layer.key}.weight"], None, layer.stride, layer.padding)

    def convolve_back(self, layer: Layer, gradient: Tensor, shape: torch.Size) -> Tensor:
        """The transpose of ``convolve``: the gradient in a ``step`` of ``shape`` of a function whose gradient in the
        result is given."""
        if layer is LAYERS[0]:
            left, right, top, bottom = _margins(shape[2], shape[3])
            blocks = torch.Size((shape[0], self._folded.shape[1], gradient.shape[2] + 2, gradient.shape[3] + 2))
            return F.pad(
                F.pixel_shuffle(_input_gradient(gradient, blocks, self._folded, 1, 0), BLOCK),
                (-left, -right, -top, -bottom),
            )
        if shape[2] * shape[3] <= DENSE:
            return (gradient.flatten(1) @ self._matrix(layer, shape[2], shape[3]).mT).view(shape)
        return _input_gradient(gradient, shape, self.weights[f"{layer.key}.weight"], layer.stride, layer.padding)

    def _matrix(self, layer: Layer, height: int, width: int) -> Tensor:
        """A convolution of small maps as a matrix (C H W, C' H W), made once: the images of the unit maps."""
        key = (layer.key, height, width)
        if key not in self._dense:
            weight = self.weights[f"{layer.key}.weight"]
            count = weight.shape[1] * height * width
            with torch.no_grad():
                units = torch.eye(count, dtype=weight.dtype, device=weight.device).view(count, -1, height, width)
                self._dense[key] = F.conv2d(units, weight, None, layer.stride, layer.padding).flatten(1)
        return self._dense[key]


def _fold(weight: Tensor) -> Tensor:
    """The first convolution, 11 x 11 with stride 4 on 3 channels, as a plain 3 x 3 one on 48, for images cut into 4 x 4
    blocks.

    Few channels and a stride leave a CPU's vector units idle, most of all on the way back.
    """
    outputs, channels = weight.shape[:2]
    blocks = F.pad(weight, (0, 1, 0, 1)).view(outputs, channels, 3, BLOCK, 3, BLOCK).permute(0, 1, 3, 5, 2, 4)
    return blocks.reshape(outputs, -1, 3, 3).contiguous(memory_format=torch.channels_last)


def _margins(height: int, width: int) -> tuple[int, int, int, int]:
    """How much to add around an image (left, right, top, bottom; a negative number cuts) so that the first convolution
    sees whole blocks."""
    padding = LAYERS[0].padding
    right, bottom = (BLOCK * ((size + 2 * padding - 11) // BLOCK + 3) - size - padding for size in (width, height))
    return padding, right, padding, bottom


def _input_gradient(gradient: Tensor, shape: torch.Size, weight: Tensor, stride: int, padding: int) -> Tensor:
    """The gradient of a convolution in its input of ``shape``."""
    entering = gradient.new_empty(1).expand(shape)  # only its shape counts
    found: tuple[Tensor, ...] = torch.ops.aten.convolution_backward(
        gradient, entering, weight, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1, [True, False, False]
    )
    return found[0]
