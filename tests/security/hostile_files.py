"""Model files that try to run code when they are opened or asked for logits: each leaves a mark where it succeeds."""

from __future__ import annotations

import copy
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Parts = dict[str, bytes]
"""An archive: member -> contents."""


class Payload:
    """Unpickled, it leaves a file: proof that code ran."""

    def __init__(self, mark: Path):
        self.mark = str(mark)

    def __reduce__(self) -> tuple[object, ...]:
        return (open, (self.mark, "w"))


class Small(torch.nn.Module):
    """A convolution, a normalisation, a split, a lifted constant: what exported classifiers are made of."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution, self.norm, self.linear = (
            torch.nn.Conv2d(1, 4, 3),
            torch.nn.BatchNorm2d(4),
            torch.nn.Linear(144, 5),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = torch.relu(self.norm(self.convolution(x))).chunk(2, 1)
        found: torch.Tensor = self.linear(torch.cat([second, first], 1).flatten(1)) + torch.tensor(0.5)
        return found


def program(free_batch: bool = True) -> Parts:
    """A real .pt2 archive of ``Small``, images (B, 1, 8, 8)."""
    buffer = io.BytesIO()
    free = {"x": {0: torch.export.Dim.AUTO}} if free_batch else None
    torch.export.save(torch.export.export(Small().eval(), (torch.rand(2, 1, 8, 8),), dynamic_shapes=free), buffer)
    with zipfile.ZipFile(buffer) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(path: Path, parts: Parts | list[tuple[str, bytes]]) -> Path:
    """Writes an archive; a list may hold a member twice."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items() if isinstance(parts, dict) else parts:
            archive.writestr(name, content)
    return path


def member(parts: Parts, ending: str) -> str:
    return next(name for name in parts if name.endswith(ending))


def edited(parts: Parts, ending: str, change: Callable[[Any], None]) -> Parts:
    """The archive with one of its JSON members changed in place."""
    name = member(parts, ending)
    value = json.loads(parts[name])
    change(value)
    return {**parts, name: json.dumps(value).encode()}


def with_member(parts: Parts, name: str, content: bytes) -> Parts:
    return {**parts, f"{next(iter(parts)).partition('/')[0]}/{name}": content}


def exploits(parts: Parts, mark: Path) -> dict[str, Parts]:
    """Archives that make torch's own loader, or the graph it builds, run code that makes the file ``mark``. Known ways,
    by name."""
    touch = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    pickled = pickle.dumps(Payload(mark))
    saved = io.BytesIO()
    torch.save(Payload(mark), saved)
    constants, weights, model = "constants_config.json", "weights_config.json", "models/model.json"

    def opaque(config: Any) -> None:
        config["config"]["evil"] = {
            "path_name": "opaque_obj_0",
            "is_param": False,
            "use_pickle": True,
            "tensor_meta": None,
        }

    def custom(config: Any) -> None:
        config["config"]["evil"] = {
            "path_name": "custom_obj_0",
            "is_param": False,
            "use_pickle": True,
            "tensor_meta": None,
        }

    def tensor(config: Any) -> None:
        config["config"]["lifted_tensor_0"].update(path_name="tensor_0", use_pickle=True)

    def weight(config: Any) -> None:
        next(iter(config["config"].values())).update(use_pickle=True)

    def expression(program: Any) -> None:
        for meta in program["graph_module"]["graph"]["tensor_values"].values():
            meta["sizes"] = [{"as_expr": {"expr_str": touch, "hint": None}}, *meta["sizes"][1:]]

    def guard(program: Any) -> None:
        program["guards_code"] = [f"{touch} is None"]

    def rename(program: Any, name: str) -> None:
        graph = program["graph_module"]
        graph.update(json.loads(json.dumps(graph).replace('"name": "relu"', f'"name": {json.dumps(name)}')))

    def target(program: Any, name: str, *texts: str) -> None:
        node = program["graph_module"]["graph"]["nodes"][0]
        node["target"] = name
        node["inputs"] = [{"name": "", "arg": {"as_string": text}, "kind": 1} for text in texts]

    made = {
        "an opaque constant": with_member(edited(parts, constants, opaque), "data/constants/opaque_obj_0", pickled),
        "a symbolic size": edited(parts, model, expression),
        "a guard": edited(parts, model, guard),
        "a name that is code": edited(parts, model, lambda program: rename(program, f"x = {touch}; relu")),
        "a custom object": with_member(
            edited(parts, constants, custom), "data/constants/custom_obj_0", saved.getvalue()
        ),
        "a pickled constant": {**edited(parts, constants, tensor), member(parts, "tensor_0"): saved.getvalue()},
        "a pickled weight": {**edited(parts, weights, weight), member(parts, "weight_0"): saved.getvalue()},
        "pickled sample inputs": {**parts, member(parts, "sample_inputs/model.pt"): saved.getvalue()},
        "an older weights file": with_member(parts, "data/weights/model.pt", saved.getvalue()),
        "a function of Python": edited(
            parts, model, lambda program: target(program, "torch.serialization.os.mkdir", str(mark))
        ),
        "a file that an operator writes": edited(parts, model, lambda program: from_file(program, mark)),
    }
    return copy.deepcopy(made)


def from_file(program: Any, mark: Path) -> None:
    """aten has an operator that makes a file of any name."""
    node = program["graph_module"]["graph"]["nodes"][0]
    node["target"] = "torch.ops.aten.from_file.default"
    node["inputs"] = [
        {"name": "filename", "arg": {"as_string": str(mark)}, "kind": 1},
        {"name": "shared", "arg": {"as_bool": True}, "kind": 1},
        {"name": "size", "arg": {"as_int": 16}, "kind": 1},
    ]


def evil_py(folder: Path, mark: Path) -> Path:
    """A Python file that leaves a mark when it is imported, and when its function is called."""
    path = folder / "evil.py"
    path.write_text(f"open({str(mark)!r}, 'w')\ndef f(*a, **k):\n    open({str(mark)!r}, 'w')\n")
    return path
