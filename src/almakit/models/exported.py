"""Models saved with ``torch.export.save`` (.pt2): graphs of tensor operators, run one by one; no code of their author
runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..core.model import filled
from ..errors import BadModel
from .archive import DTYPES, Archive, read_archive
from .exported_ops import ASSERTIONS, Device, Name, argument, bound, names_in, operator

Shape = tuple[int | None, ...]
LARGEST = 1 << 30  # values of a batch of images: four gigabytes
FAULTS = (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError, ArithmeticError, AssertionError)
"""What an operator raises that was given arguments it cannot work with."""


class FixedShape(nn.Module):
    """A graph that was made for images of one shape (B, C, H, W), a side None where it is free.

    One for a fixed batch of n images is run n images at a time, the last ones filled up.
    """

    def __init__(self, shape: Shape | None):
        super().__init__()
        self.shape = shape
        self.batch = shape[0] if shape else None
        self.image_shape = (
            tuple(shape[1:]) if shape and len(shape) == 4 and all(isinstance(side, int) for side in shape) else None
        )

    def train(self, mode: bool = True) -> FixedShape:
        # An exported graph has no mode: dropout and batch norm were fixed when it was exported, and its own train()
        # refuses.
        self.training = mode
        return self

    def forward(self, x: Tensor) -> Tensor:
        wanted = (None, *(self.shape or ())[1:])
        if self.shape and (
            x.ndim != len(wanted) or any(want not in (None, side) for want, side in zip(wanted, x.shape, strict=True))
        ):
            sides = tuple("any" if side is None else side for side in wanted[1:])
            raise BadModel(
                f"the program was exported for images of shape {sides}, not {tuple(x.shape[1:])}; see --size and "
                "--channels."
            )
        return self.run(x) if self.batch is None else in_fixed_batches(self.run, x, self.batch)

    def run(self, x: Tensor) -> Tensor:
        """The logits of as many images as the graph takes."""
        raise NotImplementedError


class Trusted(FixedShape):
    """What torch's own loader makes of a file the user trusts."""

    def __init__(self, program: Any):
        super().__init__(_input_shape(program))
        self.program = program.module()

    def run(self, x: Tensor) -> Tensor:
        found: Tensor = self.program(x)
        return found


@dataclass(frozen=True)
class Step:
    """One operator of a graph with its arguments, ``Name`` where a value goes in.

    ``outputs`` are names too (None: not used), ``last`` is what nobody needs after it.
    """

    target: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[Any, ...]
    last: tuple[str, ...] = ()


class Exported(FixedShape):
    """A program read by ``read_archive`` as a module that can be differentiated and put into evaluation mode."""

    def __init__(self, archive: Archive):
        module = archive.program["graph_module"]
        graph, signature = module["graph"], module["signature"]
        given, self_values, user = {}, {}, []  # type: dict[str, str], dict[str, Any], list[str]
        for kind, spec in (_only(entry) for entry in signature["input_specs"]):
            if kind == "user_input":
                user.append(_only(spec["arg"])[1]["name"] if "as_tensor" in spec["arg"] else "")
            elif kind == "constant_input":
                self_values[spec["name"]] = argument(spec["value"])
            elif kind in ("parameter", "buffer", "tensor_constant"):
                given[spec["arg"]["name"]] = spec[f"{kind}_name"]
            else:
                raise BadModel(f"it takes a {kind}, which is no tensor")
        if len(user) != 1 or not user[0]:
            raise BadModel(f"it takes {len(user)} inputs; a classifier takes one, the images")
        super().__init__(_sides(graph["tensor_values"].get(user[0])))
        self.program = nn.Module()
        self.values, self.input, self.places = self_values, user[0], given
        persistent = {
            spec["buffer"]["buffer_name"]
            for spec in signature["input_specs"]
            if "buffer" in spec and spec["buffer"]["persistent"]
        }
        parameters = {spec["parameter"]["parameter_name"] for spec in signature["input_specs"] if "parameter" in spec}
        for place in dict.fromkeys([*given.values(), *archive.weights]):
            tensor = archive.weights[place] if place in archive.weights else archive.constants[place]
            self._keep(place, tensor, place in parameters, place in persistent)
        kinds = [_only(spec) for spec in signature["output_specs"]]
        if any(kind != "user_output" for kind, _ in kinds):
            raise BadModel("it changes its own buffers while it runs; call model.eval() before the export")
        self.outputs = tuple(argument(entry) for entry in graph["outputs"])
        self.steps = _steps(graph["nodes"], {*given, *self_values, user[0]}, names_in(self.outputs))

    def _keep(self, place: str, tensor: Tensor, parameter: bool, persistent: bool) -> None:
        """Puts a tensor where it was in the exported module, so that weights keep their names."""
        *rooms, name = place.split(".")
        module = self.program
        for room in rooms:
            if room not in module._modules:
                module.add_module(room, nn.Module())
            module = module.get_submodule(room)
        if parameter and tensor.is_floating_point():
            module.register_parameter(name, nn.Parameter(tensor, requires_grad=False))
        else:
            module.register_buffer(name, tensor, persistent=persistent)

    def run(self, x: Tensor) -> Tensor:
        values = {**self.values, self.input: x}
        for name, place in self.places.items():
            room, _, last = place.rpartition(".")
            values[name] = getattr(self.program.get_submodule(room), last)
        for step in self.steps:
            found = _call(step, values, x.device)
            for name, value in zip(step.outputs, found if len(step.outputs) != 1 else (found,), strict=True):
                _put(values, name, value)
            for name in step.last:
                values.pop(name, None)
        outputs = _filled(self.outputs, values, x.device)
        answer: Tensor = outputs[0] if len(outputs) == 1 else outputs
        return answer


