"""The contents of a ``.pt2`` archive, read without torch's own loader.

That loader unpickles constants, evaluates symbolic sizes and guards, and makes Python of the names in a graph: opening
a stranger's file with it runs the stranger's code. Here a graph is JSON and tensors are bytes; what is neither is
refused.
"""

from __future__ import annotations

import io
import json
import math
import os
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import BadModel
from .weights import checkpoint

MAJOR = 8  # of the graph's schema: torch 2.6 and later
MOST_JSON = 1 << 28  # bytes of a graph, which holds no weights
DTYPES = {
    1: torch.uint8,
    2: torch.int8,
    3: torch.int16,
    4: torch.int32,
    5: torch.int64,
    6: torch.float16,
    7: torch.float32,
    8: torch.float64,
    12: torch.bool,
    13: torch.bfloat16,
}


@dataclass(frozen=True)
class Archive:
    """A graph as JSON, and its tensors by the name the graph's signature gives them."""

    program: dict[str, Any]
    weights: dict[str, Tensor]
    constants: dict[str, Tensor]


def read_archive(path: Path) -> Archive:
    """The archive in a file; ``BadModel`` for whatever torch.export.save does not write for a network of plain
    tensors."""
    with zipfile.ZipFile(path) as archive:
        parts = _members(archive, path)
        if "models/model.json" not in parts and "serialized_exported_program.json" not in parts:
            raise BadModel("it holds no program called model; save it with torch.export.save")
        if parts.get("byteorder", b"little").decode() != sys.byteorder:
            raise BadModel("its weights were written on a machine of another byte order")
        old = "serialized_exported_program.json" in parts
        program = _json(parts, "serialized_exported_program.json" if old else "models/model.json")
        if program["schema_version"]["major"] != MAJOR:
            raise BadModel(
                f"its format is {program['schema_version']['major']}, and only {MAJOR} (torch 2.6 and later) is read; "
                "export it again"
            )
        kinds = (("weights", "serialized_state_dict.pt"), ("constants", "serialized_constants.pt"))
        weights, constants = (_tensors(parts, kind, name if old else f"data/{kind}/model.pt") for kind, name in kinds)
    return Archive(program, weights, constants)


def _members(archive: zipfile.ZipFile, path: Path) -> dict[str, bytes]:
    """The archive's files without the folder they all lie in: each once, as long as it says, none packed, together no
    larger than the file."""
    found: dict[str, bytes] = {}
    infos = [info for info in archive.infolist() if not info.is_dir()]
    if sum(info.file_size for info in infos) > os.path.getsize(path):
        raise BadModel("its parts claim to be larger than the file")
    roots = {info.filename.partition("/")[0] for info in infos if "/" in info.filename}
    root = f"{roots.pop()}/" if len(roots) == 1 and all("/" in info.filename for info in infos) else ""
    for info in infos:
        name = info.filename.removeprefix(root)
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise BadModel(f"its part {name!r} is packed or encrypted, which torch.export.save never does")
        if name in found:
            raise BadModel(f"it holds {name!r} twice")
        found[name] = archive.read(info)
    return found


def _json(parts: dict[str, bytes], name: str) -> Any:
    if name not in parts or len(parts[name]) > MOST_JSON:
        raise BadModel(f"its part {name!r} is missing or too large")
    return json.loads(parts[name].decode())


def _tensors(parts: dict[str, bytes], kind: str, older: str) -> dict[str, Tensor]:
    """The archive's weights or constants: raw bytes that a list describes, or (torch 2.8 and before) one checkpoint."""
    listed = f"data/{kind}/model_{kind}_config.json"
    if (listed in parts) == (older in parts):
        raise BadModel(f"it must hold its {kind} once: as {listed!r} or as {older!r}")
    if older in parts:
        content = checkpoint(io.BytesIO(parts[older])) if parts[older] else {}
        if not isinstance(content, dict) or not all(isinstance(each, Tensor) for each in content.values()):
            raise BadModel(f"its {kind} are not tensors only")
        return {str(name): value.detach() for name, value in content.items()}
    return {str(name): _tensor(parts, kind, entry) for name, entry in _json(parts, listed)["config"].items()}


def _tensor(parts: dict[str, bytes], kind: str, entry: dict[str, Any]) -> Tensor:
    """A view of the bytes in a part, inside them and no larger than they are."""
    name, prefix = str(entry["path_name"]), {"weights": "weight_", "constants": "tensor_"}[kind]
    if entry["use_pickle"] or not name.startswith(prefix) or not name.removeprefix(prefix).isdecimal():
        raise BadModel(
            f"its {kind} hold more than tensors ({name!r}), which can only be unpickled, and that would run code of "
            "its author"
        )
    meta, content = entry["tensor_meta"], parts[f"data/{kind}/{name}"]
    dtype = DTYPES[meta["dtype"]]
    sizes: list[int] = [_whole(side) for side in meta["sizes"]]
    strides: list[int] = [_whole(side) for side in meta["strides"]]
    offset = _whole(meta["storage_offset"])
    flat = torch.frombuffer(bytearray(content), dtype=dtype) if content else torch.zeros(0, dtype=dtype)
    count: int = math.prod(sizes, start=1)
    last = offset + sum((side - 1) * stride for side, stride in zip(sizes, strides, strict=True))
    if count > len(flat) or (count and last >= len(flat)) or meta["layout"] != 7:
        raise BadModel(f"its part {name!r} does not hold a tensor of shape {tuple(sizes)}")
    return flat.as_strided(sizes, strides, offset) if count else torch.zeros(sizes, dtype=dtype)


def _whole(side: dict[str, Any]) -> int:
    """A fixed size; one that is an expression is not evaluated."""
    value = side.get("as_int")
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 48:
        raise BadModel(f"a tensor of it has {str(side)[:60]} for a size, where a whole number belongs")
    return value
