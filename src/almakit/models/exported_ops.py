"""The operators an exported graph may use, and its arguments. What is not listed here is not run: among torch's
operators are some that write files."""

from __future__ import annotations

import operator as python
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from ..errors import BadModel
from .archive import DTYPES

NAMES = """
    _adaptive_avg_pool2d _log_softmax _native_batch_norm_legit _native_batch_norm_legit_no_training _safe_softmax
    _softmax _to_copy _unsafe_view abs acos acosh adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
    adaptive_max_pool1d adaptive_max_pool2d add addbmm addcdiv addcmul addmm addmv alias all amax amin aminmax any
    arange argmax argmin argsort as_strided asin asinh atan atan2 atanh avg_pool1d avg_pool2d avg_pool3d baddbmm
    batch_norm bernoulli bitwise_and bitwise_not bitwise_or bitwise_xor bmm broadcast_tensors broadcast_to bucketize
    cat ceil celu channel_shuffle chunk clamp clamp_max clamp_min clip clone concat concatenate constant_pad_nd
    contiguous conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution copy cos cosh
    cumprod cumsum detach diag diag_embed diagonal diff div divide dot dropout einsum elu embedding empty_like eq
    erf erfc exp exp2 expand expand_as expm1 eye feature_dropout fill flatten flip floor floor_divide fmod frac full
    full_like gather ge gelu glu grid_sampler grid_sampler_2d group_norm gt hardshrink hardsigmoid hardswish
    hardtanh heaviside index index_add index_put index_select instance_norm isfinite isinf isnan layer_norm le
    leaky_relu lerp lift_fresh lift_fresh_copy linalg_norm linalg_vector_norm linear log log10 log1p log2
    log_sigmoid log_softmax logaddexp logical_and logical_not logical_or logical_xor logit logsumexp lt masked_fill
    masked_scatter masked_select matmul max max_pool1d max_pool2d max_pool2d_with_indices max_pool3d maximum mean
    median min minimum mish mm mT movedim mul multiply mv nan_to_num narrow native_batch_norm native_dropout
    native_group_norm native_layer_norm ne neg new_empty new_full new_ones new_zeros nonzero norm normal numpy_T
    one_hot ones ones_like pad permute pixel_shuffle pixel_unshuffle pow prelu prod rand rand_like randn randn_like
    reciprocal reflection_pad1d reflection_pad2d relu relu6 remainder repeat repeat_interleave replication_pad1d
    replication_pad2d reshape reshape_as rms_norm roll round rot90 rrelu rsqrt rsub scalar_tensor
    scaled_dot_product_attention scatter scatter_add select select_copy selu sigmoid sign silu sin sinh slice
    slice_copy slice_scatter softmax softplus softshrink sort split split_with_sizes split_with_sizes_copy sqrt
    square squeeze squeeze_copy stack std std_mean sub subtract sum swapaxes t tan tanh tensor_split threshold tile
    to topk transpose tril triu true_divide trunc type_as unbind unfold unflatten uniform unsqueeze
    upsample_bicubic2d upsample_bilinear2d upsample_nearest1d upsample_nearest2d upsample_trilinear3d var var_mean
    vstack hstack view view_as where zero zeros zeros_like sym_size sym_numel sym_stride sym_storage_offset
"""
"""Operators on tensors; each also with a trailing underscore, in place."""

ATEN = frozenset(NAMES.split())

LARGEST = 1 << 62


