"""The layers of ONNX graphs in torch: convolutions, poolings, linear maps and normalisations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import BadModel

Layer = Callable[..., Tensor]


@dataclass(frozen=True)
class Node:
    """One operation of a graph; ``opset`` is the version whose rules hold."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    opset: int

    def get(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)


def ints(value: Any) -> list[int]:
    return [int(entry) for entry in (value.tolist() if isinstance(value, Tensor) else value)]


def _windows(node: Node, x: Tensor, kernel: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Strides, dilations and pads (starts, then ends) of a convolution or pooling, ``auto_pad`` worked out."""
    n = len(kernel)
    strides, dilations = node.get("strides", [1] * n), node.get("dilations", [1] * n)
    pads, mode = list(node.get("pads", [0] * 2 * n)), node.get("auto_pad", "NOTSET")
    if mode == "VALID":
        pads = [0] * 2 * n
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        totals = []
        for side, k, stride, dilation in zip(x.shape[2:], kernel, strides, dilations, strict=True):
            totals.append(max(0, (math.ceil(side / stride) - 1) * stride + (k - 1) * dilation + 1 - side))
        small, large = [total // 2 for total in totals], [total - total // 2 for total in totals]
        pads = small + large if mode == "SAME_UPPER" else large + small
    return list(strides), list(dilations), pads


def torch_pads(pads: list[int]) -> list[int]:
    """(starts, ends) over the last axes -> torch's order: last axis first, start and end together."""
    n = len(pads) // 2
    return [pads[axis + end * n] for axis in reversed(range(n)) for end in (0, 1)]


def conv(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    strides, dilations, pads = _windows(node, x, list(weight.shape[2:]))
    n = weight.ndim - 2
    if pads[:n] == pads[n:]:
        padding: Any = pads[:n]
    else:
        x, padding = F.pad(x, torch_pads(pads)), 0
    function: Layer = (F.conv1d, F.conv2d, F.conv3d)[n - 1]
    return function(x, weight, bias, strides, padding, dilations, node.get("group", 1))


def _pool_frame(node: Node, x: Tensor, fill: float) -> tuple[Tensor, list[int], list[int], list[int]]:
    """The input with its padding (and what a ceiling adds at the end) filled in: then every pooling is one without
    padding."""
    kernel = list(node.get("kernel_shape"))
    strides, dilations, pads = _windows(node, x, kernel)
    n = len(kernel)
    if node.get("ceil_mode", 0):
        for axis in range(n):
            free = x.shape[2 + axis] + pads[axis] + pads[axis + n] - (kernel[axis] - 1) * dilations[axis] - 1
            count = math.ceil(free / strides[axis]) + 1
            # A window that would start in the padding after the image is left out.
            if (count - 1) * strides[axis] >= x.shape[2 + axis] + pads[axis]:
                count -= 1
            pads[axis + n] += max(0, (count - 1) * strides[axis] - free)
    return F.pad(x, torch_pads(pads), value=fill) if any(pads) else x, kernel, strides, dilations


def max_pool(node: Node, x: Tensor) -> Tensor:
    x, kernel, strides, dilations = _pool_frame(node, x, -torch.inf)
    function: Layer = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[len(kernel) - 1]
    return function(x, kernel, strides, 0, dilations)


def average_pool(node: Node, x: Tensor) -> Tensor:
    framed, kernel, strides, dilations = _pool_frame(node, x, 0.0)
    if any(dilation != 1 for dilation in dilations):
        raise BadModel("the ONNX graph has an AveragePool with dilations, which torch does not have.")
    function: Layer = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[len(kernel) - 1]
    total = function(framed, kernel, strides)
    if framed is x:
        return total
    # Where padding does not count, divide by the share of real pixels in each window; what the ceiling added never
    # counts.
    ones = torch.ones_like(x[:1, :1])
    if node.get("count_include_pad", 0):
        pads = _windows(node, x, kernel)[2]
        ones = F.pad(ones, torch_pads(pads), value=1.0)
        ones = F.pad(
            ones,
            [
                value
                for side in reversed(range(len(kernel)))
                for value in (0, framed.shape[2 + side] - ones.shape[2 + side])
            ],
        )
    else:
        ones, *_ = _pool_frame(node, ones, 0.0)
    return total / function(ones, kernel, strides)


def gemm(node: Node, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    a = a.mT if node.get("transA", 0) else a
    b = b.mT if node.get("transB", 0) else b
    product: Tensor = node.get("alpha", 1.0) * (a @ b)
    return product if c is None else product + node.get("beta", 1.0) * c


def batch_norm(node: Node, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    if node.get("training_mode", 0):
        raise BadModel("the ONNX graph was exported in training mode; call model.eval() before the export.")
    return F.batch_norm(x, mean, variance, scale, bias, False, 0.0, node.get("epsilon", 1e-5))


def layer_norm(node: Node, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    axis = node.get("axis", -1) % x.ndim
    return F.layer_norm(x, x.shape[axis:], scale, bias, node.get("epsilon", 1e-5))
