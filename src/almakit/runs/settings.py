"""A hash over the code and settings of a model given from Python: two models with the same weights may differ in
these."""

from __future__ import annotations

import dis
import hashlib
from collections.abc import Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..models.classifier import Classifier, state_sha256
from .attack_text import fingerprint

LIBRARIES = ("almakit", "builtins", "numpy", "timm", "torch", "torchvision", "transformers")
"""Libraries whose code is left out: it changes only with their version."""
KEPT = ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks")
"""Private attributes of a torch module that it computes with."""


def settings_sha256(model: object) -> str:
    """The sha256 over a model's classes and functions, their code, and all values that they hold or refer to.

    Attributes that the model's own forward pass assigns, such as a counter of its calls, are left out.
    """
    digest, seen = hashlib.sha256(), dict[int, object]()
    for part in _parts(model, seen):
        digest.update(f"{len(part)} {part}".encode())
    return digest.hexdigest()


def _parts(value: Any, seen: dict[int, object]) -> Iterator[str]:
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, torch.dtype, torch.device)):
        yield repr(value)
        return
    if id(value) in seen:
        yield "seen"
        return
    seen[id(value)] = value  # a reference, so that no other object gets its id
    yield type(value).__qualname__
    if isinstance(value, (Tensor, np.ndarray)):
        yield str(state_sha256({"": torch.as_tensor(value)}))
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield str(key)
            yield from _parts(value[key], seen)
    elif isinstance(value, (set, frozenset)):
        yield from sorted(map(repr, value))
    elif isinstance(value, (type, ModuleType)) or _of_library(value):
        yield str(getattr(value, "__qualname__", getattr(value, "__name__", "")))
    else:
        for inner in _inside(value):
            yield from _parts(inner, seen)


def _inside(value: Any) -> list[object]:
    """The parts of a list, a function, a module or another object."""
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, FunctionType):
        codes, own = list(_codes(value.__code__)), _assigned(value, "STORE_DEREF")
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        closure = {name: cell.cell_contents for name, cell in cells if name not in own}
        names = {name for code in codes for name in code.co_names} - _assigned(value, "STORE_GLOBAL")
        outside = {name: value.__globals__[name] for name in names if name in value.__globals__}
        return [fingerprint(value), value.__defaults__, value.__kwdefaults__, closure, outside]
    if isinstance(value, Classifier):
        return [value.network, value.mean, value.std, value.fit_output]
    held = dict(getattr(value, "__dict__", {}))
    if isinstance(value, nn.Module):
        own = _assigned(type(value).forward, "STORE_ATTR") | {"training"}
        held = {name: inner for name, inner in held.items() if name not in own and (name[0] != "_" or name in KEPT)}
        for name in KEPT[3:]:  # the keys of hooks are consecutive numbers
            held[name] = list(held.get(name, {}).values())
        held["code"] = str(getattr(value, "code", ""))  # of a scripted or traced module
    return [held, *_of_class(type(value))]


def _of_class(kind: type) -> list[object]:
    """The functions and constants of a class and its bases, except those of libraries."""
    found: list[object] = []
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] not in LIBRARIES:
            for name, value in sorted(vars(base).items()):
                function = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
                if isinstance(function, FunctionType) or not name.startswith("__"):
                    found += [name, function]
    return found


def _of_library(value: object) -> bool:
    """Whether it is a function of a library, or an object of one that is not a torch module and has no settings."""
    if isinstance(value, (nn.Module, list, tuple, partial, MethodType)):
        return False
    module = getattr(value, "__module__", None) or type(value).__module__
    return str(module).partition(".")[0] in LIBRARIES and not getattr(value, "__dict__", None)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _assigned(function: Any, operation: str) -> set[str]:
    """The names that a function assigns by this operation."""
    code = getattr(function, "__code__", None)
    found = [] if code is None else [one for part in _codes(code) for one in dis.get_instructions(part)]
    return {str(one.argval) for one in found if one.opname == operation}
