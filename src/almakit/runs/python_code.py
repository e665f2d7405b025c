"""Hashes of functions and models passed in Python: their code and the values they contain or refer to."""

from __future__ import annotations

import dis
import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..models.classifier import Classifier, state_sha256

LIBRARIES = ("almakit", "builtins", "numpy", "timm", "torch", "torchvision", "transformers")
"""Libraries whose code is not hashed, because it changes only with their version."""
HOOKS = ("_forward_hooks", "_forward_pre_hooks")
PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)


def fingerprint(function: Callable[..., Any]) -> str:
    """A name ``name#1a2b3c4d`` that depends on a function's code, but not on the values the code refers to."""
    name = getattr(function, "__name__", type(function).__name__).strip("<>")
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    if code is None:
        return str(name)
    digest = hashlib.sha256()
    for part in _codes(code):
        plain = [
            sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant
            for constant in part.co_consts
            if not isinstance(constant, CodeType)
        ]
        digest.update(part.co_code + repr((part.co_names, part.co_varnames, plain)).encode())
    return f"{name}#{digest.hexdigest()[:8]}"


def settings_sha256(model: object) -> str:
    """The sha256 over the classes and functions of a model, their code, and all values they contain or refer to.

    What the model's own code assigns, such as a counter of its calls, is left out.
    """
    digest, seen = hashlib.sha256(), dict[int, object]()
    for part in _parts(model, seen):
        digest.update(f"{len(part)} {part}".encode())
    return digest.hexdigest()


def _parts(value: Any, seen: dict[int, object]) -> Iterator[str]:
    if isinstance(value, PLAIN):
        yield repr(value)
    elif id(value) in seen:
        yield "seen"
    else:
        seen[id(value)] = value  # keeps the object alive, so that no other object gets its id
        yield type(value).__qualname__
        if isinstance(value, (Tensor, np.ndarray)):
            yield str(state_sha256({"": torch.as_tensor(value)}))
        elif isinstance(value, (set, frozenset)):
            yield from sorted(map(repr, value))
        elif isinstance(value, (type, ModuleType)) or _of_library(value):
            yield str(getattr(value, "__qualname__", getattr(value, "__name__", "")))
        else:
            for inner in _inside(value):
                yield from _parts(inner, seen)


def _inside(value: Any) -> list[Any]:
    """The contents of a collection, function, module or other object, in an order that does not depend on the
    process."""
    if isinstance(value, (list, tuple)):
        return list(value)
    if isinstance(value, Mapping):
        return [part for key in sorted(value, key=str) for part in (str(key), value[key])]
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, FunctionType):
        names = {name for code in _codes(value.__code__) for name in code.co_names}
        assigned = _assigned(value.__code__, "STORE_GLOBAL", "STORE_DEREF")
        outside = {name: value.__globals__[name] for name in names - assigned if name in value.__globals__}
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        closure = [cell.cell_contents for name, cell in cells if name not in assigned]
        return [fingerprint(value), value.__defaults__, value.__kwdefaults__, closure, outside]
    if isinstance(value, Classifier):
        return [value.network, value.mean, value.std, value.fit_output]
    held = dict(getattr(value, "__dict__", {}))
    if isinstance(value, nn.Module):
        code = getattr(type(value).forward, "__code__", None)
        assigned = {"training"} if code is None else {"training", *_assigned(code, "STORE_ATTR")}
        kept = {name: inner for name, inner in held.items() if name[0] != "_" and name not in assigned}
        # The keys of hooks are consecutive numbers. A scripted or traced module has code.
        hooks = [list(held.get(name, {}).values()) for name in HOOKS]
        held = {**kept, "parts": [value._parameters, value._buffers, value._modules, hooks]}
        held["code"] = str(getattr(value, "code", ""))
    return [held, *_of_class(type(value))]


def _of_class(kind: type) -> list[Any]:
    """The functions and constants of a class and its bases, except those of libraries."""
    found: list[Any] = []
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] not in LIBRARIES:
            for name, value in sorted(vars(base).items()):
                function = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
                if isinstance(function, FunctionType) or not name.startswith("__"):
                    found += [name, function]
    return found


def _of_library(value: Any) -> bool:
    """Whether ``value`` is a function of a library, or a library object without settings that is neither a module nor a
    collection."""
    if isinstance(value, (nn.Module, list, tuple, Mapping, partial, MethodType)):
        return False
    module = getattr(value, "__module__", None) or type(value).__module__
    return str(module).partition(".")[0] in LIBRARIES and not getattr(value, "__dict__", None)


def _assigned(code: CodeType, *operations: str) -> set[str]:
    """Names that a function, or a function inside it, assigns with one of the bytecode ``operations``."""
    steps = (step for part in _codes(code) for step in dis.get_instructions(part))
    return {str(step.argval) for step in steps if step.opname in operations}


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of the functions inside it."""
    yield code
    for constant in reversed(code.co_consts):
        if isinstance(constant, CodeType):
            yield from _codes(constant)
