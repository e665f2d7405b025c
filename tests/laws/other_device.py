"""A second device, pretended on the CPU, that behaves like a GPU: tensors report it, and an operation that mixes them
with tensors of the CPU fails.

Under ``OtherDevice`` every call of torch is watched. A tensor is on the device if it was made there (``device=``), was
moved there, or is computed from tensors that are. As on a GPU, tensors of the CPU may join in only where they have no
dimension, as indices, or as the source of a copy, and ``numpy()`` needs ``cpu()`` first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

DEVICE = torch.device("privateuseone", 0)
CPU = torch.device("cpu")
# Getters and calls that give no tensor a place.
INDEXING = ("__getitem__", "__setitem__", "index_put_", "index_put")


class WrongDevice(RuntimeError):
    """Tensors of two devices met in one operation, or one was read without being moved."""


def put(value: Any) -> Any:
    """Marks a tensor, the tensors of a module, or those of a container as being on the device."""
    for tensor in [*value.parameters(), *value.buffers()] if isinstance(value, nn.Module) else tensors(value):
        tensor.on_device = True
    return value


def on_device(tensor: Tensor) -> bool:
    return getattr(tensor, "on_device", False)


def tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors(each)
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))


class OtherDevice(TorchFunctionMode):
    """Pretends that ``DEVICE`` exists."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), getattr(function, "__name__", "")
        if name == "__get__" and getattr(function, "__self__", None) is Tensor.device:
            return DEVICE if on_device(args[0]) else CPU
        if name in ("cpu", "numpy", "__array__"):
            if name != "cpu" and on_device(args[0]):
                raise WrongDevice(f"{name}() of a tensor on the device; move it with .cpu() first")
            # A copy without the mark; torch's own cpu() would return the very same tensor.
            return function(args[0].view_as(args[0]) if on_device(args[0]) else args[0], *args[1:], **kwargs)
        if function is Tensor.to:
            return self._moved(args, kwargs)
        target = kwargs.get("device")
        if target is not None:
            kwargs["device"] = CPU
            if torch.device(target) == DEVICE and kwargs.get("generator") is not None:
                raise WrongDevice(f"{name} on the device with a generator of the CPU")
        found = function(*args, **kwargs)
        if name in ("__set__", "__delete__"):
            return found
        place = self._place(name, args, kwargs) if target is None else torch.device(target) == DEVICE
        for tensor in tensors(found):
            if place:
                tensor.on_device = True
            elif target is not None and on_device(tensor):
                raise WrongDevice(f"{name} left a tensor on the device that was to be on {target}")
        return found

    def _place(self, name: str, args: Any, kwargs: dict[str, Any]) -> bool:
        """Whether the result of a call is on the device."""
        operands = list(tensors([args, kwargs]))
        there = [tensor for tensor in operands if on_device(tensor)]
        if not there or name == "copy_":
            return bool(operands) and on_device(operands[0])
        here = [tensor for tensor in operands if not on_device(tensor) and tensor.ndim]
        if name in INDEXING and on_device(args[0]):
            here = [tensor for tensor in here if not any(tensor is index for index in tensors(args[1]))]
        if here:
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in here)
            raise WrongDevice(f"{name} mixes tensors on the device with tensors of the CPU, of shape {shapes}")
        return True

    @staticmethod
    def _moved(args: Any, kwargs: dict[str, Any]) -> Tensor:
        """``tensor.to(...)``: the device of another tensor or the one that is named; the dtype as torch has it."""
        tensor, rest = args[0], list(args[1:])
        there = on_device(tensor)
        for place, value in enumerate(rest):
            if isinstance(value, Tensor):
                there = on_device(value)
            elif isinstance(value, (str, torch.device)):
                there, rest[place] = torch.device(value) == DEVICE, CPU
        if kwargs.get("device") is not None:
            there, kwargs["device"] = torch.device(kwargs["device"]) == DEVICE, CPU
        moved = tensor.to(*rest, **kwargs)
        if moved is tensor and there != on_device(tensor):
            moved = tensor.view_as(tensor)
        if there:
            moved.on_device = True
        return moved  # type: ignore[no-any-return]
