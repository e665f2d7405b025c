"""A result as one safetensors file: tensors as they are, everything else as JSON in the header."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ...errors import BadInput, Unavailable

if TYPE_CHECKING:
    from .result import Result

R = TypeVar("R", bound="Result")
HEADER = "almakit-result"


def save(result: Result, path: str | Path) -> Path:
    """Writes ``result`` to ``path``."""
    values = {f.name: getattr(result, f.name) for f in fields(result)}
    tensors = {
        name: value.detach().cpu().contiguous().clone() for name, value in values.items() if isinstance(value, Tensor)
    }
    words = {name: value for name, value in values.items() if not isinstance(value, Tensor)}
    place = Path(path).expanduser()
    place.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, place, {HEADER: json.dumps({"kind": type(result).__name__, **words})})
    return place


def load(kind: type[R], path: str | Path) -> R:
    """The result of class ``kind`` that lies in ``path``."""
    place = Path(path).expanduser()
    if not place.is_file():
        raise Unavailable(f"there is no file {place}.")
    try:
        with safe_open(place, framework="pt") as opened:
            words: dict[str, Any] = json.loads((opened.metadata() or {})[HEADER])
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise BadInput(f"{place} is no result that almakit saved ({type(error).__name__}: {error}).") from error
    known = {f.name for f in fields(kind)}
    found = {name: value for name, value in {**words, **tensors}.items() if name in known}
    found["radii"] = tuple(found.get("radii", ()))
    try:
        return kind(**found)
    except TypeError as error:
        raise BadInput(f"{place} does not hold all of a {kind.__name__} ({error}).") from error
