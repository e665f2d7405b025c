"""ONNX files as torch modules that can be differentiated: the graph is read with the ``onnx`` package and run op by op
in torch."""

from __future__ import annotations

import math
from pathlib import Path, PurePath
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import AlmakitError, BadModel, Unavailable, optional, suggestion
from .classifier import in_fixed_batches
from .onnx_ops import OPS, Node

_OWN = ("", "ai.onnx")
_FLOATS = (1, 10, 11, 16)  # TensorProto's float, float16, double and bfloat16
OLDEST = 7  # of the opsets that are read: since then operators broadcast as numpy does
_LARGEST = 1 << 30  # values of a batch of images: four gigabytes
_FAULTS = (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError, ArithmeticError, AssertionError)
"""Errors that an operator raises for invalid arguments."""


class OnnxNetwork(nn.Module):
    """An ONNX graph with one image input and one output of logits.

    Initialisers are the parameters. A graph with a fixed batch size n is run n images at a time unless it gives the
    same logits for a larger batch. A graph that expects channels last gets them last.

    Args:
        graph: the ``GraphProto``.
        opset: the version of the operators' rules.
        folder: where the file lies, and weights it keeps beside it.
        output: the output to read; "" for the only one, or the only one of floats (scikit-learn's exports have labels
            beside them).
    """

    def __init__(self, graph: Any, opset: int, folder: Path = Path(), output: str = ""):
        super().__init__()
        self.output = _output(graph, output)
        self.names: dict[str, str] = {}
        self.constants: dict[str, Tensor] = {}
        for initial in graph.initializer:
            self._keep(initial.name, _tensor(initial, folder))
        needed = _needed(graph, self.output)
        used = {node.op_type if node.domain in _OWN else f"{node.domain}.{node.op_type}" for node in needed}
        if unknown := sorted(used - set(OPS)):
            raise BadModel(
                f"the ONNX graph uses {', '.join(unknown)}, which almakit cannot run in torch; export the model again "
                "as plain layers, or give it as file.py:function."
            )
        nodes = [_node(node, opset, folder) for node in needed]
        for node in nodes:
            if node.op == "Constant":
                self._keep(node.outputs[0], OPS["Constant"](node))
        self.nodes = [node for node in nodes if node.op != "Constant"]
        inputs = [entry for entry in graph.input if entry.name not in {initial.name for initial in graph.initializer}]
        if len(inputs) != 1:
            raise BadModel(f"the ONNX graph has {len(inputs)} inputs; a classifier has one, the images.")
        self.input = inputs[0].name
        known = {self.input, *self.names, *self.constants, ""}
        for node in self.nodes:
            if missing := set(node.inputs) - known:
                raise BadModel(f"the ONNX graph's {node.op} uses {sorted(missing)[0]!r} before there is such a value.")
            known |= set(node.outputs)
        if self.output not in known:
            raise BadModel(f"the ONNX graph's output {self.output!r} is no value of it.")
        sides = inputs[0].type.tensor_type.shape.dim
        shape = [side.dim_value if side.HasField("dim_value") else None for side in sides]
        if shape and not _possible([shape[0] or None, *shape[1:]]):
            raise BadModel(f"the ONNX graph takes images of shape {tuple(shape)}, which no images have.")
        self.channels_last = len(shape) == 4 and shape[3] in (1, 3) and shape[1] not in (1, 3)
        own = [shape[3], shape[1], shape[2]] if self.channels_last else shape[1:]
        self.image_shape = tuple(int(side) for side in own if side) if len(own) == 3 and all(own) else None
        self.batch = shape[0] or None if shape else None
        if self.batch is not None and self.image_shape is not None and self._takes_any_batch():
            self.batch = None

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 2, 3, 1) if self.channels_last and x.ndim == 4 else x
        return self._run(x) if self.batch is None else in_fixed_batches(self._run, x, self.batch)

    def _keep(self, name: str, value: Tensor) -> None:
        """Floating values are parameters, so that they follow the network's device and type; whole numbers are shapes
        and indices."""
        if value.is_floating_point():
            self.names[name] = f"weight_{len(self.names)}"
            self.register_parameter(self.names[name], nn.Parameter(value, requires_grad=False))
        else:
            self.constants[name] = value

    def _run(self, x: Tensor) -> Tensor:
        values: dict[str, Tensor] = {self.input: x}
        values.update({name: value.to(x.device) for name, value in self.constants.items()})
        values.update({name: self.get_parameter(own) for name, own in self.names.items()})
        for node in self.nodes:
            try:
                outputs = OPS[node.op](node, *(values[name] if name else None for name in node.inputs))
            except _FAULTS as error:
                if isinstance(error, BadModel) or "memory" in str(error):
                    raise  # after running out of memory, fewer images may work
                raise BadModel(
                    f"the ONNX graph's {node.op} failed ({type(error).__name__}: {str(error).strip()[:200]}); the "
                    "graph does not fit these images, or is damaged."
                ) from error
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            values.update(zip(node.outputs, outputs, strict=False))
        return values[self.output]

    def _takes_any_batch(self) -> bool:
        """Whether a graph written for a fixed batch gives the same logits for two images together as for each alone."""
        channels, high, wide = self.image_shape or (0, 0, 0)
        size = self.batch or 1
        generator = torch.Generator().manual_seed(0)
        x = torch.rand(2 * size, channels, high, wide, generator=generator)
        x = x.permute(0, 2, 3, 1) if self.channels_last else x
        try:
            with torch.no_grad():
                together, apart = self._run(x), in_fixed_batches(self._run, x, size)
        except (RuntimeError, MemoryError, BadModel):
            return False
        return together.shape == apart.shape and torch.allclose(together, apart, rtol=1e-4, atol=1e-5)


