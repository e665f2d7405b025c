"""Readers of ATen operators in exported programs: each returns a layer with bounds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .affine import Combined, Positive, Scale, Weighted
from .intervals import UNIT
from .nonlinear import MaxPool, Relu

Known = dict[Any, Any]
Read = tuple[Any, list[Any]]
"""A layer (None for a step that changes nothing) and the nodes of its inputs."""

SAME = (
    "to",
    "_to_copy",
    "clone",
    "contiguous",
    "detach",
    "alias",
    "lift_fresh_copy",
    "float",
    "double",
    "dropout",
    "feature_dropout",
    "type_as",
)
"""Steps that change nothing: a bound is one of real numbers, kept in float32 or float64 (``lossy_type``)."""
FLOAT32_EPS = torch.finfo(torch.float32).eps


class Unreadable(Exception):
    """A step with a supported name has arguments that are not supported."""


def same(kind: str) -> bool:
    return kind in SAME


def constant(node: Any, constants: Known) -> Any:
    """The value of a step that does not depend on the image, in the model's own type."""
    keywords = {key: _value(value, constants) for key, value in node.kwargs.items()}
    return node.target(*(_value(argument, constants) for argument in node.args), **keywords)


def lossy_type(node: Any, kind: str) -> torch.dtype | None:
    """The type of a step's result, if it is less precise than float32, or a cast of floats to integers."""
    floats = any(part.is_floating_point() for source in node.all_input_nodes for part in _tensors(source.meta["val"]))
    for kept in (value.dtype for value in _tensors(node.meta.get("val"))):
        if torch.finfo(kept).eps > FLOAT32_EPS if kept.is_floating_point else floats and same(kind):
            return kept
    return None


def _tensors(value: Any) -> list[Tensor]:
    return [part for part in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(part, Tensor)]


def _value(argument: Any, known: Known) -> Any:
    if isinstance(argument, torch.fx.Node):
        return known[argument]
    return [_value(part, known) for part in argument] if isinstance(argument, (list, tuple)) else argument


def _argument(node: Any, place: int, name: str, default: Any = None) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def _moves(argument: Any, known: Known) -> bool:
    """Whether an argument depends on the image. (``bool`` is an ``int``; a constant is a tensor or comes from no
    node.)"""
    return isinstance(argument, torch.fx.Node) and isinstance(known[argument], int)


def _units(outward: bool, terms: int) -> float:
    return (terms + 16) * UNIT if outward else 0.0


