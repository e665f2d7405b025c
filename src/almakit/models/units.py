"""A model of values in their own units, called with values in [0, 1]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class InUnits(nn.Module):
    """x (B, ...) in [0, 1] -> model(lo + sides x): the model sees what it was made for; values in steps are whole
    numbers of them, and gradients go through as if they were not."""

    def __init__(self, model: Callable[[Tensor], Any], lo: Any, sides: Any, step: Any):
        """``lo``, ``sides`` and ``step`` (0: none) are arrays in the shape of one input."""
        super().__init__()
        self.inner = model
        self.training = getattr(model, "training", False)
        # No buffers: these are facts about the data, and the model's state is the model's own.
        self.units = [torch.as_tensor(part, dtype=torch.float64) for part in (lo, sides, step)]

    def forward(self, x: Tensor) -> Any:
        lo, sides, step = self.units = [part.to(x.device) for part in self.units]
        away = x.double() * sides
        steps = torch.where(step > 0, step, torch.ones_like(step))
        away = away + torch.where(step > 0, (away / steps).round() * steps - away, torch.zeros_like(away)).detach()
        return self.inner((lo + away).to(x.dtype))
