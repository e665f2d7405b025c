"""Goals made of goals: any of them, or all."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import BadInput
from ..tensors import soft_maximum
from .base import SHARED, Goal
from .soft import smallest

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, eq=False)
class Several(Goal):
    """What any of ``goals`` and all of them share: every part reads the same outputs."""

    goals: tuple[Goal, ...] = field(default=(), kw_only=True, metadata=SHARED)

    def __post_init__(self) -> None:
        object.__setattr__(self, "goals", tuple(self.goals) if isinstance(self.goals, (tuple, list)) else (self.goals,))
        if not self.goals or not all(isinstance(part, Goal) for part in self.goals):
            raise BadInput(
                f"the goal {self.title} is made of goals: {self.title}(goals=[top-k(k=3), threshold(below=0)])."
            )
        if len({part.output for part in self.goals}) > 1:
            raise BadInput(f"the parts of {self.title} must read the same output of the model.")

    @property
    def needs_labels(self) -> bool:  # type: ignore[override]
        return any(part.needs_labels for part in self.goals)

    @property
    def of_logits(self) -> bool:  # type: ignore[override]
        return all(part.of_logits for part in self.goals)

    @property
    def finite(self) -> bool:  # type: ignore[override]
        return all(part.finite for part in self.goals)

    def _each(self, goals: Any) -> Self:
        return replace(self, goals=tuple(goals))

    def for_labels(self, labels: Tensor | None, targets: Tensor | None) -> Self:
        return super().for_labels(labels, targets)._each(part.for_labels(labels, targets) for part in self.goals)

    def fit(self, outputs: Tensor, rows: Tensor) -> Self:
        return self._each(part.fit(outputs, rows) for part in self.goals)

    def scaled_by(self, outputs: Tensor) -> Self:
        return super().scaled_by(outputs)._each(part.scaled_by(outputs) for part in self.goals)

    def check_size(self, count: int) -> None:
        for part in self.goals:
            part.check_size(count)

    def read(self, answer: Any, images: int) -> Tensor:
        return self.goals[0].read(answer, images)

    def _margins(self, outputs: Tensor) -> Tensor:
        return torch.stack([part.margin(outputs) for part in self.goals], 1) + self.confidence

    def _soft(self, outputs: Tensor, temperature: Tensor) -> Tensor:
        return torch.stack([part.soft_margin(outputs, temperature) for part in self.goals], 1) + self.confidence

    def spread(self, outputs: Tensor) -> Tensor:
        return torch.stack([part.spread(outputs) for part in self.goals], 1).amax(1)

    def tolerance(self, outputs: Tensor, precision: torch.dtype) -> Tensor:
        return torch.stack([part.tolerance(outputs, precision) for part in self.goals], 1).amax(1)


@dataclass(frozen=True, eq=False)
class AnyOf(Several):
    """One of ``goals`` is reached: the smallest of their margins."""

    title = "any-of"
    about = "one of several goals"

    def margin(self, outputs: Tensor) -> Tensor:
        return self._margins(outputs).amin(1)

    def soft_margin(self, outputs: Tensor, temperature: Tensor) -> Tensor:
        return smallest(self._soft(outputs, temperature), temperature)

    @property
    def conditions(self) -> int:
        return max(part.conditions for part in self.goals)

    def rivals(self, outputs: Tensor) -> Tensor | None:
        return self._margins(outputs.detach()).argsort(dim=1, stable=True)

    def rival_margin(self, outputs: Tensor, rivals: Tensor) -> Tensor:
        return self._margins(outputs).gather(1, rivals.unsqueeze(1)).squeeze(1)


@dataclass(frozen=True, eq=False)
class AllOf(Several):
    """All ``goals`` are reached at once: the largest of their margins."""

    title = "all-of"
    about = "several goals at once"

    def margin(self, outputs: Tensor) -> Tensor:
        return self._margins(outputs).amax(1)

    def soft_margin(self, outputs: Tensor, temperature: Tensor) -> Tensor:
        return soft_maximum(self._soft(outputs, temperature), temperature)

    @property
    def conditions(self) -> int:
        return sum(part.conditions for part in self.goals)


def any_of(*goals: Goal) -> AnyOf:
    """One of ``goals`` is reached."""
    return AnyOf(goals=goals)


def all_of(*goals: Goal) -> AllOf:
    """All ``goals`` are reached at once."""
    return AllOf(goals=goals)
