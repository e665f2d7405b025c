"""Models saved with ``torch.export.save`` (.pt2): graphs without the Python code that made them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import BadModel
from .weights import no_unpickling


class Exported(nn.Module):
    """An exported program as a module that can be differentiated and put into evaluation mode.

    A program exported for a fixed batch of n images is run n images at a time, the last ones filled up.
    """

    def __init__(self, program: Any):
        super().__init__()
        self.program = program.module()
        shape = _input_shape(program)
        self.batch = shape[0] if shape and isinstance(shape[0], int) else None
        self.image_shape = tuple(shape[1:]) if shape and len(shape) == 4 and all(isinstance(side, int) for side in shape) else None

    def train(self, mode: bool = True) -> Exported:
        # An exported graph has no mode: dropout and batch norm were fixed when it was exported, and its own train() refuses.
        self.training = mode
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.program(x) if self.batch is None else in_fixed_batches(self.program, x, self.batch)


def exported(path: Path, trust: bool) -> Exported:
    """The network in a .pt2 file."""
    try:
        with no_unpickling(trust):
            program = torch.export.load(path)
    except BadModel:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error)[:300]}"
        raise BadModel(f"{path} cannot be read as a torch.export file ({reason}); save it with torch.export.save.") from error
    return Exported(program)


def in_fixed_batches(network: Any, x: Tensor, size: int) -> Tensor:
    """Logits of the images ``x`` (B, C, H, W) from a network that takes exactly ``size`` images at a time."""
    parts = []
    for first in range(0, len(x), size):
        part = x[first : first + size]
        filler = part[:1].detach().expand(size - len(part), *part.shape[1:])
        parts.append(network(torch.cat([part, filler]) if len(part) < size else part)[: len(part)])
    return torch.cat(parts)


def _input_shape(program: Any) -> tuple[int | None, ...] | None:
    """The shape the program was exported for, None for a free side."""
    users = program.graph_signature.user_inputs
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in users:
            value = node.meta.get("val")
            return tuple(side if isinstance(side, int) else None for side in value.shape) if value is not None else None
    return None
