"""Model files that try to run code when they are opened or asked for logits: each leaves a mark where it succeeds."""

from __future__ import annotations

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


def exploits(parts: Parts, mark: Path) -> dict[str, Parts]:
    """Archives that make torch's own loader run code that makes the file ``mark``, by name."""
    touch, saved = f"__import__('pathlib').Path({str(mark)!r}).touch()", io.BytesIO()
    torch.save(Payload(mark), saved)

    def opaque(config: Any) -> None:
        evil = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
        config["config"]["evil"] = evil

    constants = edited(parts, "constants_config.json", opaque)
    weights = edited(
        parts, "weights_config.json", lambda config: next(iter(config["config"].values())).update(use_pickle=True)
    )
    name = f"{next(iter(parts)).partition('/')[0]}/data/constants/opaque_obj_0"
    return {
        "an opaque constant": {**constants, name: pickle.dumps(Payload(mark))},
        "a guard": edited(parts, "models/model.json", lambda program: program.update(guards_code=[f"{touch} is None"])),
        "a pickled weight": {**weights, member(parts, "weight_0"): saved.getvalue()},
        "pickled sample inputs": {**parts, member(parts, "sample_inputs/model.pt"): saved.getvalue()},
    }


def evil_py(folder: Path, mark: Path) -> Path:
    """A Python file that leaves a mark when it is imported, and when its function is called."""
    path = folder / "evil.py"
    path.write_text(f"open({str(mark)!r}, 'w')\ndef f(*a, **k):\n    open({str(mark)!r}, 'w')\n")
    return path