def exported(path: Path, trust: bool) -> FixedShape:
    """The network in a .pt2 file; ``trust`` hands it to torch's own loader, which can run code in it."""
    try:
        return Trusted(torch.export.load(path)) if trust else Exported(read_archive(path))
    except Exception as error:
        own = isinstance(error, BadModel)
        reason = str(error).rstrip(".") if own else f"{type(error).__name__}: {str(error)[:300]}"
        hint = (
            ""
            if trust
            else " If you trust its author, --trust (trust=True) hands it to torch's own loader, which can run code "
            "in it."
        )
        raise BadModel(
            f"{path} cannot be read as a torch.export file ({reason}); save it with torch.export.save, in evaluation "
            f"mode.{hint}"
        ) from error


def in_fixed_batches(network: Callable[[Tensor], Tensor], x: Tensor, size: int) -> Tensor:
    """Logits of the images ``x`` (B, C, H, W) from a network that takes exactly ``size`` images at a time."""
    return torch.cat([filled(network, part, size) for part in x.split(size)])


def _steps(nodes: list[Any], known: set[str], wanted: set[str]) -> list[Step]:
    """The graph's operators in order, each with the names that are dead after it; an operator that is not known, or a
    name before its value, is refused."""
    todo = [node for node in nodes if node["target"] not in ASSERTIONS]
    if foreign := sorted(
        {str(node["target"]).removeprefix("torch.ops.") for node in todo if operator(str(node["target"])) is None}
    ):
        raise BadModel(
            f"it uses {', '.join(foreign[:5])}, which almakit does not run; export it as plain layers, or give it as "
            "file.py:function"
        )
    steps = []
    for node in todo:
        args, kwargs = bound(node["target"], node["inputs"])
        outputs = tuple(argument(entry) for entry in node["outputs"])
        if missing := names_in((args, kwargs)) - known:
            raise BadModel(f"its operator {node['target']} uses {sorted(missing)[0]!r} before there is such a value")
        known |= names_in(outputs)
        steps.append(Step(node["target"], args, kwargs, outputs))
    if wanted - known:
        raise BadModel("its output is no value of its graph")
    needed = set(wanted)
    for at in reversed(range(len(steps))):
        used = names_in((steps[at].args, steps[at].kwargs)) | names_in(steps[at].outputs)
        steps[at] = replace(steps[at], last=tuple(sorted(used - needed)))
        needed |= used
    return steps


def _call(step: Step, values: dict[str, Any], device: torch.device) -> Any:
    function: Any = operator(step.target)
    try:
        return function(*_filled(step.args, values, device), **_filled(step.kwargs, values, device))
    except FAULTS as error:
        raise failed(f"the exported program's {step.target.removeprefix('torch.ops.')}", error) from error


def failed(what: str, error: Exception) -> Exception:
    """What to raise where an operator of a file's graph failed: a sentence, or the error itself where memory ran out
    and fewer images may do."""
    if isinstance(error, BadModel) or "memory" in str(error):
        return error
    return BadModel(
        f"{what} failed ({type(error).__name__}: {str(error).strip()[:200]}); the file's graph does not fit these "
        "images, or is damaged."
    )


def possible(sides: Shape) -> bool:
    """Whether images can have this shape (B, C, H, W), None for a free side."""
    known = [side for side in sides if side is not None]
    return bool(sides) and all(type(side) is int and side > 0 for side in known) and math.prod(known) <= LARGEST


def _filled(value: Any, values: dict[str, Any], device: torch.device) -> Any:
    """Arguments with values in place of names; what was on the exporting machine's device is on the images' own."""
    if isinstance(value, Name):
        return values[value.name]
    if isinstance(value, Device):
        return device
    if isinstance(value, dict):
        return {key: _filled(each, values, device) for key, each in value.items()}
    return type(value)(_filled(each, values, device) for each in value) if isinstance(value, (tuple, list)) else value


def _put(values: dict[str, Any], name: Any, value: Any) -> None:
    if isinstance(name, Name):
        values[name.name] = value
    elif isinstance(name, list):
        for each, part in zip(name, value, strict=True):
            _put(values, each, part)


def _only(union: dict[str, Any]) -> tuple[str, Any]:
    """The one entry of a JSON union."""
    ((kind, value),) = union.items()
    return kind, value


def _sides(meta: Any) -> Shape | None:
    """The shape a graph says its input has, None for a free side; images are floating point."""
    if meta is None or meta["dtype"] not in DTYPES or not DTYPES[meta["dtype"]].is_floating_point:
        raise BadModel("its input is not an image of floating-point numbers")
    sides = tuple(side.get("as_int") for side in meta["sizes"])
    if not possible(sides):
        raise BadModel(f"its input has the shape {sides}, which no images have")
    return sides


def _input_shape(program: Any) -> Shape | None:
    """The shape the program was exported for, None for a free side."""
    users = program.graph_signature.user_inputs
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in users:
            value = node.meta.get("val")
            return tuple(side if isinstance(side, int) else None for side in value.shape) if value is not None else None
    return None
