"""Small classifiers for the laws: one whose rows never touch each other, so that results can be compared bit for
bit."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn


class RowWise(nn.Module):
    """Two layers with softsign between, written as products and sums of single rows.

    A matrix product rounds differently at other batch sizes; a product with a sum over one's own row does not. Softsign
    is made of exactly rounded operations, whereas tanh and pow may differ in the last bit with the place in the batch.
    """

    def __init__(self, shape: tuple[int, ...], classes: int = 5, hidden: int = 16, seed: int = 0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        pixels = math.prod(shape)
        self.first = nn.Parameter(torch.randn(hidden, pixels, generator=generator) * (12 / pixels) ** 0.5)
        self.second = nn.Parameter(torch.randn(classes, hidden, generator=generator) * 2)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, K) of ``x`` (B, ...)."""
        hidden = ((x.flatten(1) - 0.5).unsqueeze(1) * self.first).sum(-1)
        hidden = self.drop(hidden / (1 + hidden.abs()))
        return (hidden.unsqueeze(1) * self.second).sum(-1)


class Counted:
    """Counts what passes through a module: rows forward, rows backward, and backward passes through the first call that
    has gradients."""

    def __init__(self, model: nn.Module):
        self.forwards = self.backwards = self.calls = self.passes_of_first = 0
        self.handles = [model.register_forward_pre_hook(self._before), model.register_forward_hook(self._after)]

    def _before(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.forwards += len(inputs[0])

    def _after(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Any) -> None:
        parts = list(output.values()) if isinstance(output, dict) else output if isinstance(output, tuple) else [output]
        if parts[0].requires_grad:
            self.calls += 1
            first = self.calls == 1
            parts[0].register_hook(lambda gradient: self._backward(gradient, first))

    def _backward(self, gradient: Tensor, first: bool) -> None:
        self.backwards += len(gradient)
        self.passes_of_first += first

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()