def _weighted(weight: Tensor, bias: Tensor | None, outward: bool, where: tuple[Any, ...] | None = None) -> Weighted:
    # The sums of a pass forward run over a row of the weights, those of a pass backward over a column.
    terms = max(weight[0].numel(), weight.numel() // weight.shape[1])
    return Weighted(_units(outward, terms), weight, bias, where)


def _linear(node: Any, known: Known, shape: tuple[int, ...], outward: bool) -> Read:
    weight, bias = (_value(_argument(node, place, ""), known) for place in (1, 2))
    if len(shape) != 1 or _moves(node.args[1], known):
        raise Unreadable("of more than one row for each image")
    return _weighted(weight, bias, outward), [node.args[0]]


def _matrix(node: Any, known: Known, shape: tuple[int, ...], outward: bool) -> Read:
    """x W, or b + x W."""
    *bias, x, weight = node.args[:3] if len(node.args) > 2 else node.args
    if (
        not _moves(x, known)
        or _moves(weight, known)
        or len(shape) != 1
        or (bias and _moves(bias[0], known))
        or node.kwargs
    ):
        raise Unreadable("of two things that depend on the image")
    if bias and known[bias[0]].shape != shape:
        raise Unreadable("whose bias is not one row")
    return _weighted(_value(weight, known).T, _value(bias[0], known) if bias else None, outward), [x]


def _pair(value: Any) -> tuple[int, int]:
    numbers = list(value) if isinstance(value, (list, tuple)) else [value]
    return (int(numbers[0]), int(numbers[-1]))


def _convolution(node: Any, known: Known, shape: tuple[int, ...], outward: bool) -> Read:
    weight, bias = (_value(_argument(node, place, name), known) for place, name in ((1, "weight"), (2, "bias")))
    if "convolution" in str(node.target):
        stride, padding, dilation, transposed, _, groups = (_argument(node, place, "") for place in range(3, 9))
    else:
        stride, padding, dilation, groups = (
            _argument(node, place, name, default)
            for place, name, default in ((3, "stride", 1), (4, "padding", 0), (5, "dilation", 1), (6, "groups", 1))
        )
        transposed = False
    if (
        _moves(node.args[1], known)
        or transposed
        or isinstance(padding, str)
        or {weight.ndim, node.args[0].meta["val"].ndim} != {4}
    ):
        raise Unreadable("that is not a plain convolution of images")
    return _weighted(weight, bias, outward, (_pair(stride), _pair(padding), _pair(dilation), groups)), [node.args[0]]


def _batch_norm(node: Any, known: Known, shape: tuple[int, ...], outward: bool) -> Read:
    weight, bias, mean, variance = (_value(argument, known) for argument in node.args[1:5])
    legit = "legit" in str(node.target)
    if (not legit and node.args[5]) or mean is None:
        raise Unreadable("in training mode, or without running statistics; call model.eval() first")
    factor = (variance + node.args[6 if legit else 7]).rsqrt() * (1.0 if weight is None else weight)
    shift = (0.0 if bias is None else bias) - mean * factor
    apart = (1, -1, *(1 for _ in range(node.args[0].meta["val"].ndim - 2)))
    return Scale(_units(outward, 4), factor.reshape(apart), shift.reshape(apart)), [node.args[0]]


def _scale(factor: Any, shift: Any, like: Tensor, outward: bool) -> Scale:
    made = [
        torch.as_tensor(part, dtype=torch.float64 if outward else like.dtype) if not isinstance(part, Tensor) else part
        for part in (factor, shift)
    ]
    made = [part.double() if outward else part for part in made]
    shaped = [part.reshape((1,) * (like.ndim - part.ndim) + tuple(part.shape)) for part in made]
    if any(part.shape[0] != 1 for part in shaped):
        raise Unreadable("with a number for each image of the batch")
    return Scale(_units(outward, 4), *shaped)


def _sum(node: Any, known: Known, shape: tuple[int, ...], outward: bool, sign: float = 1.0) -> Read:
    """a + k b or a - k b; either can be a constant."""
    first, second = node.args[:2]
    times = sign * float(_argument(node, 2, "alpha", 1))
    one, two = _moves(first, known), _moves(second, known)
    if one and two:
        if first.meta["val"].shape != second.meta["val"].shape:
            raise Unreadable("of different shapes")
        return Combined(_units(outward, 2), (1.0, times)), [first, second]
    like = node.meta["val"]
    if one:
        return _scale(1.0, times * _value(second, known), like, outward), [first]
    return _scale(times, _value(first, known), like, outward), [second]


def _product(node: Any, known: Known, shape: tuple[int, ...], outward: bool) -> Read:
    first, second = node.args[:2]
    if _moves(first, known) and _moves(second, known):
        raise Unreadable("of two things that depend on the image")
    moving, fixed = (first, second) if _moves(first, known) else (second, first)
    return _scale(_value(fixed, known), 0.0, node.meta["val"], outward), [moving]


def _quotient(node: Any, known: Known, shape: tuple[int, ...], outward: bool) -> Read:
    first, second = node.args[:2]
    if _moves(second, known) or "rounding_mode" in node.kwargs:
        raise Unreadable("by something that depends on the image")
    below = _value(second, known)
    return _scale(
        1 / (below.double() if outward and isinstance(below, Tensor) else below), 0.0, node.meta["val"], outward
    ), [first]


def _from_scalar(node: Any, known: Known, shape: tuple[int, ...], outward: bool) -> Read:
    """rsub: c - k x."""
    times = float(_argument(node, 2, "alpha", 1))
    return _scale(-times, _value(node.args[1], known), node.meta["val"], outward), [node.args[0]]


def _item(node: Any, known: Known, shape: tuple[int, ...], outward: bool) -> Read:
    if node.args[1] != 0:
        raise Unreadable("of a second result")
    return None, [node.args[0]]


def _reshaped(node: Any, known: Known, shape: tuple[int, ...], outward: bool) -> Read:
    if node.meta["val"].dtype != node.args[0].meta["val"].dtype:
        raise Unreadable("of the same bits as another type")
    return Positive(0.0, lambda x: x.reshape(len(x), *shape)), [node.args[0]]


def _linear_step(node: Any, known: Known, shape: tuple[int, ...], outward: bool) -> Read:
    """An operator of one image that has no negative coefficient, called as it stands."""
    source = node.args[0]
    kind = str(node.target.name()).removeprefix("aten::").partition(".")[0]
    dims = _argument(node, 1, "dim", ())
    ndim = source.meta["val"].ndim
    if kind in ("mean", "sum", "slice"):
        inside = (
            [dim % ndim for dim in (dims if isinstance(dims, (list, tuple)) else [dims])]
            if dims not in (None, ())
            else [0]
        )
        if 0 in inside:
            raise Unreadable("over the images of the batch")
    if (kind == "permute" and dims[0] % ndim != 0) or (
        kind == "transpose" and 0 in (node.args[1] % ndim, node.args[2] % ndim)
    ):
        raise Unreadable("of the images of the batch")
    if kind in ("pad", "constant_pad_nd") and (
        (kind == "pad" and _argument(node, 2, "mode", "constant") != "constant") or len(node.args[1]) // 2 >= ndim
    ):
        raise Unreadable("that is not a border of one constant")
    if kind == "avg_pool2d" and (_argument(node, 6, "divisor_override") or 1) < 0:
        raise Unreadable("with a negative divisor (divisor_override)")
    rest = [_value(argument, known) for argument in node.args[1:]]
    keywords = {key: _value(value, known) for key, value in node.kwargs.items() if key != "dtype"}
    before = source.meta["val"].shape[1:].numel()
    # Without sums there is no rounding: values are only moved or cut out.
    terms = -16 if kind in ("permute", "transpose", "slice", "pad", "constant_pad_nd") else before
    return Positive(_units(outward, terms), lambda x: node.target(x, *rest, **keywords)), [source]


def _together(node: Any, known: Known, shape: tuple[int, ...], outward: bool) -> Read:
    parts, dim = list(node.args[0]), _argument(node, 1, "dim", 0)
    if not all(_moves(part, known) for part in parts) or dim % node.meta["val"].ndim == 0:
        raise Unreadable("of constants, or of the images of the batch")
    return Positive(0.0, lambda *x: torch.cat(x, dim)), parts


def _largest(node: Any, known: Known, shape: tuple[int, ...], outward: bool) -> Read:
    kernel = _pair(node.args[1])
    stride = _argument(node, 2, "stride")
    padding, dilation = _pair(_argument(node, 3, "padding", 0)), _pair(_argument(node, 4, "dilation", 1))
    if _argument(node, 5, "ceil_mode", False) or node.args[0].meta["val"].ndim != 4:
        raise Unreadable("with ceil_mode, or of images without channels")
    return MaxPool(kernel, _pair(stride) if stride else kernel, padding, dilation), [node.args[0]]


READERS: dict[str, Callable[..., Read]] = {
    "linear": _linear,
    **dict.fromkeys(("mm", "matmul", "addmm"), _matrix),
    **dict.fromkeys(("conv2d", "convolution"), _convolution),
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit_no_training"), _batch_norm),
    "add": _sum,
    "sub": partial(_sum, sign=-1.0),
    "mul": _product,
    "div": _quotient,
    "neg": lambda node, known, shape, outward: (_scale(-1.0, 0.0, node.meta["val"], outward), [node.args[0]]),
    "rsub": _from_scalar,
    **dict.fromkeys(SAME, lambda node, known, shape, outward: (None, [node.args[0]])),
    "<built-in function getitem>": _item,
    **dict.fromkeys(("flatten", "view", "reshape", "_unsafe_view", "squeeze", "unsqueeze"), _reshaped),
    **dict.fromkeys(
        (
            "mean",
            "sum",
            "avg_pool2d",
            "adaptive_avg_pool2d",
            "_adaptive_avg_pool2d",
            "permute",
            "transpose",
            "slice",
            "pad",
            "constant_pad_nd",
        ),
        _linear_step,
    ),
    "cat": _together,
    **dict.fromkeys(("max_pool2d", "max_pool2d_with_indices"), _largest),
    "relu": lambda node, known, shape, outward: (Relu(), [node.args[0]]),
}