def onnx_network(path: Path, output: str = "") -> OnnxNetwork:
    """The network in an ONNX file; ``output`` names the one to read of several outputs."""
    missing = "reading ONNX files needs the onnx package: pip install 'almakit[vision]'."
    onnx = optional("onnx", missing)
    optional("onnx.numpy_helper", missing)  # the attribute onnx.numpy_helper exists after this
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:
        raise BadModel(f"{path} is not a valid ONNX file ({str(error).strip()[:300]}).") from error
    if not model.graph.node:
        raise BadModel(f"{path} is not a valid ONNX file (its graph is empty).")
    opset = next((entry.version for entry in model.opset_import if entry.domain in _OWN), 1)
    if opset < OLDEST:
        raise BadModel(
            f"{path} uses opset {opset}; opsets from {OLDEST} on are read: convert it with onnx.version_converter, or "
            "export the model again."
        )
    try:
        return OnnxNetwork(model.graph, opset, path.parent, output)
    except AlmakitError:
        raise
    except Exception as error:  # a manually written graph may raise any error
        raise BadModel(
            f"{path} is not a valid ONNX file ({type(error).__name__}: {str(error).strip()[:300]})."
        ) from error


def _output(graph: Any, wanted: str) -> str:
    """The value that holds the logits: the output ``wanted``, else the only one, else the only one of floats.

    A ``ZipMap`` turns scores into dictionaries, so its input is the output.
    """
    zipped: dict[str, str] = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "ZipMap"}
    outputs: dict[str, Any] = {entry.name: entry for entry in graph.output}
    if wanted:
        if wanted not in outputs:
            raise BadModel(f"the ONNX graph has no output {wanted!r}; {suggestion(wanted, outputs)}")
        return zipped.get(wanted, wanted)
    scores = [name for name, each in outputs.items() if name in zipped or each.type.tensor_type.elem_type in _FLOATS]
    if len(outputs) > 1 and len(scores) != 1:
        raise BadModel(f"the ONNX graph has the outputs {', '.join(outputs)}; name one, model.onnx?output=<name>.")
    found = scores[0] if len(outputs) > 1 else next(iter(outputs), "")
    return zipped.get(found, found)


def _needed(graph: Any, output: str) -> list[Any]:
    """The graph's nodes that the output depends on, in their order."""
    needed, found = {output}, []
    for node in reversed(graph.node):
        if needed & set(node.output):
            needed |= set(node.input)
            found.append(node)
    return found[::-1]


def _possible(sides: list[int | None]) -> bool:
    """Whether images can have this shape (B, C, H, W), None for a free side."""
    known = [side for side in sides if side is not None]
    return bool(sides) and all(side > 0 for side in known) and math.prod(known) <= _LARGEST


def _tensor(value: Any, folder: Path) -> Tensor:
    """An ONNX tensor's values. External data are read only from files in the model's folder."""
    import onnx

    if any(side < 0 for side in value.dims):
        raise BadModel(f"the ONNX file holds a tensor of shape {tuple(value.dims)}, which cannot be; export it again.")
    if value.data_location == onnx.TensorProto.EXTERNAL:
        facts = {entry.key: entry.value for entry in value.external_data}
        file = PurePath(facts.get("location", ""))
        if (
            not file.parts
            or file.is_absolute()
            or ".." in file.parts
            or not (folder / file).resolve().is_relative_to(folder.resolve())
        ):
            raise BadModel(
                f"the ONNX file keeps weights in {str(file)!r}, outside its own folder; such a file is not read."
            )
        if not (folder / file).is_file():
            raise Unavailable(
                f"there is no file {folder / file}, which holds weights of the ONNX file; put it beside that."
            )
        first, length = int(facts.get("offset", 0)), int(facts.get("length", -1))
        with (folder / file).open("rb") as opened:
            opened.seek(first)
            content = opened.read(length)
        value = onnx.TensorProto(data_type=value.data_type, dims=value.dims, name=value.name, raw_data=content)
    return torch.from_numpy(onnx.numpy_helper.to_array(value).copy())


def _node(node: Any, opset: int, folder: Path) -> Node:
    import onnx

    attributes: dict[str, Any] = {}
    for attribute in node.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, onnx.TensorProto):
            value = _tensor(value, folder)
        elif isinstance(value, bytes):
            value = value.decode()
        attributes[attribute.name] = value
    return Node(node.op_type, tuple(node.input), tuple(node.output), attributes, opset)
