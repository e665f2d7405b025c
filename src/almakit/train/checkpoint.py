"""A training that was stopped, on disk: weights, optimiser, random states and log after the last whole epoch."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..errors import BadInput
from ..files import write_whole

if TYPE_CHECKING:
    from .loop import Recipe

FORMAT = 1


def identity(recipe: Recipe, limit: int | None) -> str:
    """What must be equal for a training to go on."""
    return json.dumps({"recipe": asdict(recipe), "limit": limit}, sort_keys=True)


def write(path: Path, recipe: Recipe, limit: int | None, state: dict[str, Any]) -> None:
    """Writes ``state``, whole or not at all."""
    content = io.BytesIO()
    torch.save({"format": FORMAT, "of": identity(recipe, limit), **state}, content)
    write_whole(path, content.getvalue())


def read(path: Path | None, recipe: Recipe, limit: int | None) -> dict[str, Any] | None:
    """The state to go on from, None where there is none; a checkpoint of another recipe is an error."""
    if path is None or not path.is_file():
        return None
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
        matches = found["format"] == FORMAT and found["of"] == identity(recipe, limit)
    except Exception as error:  # torn files raise whatever the unpickler meets first
        raise BadInput(f"{path} is not a checkpoint of almakit train ({error}); delete it to begin again.") from error
    if not matches:
        raise BadInput(
            f"{path} belongs to a training with other settings; give the settings it began with, another --out, or "
            "delete it."
        )
    return dict(found)
