"""Goals on embeddings: farther from a reference, nearer to a target, or nearer to another prompt than to one's own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import BadInput
from .base import SAFETY, SHARED, Goal
from .classes import ClassGoal
from .soft import number

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, eq=False)
class Embedding(Goal):
    """Cosine similarities s of the outputs (B, d): to ``reference`` (B, d) ``below`` a number, to ``target`` (B, d)
    ``above`` one, or, with ``prompts`` (K, d), another prompt nearer than that of the labels (B,), or that of the
    targets nearest: the zero-shot classifier of a two-tower model.

    The reference is by default the clean image's own embedding.
    """

    title = "embedding"
    of_logits = False
    about = (
        "the similarity to a reference falls below, or to a target rises above a number; or another prompt is nearest"
    )

    reference_embedding: Tensor | None = field(default=None, kw_only=True)
    target_embedding: Tensor | None = field(default=None, kw_only=True)
    below: float | None = field(default=None, kw_only=True, metadata=SHARED)
    above: float | None = field(default=None, kw_only=True, metadata=SHARED)
    prompts: Tensor | None = field(default=None, kw_only=True, metadata=SHARED)

    def __post_init__(self) -> None:
        given = [name for name in ("below", "above", "prompts") if getattr(self, name) is not None]
        if len(given) != 1:
            raise BadInput(
                "the goal embedding needs one of below=0.5, above=0.8 with target_embedding=..., or prompts=... (K, d)."
            )
        if given[0] != "prompts":
            number(given[0], getattr(self, given[0]))
        if given == ["above"] and self.target_embedding is None:
            raise BadInput("above needs target_embedding (B, d), what to come near to.")

    @property
    def needs_labels(self) -> bool:  # type: ignore[override]
        return self.prompts is not None

    def fit(self, outputs: Tensor, rows: Tensor) -> Self:
        for name in ("reference_embedding", "target_embedding"):
            value = getattr(self, name)
            if value is not None and value.shape != outputs.shape:
                raise BadInput(
                    f"{name} has shape {tuple(value.shape)}; for these outputs it must be {tuple(outputs.shape)}."
                )
        if self.prompts is not None:
            if self.prompts.shape[1:] != outputs.shape[1:]:
                raise BadInput(
                    f"the prompts have shape {tuple(self.prompts.shape)}, the outputs {tuple(outputs.shape)}: both "
                    "end in the same size."
                )
            self._inner().fit(self._similarities(outputs), rows)
        own = self.reference_embedding is None and self.below is not None
        return replace(self, reference_embedding=outputs.detach().clone()) if own else self

    def _inner(self) -> ClassGoal:
        return ClassGoal(self.labels, self.targets, self.confidence, self.reference)

    def _similarities(self, outputs: Tensor) -> Tensor:
        """(B, K) to the prompts."""
        assert self.prompts is not None
        return F.normalize(outputs, dim=1) @ F.normalize(self.prompts.to(outputs), dim=1).T

    def margin(self, outputs: Tensor) -> Tensor:
        if self.prompts is not None:
            return self._inner().margin(self._similarities(outputs))
        if self.above is not None:
            assert self.target_embedding is not None
            return self.above - F.cosine_similarity(outputs, self.target_embedding.to(outputs)) + self.confidence
        assert self.reference_embedding is not None and self.below is not None
        return F.cosine_similarity(outputs, self.reference_embedding.to(outputs)) - self.below + self.confidence

    def soft_margin(self, outputs: Tensor, temperature: Tensor) -> Tensor:
        return (
            self.margin(outputs)
            if self.prompts is None
            else self._inner().soft_margin(self._similarities(outputs), temperature)
        )

    def spread(self, outputs: Tensor) -> Tensor:
        return self._reference() if self.prompts is None else self._inner().spread(self._similarities(outputs.detach()))

    def tolerance(self, outputs: Tensor, precision: torch.dtype) -> Tensor:
        """(B,) similarities are at most one, whatever the outputs are."""
        return torch.full_like(outputs.detach().flatten(1)[:, 0], SAFETY.get(precision, 1e-5))

    def scale(self, outputs: Tensor) -> Tensor:
        return (2 * self._reference()).clamp_min(1e-4)

    def rivals(self, outputs: Tensor) -> Tensor | None:
        return None if self.prompts is None else self._inner().rivals(self._similarities(outputs.detach()))

    def rival_margin(self, outputs: Tensor, rivals: Tensor) -> Tensor:
        return (
            self.margin(outputs)
            if self.prompts is None
            else self._inner().rival_margin(self._similarities(outputs), rivals)
        )
