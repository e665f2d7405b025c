"""Data with units of their own in a run: the box that attacks work in, and the model that sees the units it was made
for."""

from __future__ import annotations

from typing import Any

import torch

from ..core import Box
from ..core.model import Model
from ..data.features import Features
from ..errors import BadInput
from ..models.classifier import InUnits


def box_of(features: Features | None, bits: int | None = None) -> Box:
    """Where the values of a data set may be, in [0, 1]."""
    if features is None:
        return Box(bits=bits)
    if bits is not None:
        raise BadInput("bits is the grid of image files; these data have features, which may have a step each.")
    moves, step = torch.from_numpy(features.moves), torch.from_numpy(features.scaled_step)
    return Box(mask=None if bool(moves.all()) else moves, step=step if bool((step > 0).any()) else None)


def parts_of(box: Box) -> dict[str, Any]:
    """A user's box as the parts of features."""
    if box.bits is not None:
        raise BadInput("bits is the grid of image files; give the run bits=, or the box a step.")
    parts = {"lo": box.lo, "hi": box.hi, "step": 0.0 if box.step is None else box.step}
    return {
        name: value.cpu().numpy() if isinstance(value, torch.Tensor) else value for name, value in parts.items()
    } | {"fixed": False if box.mask is None else ~box.mask.cpu().numpy()}


def in_units(model: Model, features: Features | None) -> Model:
    """The model for values in [0, 1]."""
    return model if features is None else InUnits(model, features.lo, features.sides, features.step)
