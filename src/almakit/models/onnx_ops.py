"""ONNX operators in torch: each takes its node and the input tensors (None where an optional one is left out)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import BadModel

# TensorProto's numbers of data types.
_TYPES = {1: torch.float32, 6: torch.int32, 7: torch.int64, 9: torch.bool, 11: torch.float64}
Op = Callable[..., Any]
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


def _ints(value: Any) -> list[int]:
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


def _torch_pads(pads: list[int]) -> list[int]:
    """(starts, ends) over the last axes -> torch's order: last axis first, start and end together."""
    n = len(pads) // 2
    return [pads[axis + end * n] for axis in reversed(range(n)) for end in (0, 1)]


def _conv(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    strides, dilations, pads = _windows(node, x, list(weight.shape[2:]))
    n = weight.ndim - 2
    if pads[:n] == pads[n:]:
        padding: Any = pads[:n]
    else:
        x, padding = F.pad(x, _torch_pads(pads)), 0
    function: Layer = (F.conv1d, F.conv2d, F.conv3d)[n - 1]
    return function(x, weight, bias, strides, padding, dilations, node.get("group", 1))


def _pool(node: Node, x: Tensor) -> Tensor:
    kernel, average = list(node.get("kernel_shape")), node.op == "AveragePool"
    strides, dilations, pads = _windows(node, x, kernel)
    n, ceil, counted = len(kernel), bool(node.get("ceil_mode", 0)), bool(node.get("count_include_pad", 0))
    padding: Any = pads[:n]
    if pads[:n] != pads[n:]:
        if average and not counted:
            raise BadModel("the ONNX graph averages over windows with uneven padding that does not count.")
        x, padding = F.pad(x, _torch_pads(pads), value=0.0 if average else -torch.inf), 0
    if not average:
        largest: Layer = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[n - 1]
        return largest(x, kernel, strides, padding, dilations, ceil)
    if any(dilation != 1 for dilation in dilations):
        raise BadModel("the ONNX graph has an AveragePool with dilations, which torch does not have.")
    mean: Layer = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[n - 1]
    return mean(x, kernel, strides, padding, ceil, counted)


def _gemm(node: Node, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    a = a.mT if node.get("transA", 0) else a
    b = b.mT if node.get("transB", 0) else b
    product: Tensor = node.get("alpha", 1.0) * (a @ b)
    return product if c is None else product + node.get("beta", 1.0) * c


def _batch_norm(node: Node, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    if node.get("training_mode", 0):
        raise BadModel("the ONNX graph was exported in training mode; call model.eval() before the export.")
    return F.batch_norm(x, mean, variance, scale, bias, False, 0.0, node.get("epsilon", 1e-5))


def _layer_norm(node: Node, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    axis = node.get("axis", -1) % x.ndim
    return F.layer_norm(x, x.shape[axis:], scale, bias, node.get("epsilon", 1e-5))


def _option(node: Node, value: Any, name: str) -> list[int] | None:
    """Integers that newer opsets give as an input and older ones as an attribute."""
    found = node.get(name) if value is None else value
    return None if found is None else _ints(found)


def _softmax(function: Layer) -> Op:
    def run(node: Node, x: Tensor) -> Tensor:
        if node.opset >= 13:
            return function(x, node.get("axis", -1))
        axis = node.get("axis", 1) % x.ndim
        # Before opset 13 all axes from this one on are taken together.
        return function(x.flatten(axis), axis).reshape(x.shape)

    return run


def _reduce(function: Layer) -> Op:
    def run(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
        chosen, keep = _option(node, axes, "axes"), bool(node.get("keepdims", 1))
        if not chosen and node.get("noop_with_empty_axes", 0):
            return x
        return function(x, chosen or list(range(x.ndim)), keep)

    return run


def _clip(node: Node, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    low = low if low is not None else node.get("min")
    high = high if high is not None else node.get("max")
    x = x if low is None else torch.maximum(x, torch.as_tensor(low, dtype=x.dtype, device=x.device))
    return x if high is None else torch.minimum(x, torch.as_tensor(high, dtype=x.dtype, device=x.device))


def _pad(
    node: Node, x: Tensor, pads: Tensor | None = None, value: Tensor | None = None, axes: Tensor | None = None
) -> Tensor:
    amounts = _option(node, pads, "pads") or []
    chosen = [axis % x.ndim for axis in _ints(axes)] if axes is not None else list(range(x.ndim))
    full = [0] * (2 * x.ndim)
    for position, axis in enumerate(chosen):
        full[axis], full[axis + x.ndim] = amounts[position], amounts[position + len(chosen)]
    mode = node.get("mode", "constant")
    if mode == "constant":
        return F.pad(x, _torch_pads(full), value=float(node.get("value", 0.0) if value is None else value))
    if mode not in ("reflect", "edge") or any(full[:2]) or any(full[x.ndim : x.ndim + 2]):
        raise BadModel(f"the ONNX graph pads with mode {mode!r} in a way torch cannot.")
    spatial = full[2 : x.ndim] + full[x.ndim + 2 :]
    return F.pad(x, _torch_pads(spatial), mode="replicate" if mode == "edge" else "reflect")


def _slice(node: Node, x: Tensor, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None) -> Tensor:
    first, last = _option(node, starts, "starts") or [], _option(node, ends, "ends") or []
    chosen = _option(node, axes, "axes") or range(len(first))
    strides = [1] * len(first) if steps is None else _ints(steps)
    for axis, start, end, step in zip(chosen, first, last, strides, strict=True):
        side = x.shape[axis]
        # Python's own rules, with the largest integers meaning "to the end" in either direction.
        span = range(side)[slice(start, None if step < 0 and end < -side else end, step)]
        x = x.index_select(axis, torch.tensor(list(span), dtype=torch.long, device=x.device))
    return x


def _reshape(node: Node, x: Tensor, shape: Tensor) -> Tensor:
    sides = _ints(shape)
    if not node.get("allowzero", 0):
        sides = [x.shape[axis] if side == 0 else side for axis, side in enumerate(sides)]
    return x.reshape(sides)


def _gather(node: Node, x: Tensor, indices: Tensor) -> Tensor:
    axis = node.get("axis", 0) % x.ndim
    rows = torch.where(indices < 0, indices + x.shape[axis], indices).reshape(-1).long()
    return x.index_select(axis, rows).reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


def _unsqueeze(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    chosen = _option(node, axes, "axes") or []
    rank = x.ndim + len(chosen)
    for axis in sorted(axis % rank for axis in chosen):
        x = x.unsqueeze(axis)
    return x


def _squeeze(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    chosen = _option(node, axes, "axes")
    return x.squeeze() if chosen is None else x.squeeze(tuple(chosen))


def _split(node: Node, x: Tensor, sizes: Tensor | None = None) -> tuple[Tensor, ...]:
    axis, parts = node.get("axis", 0), _option(node, sizes, "split")
    return torch.split(x, parts or math.ceil(x.shape[axis] / len(node.outputs)), axis)


def _constant(node: Node) -> Tensor:
    if "value" in node.attributes:
        return torch.as_tensor(node.get("value"))
    for key, dtype in (("value_float", torch.float32), ("value_int", torch.int64)):
        for form in (key, f"{key}s"):
            if form in node.attributes:
                return torch.tensor(node.get(form), dtype=dtype)
    raise BadModel("the ONNX graph has a Constant that is neither a tensor nor numbers.")


def _constant_of_shape(node: Node, shape: Tensor) -> Tensor:
    value = node.get("value", torch.zeros(1))
    return torch.full(_ints(shape), value.item(), dtype=value.dtype, device=shape.device)


def _cast(node: Node, x: Tensor) -> Tensor:
    kind = _TYPES.get(node.get("to"))
    if kind is None:
        raise BadModel(f"the ONNX graph casts to data type {node.get('to')}, which almakit does not know.")
    return x.to(kind)


def _shape(node: Node, x: Tensor) -> Tensor:
    return torch.tensor(list(x.shape)[node.get("start", 0) : node.get("end")], dtype=torch.int64, device=x.device)


def _div(a: Tensor, b: Tensor) -> Tensor:
    return a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


def _expand(node: Node, x: Tensor, shape: Tensor) -> Tensor:
    return x.expand(torch.broadcast_shapes(x.shape, tuple(_ints(shape))))


def _plain(function: Op) -> Op:
    """An operator that is a torch function of its inputs and has no attributes."""
    return lambda node, *inputs: function(*inputs)


def _fold(function: Op) -> Op:
    """An operator of any number of inputs, taken two by two."""

    def run(node: Node, first: Tensor, *others: Tensor) -> Tensor:
        for other in others:
            first = function(first, other)
        return first

    return run


OPS: dict[str, Op] = {
    "Abs": _plain(torch.abs),
    "Add": _plain(torch.add),
    "AveragePool": _pool,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Clip": _clip,
    "Concat": lambda node, *parts: torch.cat(parts, node.get("axis", 1)),
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Conv": _conv,
    "Div": _plain(_div),
    "Dropout": lambda node, x, *_: x,
    "Elu": lambda node, x: F.elu(x, node.get("alpha", 1.0)),
    "Equal": _plain(torch.eq),
    "Erf": _plain(torch.erf),
    "Exp": _plain(torch.exp),
    "Expand": _expand,
    "Flatten": lambda node, x: (
        x.reshape(math.prod(x.shape[: node.get("axis", 1)]), -1) if node.get("axis", 1) else x.reshape(1, -1)
    ),
    "Floor": _plain(torch.floor),
    "Gather": _gather,
    "Gelu": lambda node, x: F.gelu(x, approximate=node.get("approximate", "none")),
    "Gemm": _gemm,
    "GlobalAveragePool": lambda node, x: x.mean(tuple(range(2, x.ndim)), keepdim=True),
    "GlobalMaxPool": lambda node, x: x.amax(tuple(range(2, x.ndim)), keepdim=True),
    "HardSigmoid": lambda node, x: (node.get("alpha", 0.2) * x + node.get("beta", 0.5)).clamp(0, 1),
    "HardSwish": lambda node, x: x * (x / 6 + 0.5).clamp(0, 1),
    "Identity": _plain(lambda x: x),
    "LayerNormalization": _layer_norm,
    "LeakyRelu": lambda node, x: F.leaky_relu(x, node.get("alpha", 0.01)),
    "Log": _plain(torch.log),
    "LogSoftmax": _softmax(torch.log_softmax),
    "MatMul": _plain(torch.matmul),
    "Max": _fold(torch.maximum),
    "MaxPool": _pool,
    "Min": _fold(torch.minimum),
    "Mul": _plain(torch.mul),
    "Neg": _plain(torch.neg),
    "PRelu": _plain(lambda x, slope: torch.where(x < 0, slope * x, x)),
    "Pad": _pad,
    "Pow": _plain(lambda x, power: torch.pow(x, power.to(x.dtype))),
    "Reciprocal": _plain(torch.reciprocal),
    "ReduceMax": _reduce(torch.amax),
    "ReduceMean": _reduce(torch.mean),
    "ReduceMin": _reduce(torch.amin),
    "ReduceSum": _reduce(torch.sum),
    "Relu": _plain(torch.relu),
    "Reshape": _reshape,
    "Shape": _shape,
    "Sigmoid": _plain(torch.sigmoid),
    "Slice": _slice,
    "Softmax": _softmax(torch.softmax),
    "Softplus": _plain(F.softplus),
    "Split": _split,
    "Sqrt": _plain(torch.sqrt),
    "Squeeze": _squeeze,
    "Sub": _plain(torch.sub),
    "Sum": _fold(torch.add),
    "Tanh": _plain(torch.tanh),
    "Transpose": lambda node, x: x.permute(node.get("perm", list(reversed(range(x.ndim))))),
    "Unsqueeze": _unsqueeze,
    "Where": _plain(torch.where),
}