def _number(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of sizes, kept to plain numbers that fit a size."""

    def of_numbers(*values: Any) -> Any:
        if not all(isinstance(value, (bool, int, float)) for value in values):
            raise TypeError("sizes are numbers")
        found = function(*values)
        if abs(found) > LARGEST:
            raise ValueError("a size is too large")
        return found

    return of_numbers


SIZES = {
    f"_operator.{name}": _number(getattr(python, name))
    for name in (
        "add",
        "sub",
        "mul",
        "floordiv",
        "truediv",
        "mod",
        "neg",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "and_",
        "or_",
        "not_",
    )
} | {
    "torch.sym_max": _number(max),
    "torch.sym_min": _number(min),
    "torch.sym_float": _number(float),
    "torch.sym_int": _number(int),
    "math.trunc": _number(int),
}
"""What a graph computes with the sizes of its tensors."""

ASSERTIONS = frozenset(
    f"torch.ops.aten.{name}"
    for name in (
        "_assert_async.msg",
        "_assert_scalar.default",
        "_assert_tensor_metadata.default",
        "sym_constrain_range.default",
        "sym_constrain_range_for_size.default",
    )
)
"""What the exporter assumed; operators check what they need themselves."""

MEMORY = {1: torch.contiguous_format, 2: torch.channels_last, 3: torch.channels_last_3d, 4: torch.preserve_format}
LAYOUTS = {7: torch.strided}
TARGET = re.compile(r"torch\.ops\.aten\.([a-zA-Z_]\w*)\.([a-zA-Z]\w*)\Z", re.ASCII)


@dataclass(frozen=True)
class Name:
    """A value of the graph."""

    name: str


class Device:
    """A device in an argument: where the images are, whatever machine the graph was exported on."""


@cache
def operator(target: str) -> Callable[..., Any] | None:
    """What a node's target stands for; None where it is not on the list."""
    if target in SIZES:
        return SIZES[target]
    found = TARGET.match(target)
    if found is None or (
        found[1] not in ATEN and (found[1].startswith("__") or found[1].removesuffix("_") not in ATEN)
    ):
        return None
    overloads = getattr(torch.ops.aten, found[1], None)
    return getattr(overloads, found[2]) if overloads is not None and found[2] in overloads.overloads() else None


def bound(target: str, inputs: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a node, positional and named, as its operator's own schema has them."""
    given = [(entry["name"], argument(entry["arg"])) for entry in inputs]
    if target in SIZES:
        return tuple(value for _, value in given), {}
    named, args, kwargs = dict(given), [], {}
    schema: Any = operator(target)
    own = schema._schema.arguments
    if len(named) != len(given) or not {*named} <= {each.name for each in own}:
        raise BadModel(f"its operator {target} has arguments the operator does not take")
    for each in own:
        if each.kwarg_only and each.name in named:
            kwargs[each.name] = named[each.name]
        elif not each.kwarg_only and (each.name in named or each.has_default_value()):
            args.append(named.get(each.name, each.default_value))
        elif not each.has_default_value():
            raise BadModel(f"its operator {target} lacks the argument {each.name}")
    return tuple(args), kwargs


def argument(union: dict[str, Any]) -> Any:
    """An argument from its JSON: a number, a text, a ``Name``, or lists of them."""
    ((kind, value),) = union.items()
    if kind == "as_none":
        return None
    if kind in ("as_tensor", "as_name"):
        return Name(str(value["name"] if kind == "as_tensor" else value))
    if kind in ("as_tensors", "as_optional_tensors", "as_sym_ints", "as_sym_bools", "as_sym_floats"):
        return [argument({"as_tensor": each} if kind == "as_tensors" else each) for each in value]
    if kind in ("as_sym_int", "as_sym_bool", "as_sym_float", "as_optional_tensor"):
        return argument(value)
    if kind in ("as_int", "as_float", "as_bool", "as_string"):
        return _plain(kind, value)
    if kind in ("as_ints", "as_floats", "as_bools"):
        return [_plain(kind[:-1], each) for each in value]
    if kind == "as_scalar_type":
        return DTYPES[value]
    if kind == "as_memory_format":
        return MEMORY[value]
    if kind == "as_layout":
        return LAYOUTS[value]
    if kind == "as_device":
        return Device()
    raise BadModel(f"it has an argument of the kind {kind}, which is no tensor, number or text")


def _plain(kind: str, value: Any) -> Any:
    kinds = {"as_int": (int,), "as_float": (float, int, str), "as_bool": (bool,), "as_string": (str,)}[kind]
    if not isinstance(value, kinds) or (isinstance(value, bool) and kind != "as_bool"):
        raise BadModel(f"it has {str(value)[:60]!r} for an argument {kind}")
    return float(value) if kind == "as_float" else value


def names_in(value: Any) -> set[str]:
    """The names of graph values inside arguments."""
    if isinstance(value, Name):
        return {value.name}
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return {name for each in inner for name in names_in(each)}
