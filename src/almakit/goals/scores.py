"""Goals for scores: multi-label, threshold, regression, detection, embeddings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import BadInput
from .base import SAFETY, SHARED, Conditions, Goal, check_number, spread_of

if TYPE_CHECKING:
    from typing_extensions import Self

INF = float("inf")


@dataclass(frozen=True, eq=False)
class Multilabel(Conditions):
    """Multi-label classification, decided by the sign of each logit: ``any`` or ``all`` of some labels must be dropped
    or added.

    ``present`` (B, K) are the true labels, each of which is to be decided wrongly (by default the labels of the call,
    or what the model says of the clean image); ``remove`` and ``add`` name some classes instead. With s = +1 for a
    label to drop, -1 for one to add: m_k = s (z_k - threshold), and the margin is the smallest of them (any) or the
    largest (all).
    """

    title = "multilabel"
    of_logits = False
    about = "labels of many dropped or added, any or all of them"

    present: Tensor | None = field(default=None, kw_only=True)
    remove: tuple[int, ...] = field(default=(), kw_only=True, metadata=SHARED)
    add: tuple[int, ...] = field(default=(), kw_only=True, metadata=SHARED)
    need: str = field(default="any", kw_only=True, metadata=SHARED)
    threshold: float = field(default=0.0, kw_only=True, metadata=SHARED)
    signs: Tensor | None = field(default=None, kw_only=True, repr=False)  # (B, K) s, of a fitted goal; 0 for others

    def __post_init__(self) -> None:
        if self.need not in ("any", "all"):
            raise BadInput(f"need={self.need!r}: choose any or all of the labels.")
        for name in ("remove", "add"):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, int) else tuple(value))

    @property
    def one_suffices(self) -> bool:  # type: ignore[override]
        return self.need == "any"

    @property
    def conditions(self) -> int:
        return 1 if self.one_suffices or self.signs is None else len(self.remove + self.add) or self.signs.shape[1]

    def for_labels(self, labels: Tensor | None, targets: Tensor | None) -> Self:
        """Labels (B, K) are the true ones; labels of another shape are ignored."""
        return replace(self, present=labels) if labels is not None and labels.ndim == 2 else self

    def fit(self, outputs: Tensor, rows: Tensor) -> Self:
        present = outputs > self.threshold if self.present is None else self.present.bool()
        if outputs.ndim != 2 or present.shape != outputs.shape:
            raise BadInput(
                f"the goal multilabel needs outputs of shape (B, labels) and present of the same shape, not "
                f"{tuple(outputs.shape)} and {tuple(present.shape)}."
            )
        signs = torch.where(present, 1.0, -1.0).to(outputs)
        if self.remove or self.add:
            if not all(0 <= label < outputs.shape[1] for label in self.remove + self.add):
                raise BadInput(f"{self.remove + self.add}: the model has the labels 0 to {outputs.shape[1] - 1}.")
            signs = torch.zeros_like(signs)
            signs[:, list(self.remove)], signs[:, list(self.add)] = 1.0, -1.0
        return replace(self, signs=signs)

    def margins(self, outputs: Tensor) -> Tensor:
        assert self.signs is not None, "the goal is fitted to the model's outputs before it is used"
        each = self.signs * (outputs - self.threshold)
        return each.masked_fill(self.signs == 0, INF if self.one_suffices else -INF)

    def spread(self, outputs: Tensor) -> Tensor:
        return spread_of(outputs, self._reference())


@dataclass(frozen=True, eq=False)
class Threshold(Goal):
    """The score at ``index`` of the outputs rises ``above`` a number, or falls ``below`` one: above - s < 0, or s -
    below < 0."""

    title = "threshold"
    about = "one score rises above a number, or falls below one"

    above: float | None = field(default=None, kw_only=True, metadata=SHARED)
    below: float | None = field(default=None, kw_only=True, metadata=SHARED)
    index: int = field(default=0, kw_only=True, metadata=SHARED)

    def __post_init__(self) -> None:
        if (self.above is None) == (self.below is None):
            raise BadInput("the goal threshold needs above=... or below=..., the score to pass.")
        check_number("above" if self.below is None else "below", self.above if self.below is None else self.below)

    def fit(self, outputs: Tensor, rows: Tensor) -> Self:
        count = outputs.flatten(1).shape[1]
        if not -count <= self.index < count:
            raise BadInput(f"index={self.index}: the model has {count} scores, counted from 0.")
        return self

    def margin(self, outputs: Tensor) -> Tensor:
        score = outputs.flatten(1)[:, self.index]
        return (self.above - score if self.above is not None else score - (self.below or 0.0)) + self.confidence


@dataclass(frozen=True, eq=False)
class Regression(Conditions):
    """A number of the outputs is wrong by more than ``by``: by - max |f - truth| < 0, or only ``up`` or ``down`` with
    ``side``.

    ``truth`` (B, ...) has the shape of the outputs; default: the call's labels, or the model's outputs for the clean
    images.
    """

    title = "regression"
    of_logits = False
    about = "a number is wrong by more than a given amount"
    one_suffices = True

    truth: Tensor | None = field(default=None, kw_only=True)
    by: float = field(default=1.0, kw_only=True, metadata=SHARED)
    side: str = field(default="either", kw_only=True, metadata=SHARED)

    def __post_init__(self) -> None:
        check_number("by", self.by)
        if self.by <= 0:
            raise BadInput(f"by={self.by!r}: give a positive number.")
        if self.side not in ("either", "up", "down"):
            raise BadInput(f"side={self.side!r}: choose either, up or down.")

    def for_labels(self, labels: Tensor | None, targets: Tensor | None) -> Self:
        bound = super().for_labels(labels, targets)
        return bound if bound.truth is not None or labels is None else replace(bound, truth=labels)

    def fit(self, outputs: Tensor, rows: Tensor) -> Self:
        truth = outputs if self.truth is None else self.truth.reshape(len(outputs), -1).to(outputs)
        if truth.flatten(1).shape != outputs.flatten(1).shape:
            raise BadInput(
                f"the truth has shape {tuple(truth.shape)}; for these outputs it must be {tuple(outputs.shape)}."
            )
        return replace(self, truth=truth.detach().clone())

    def margins(self, outputs: Tensor) -> Tensor:
        assert self.truth is not None, "the goal is fitted to the model's outputs before it is used"
        off = outputs.flatten(1) - self.truth.flatten(1)
        return self.by - (off if self.side == "up" else -off if self.side == "down" else torch.cat([off, -off], 1))

    def margin(self, outputs: Tensor) -> Tensor:
        # min(), not amin(): if both directions tie, as on the clean image, only the first has a gradient and they do
        # not cancel.
        return self.margins(outputs).min(1).values + self.confidence

    def soft_margin(self, outputs: Tensor, temperature: Tensor) -> Tensor:
        return self.margin(outputs)


@dataclass(frozen=True, eq=False)
class Detection(Conditions):
    """All scores of the class ``index`` fall below ``below``, over outputs (B, N) or (B, N, classes) of N boxes: max_n
    s_n - below < 0."""

    title = "detection"
    of_logits = False
    about = "all scores of a class, over the boxes of a detector, fall below a number"

    below: float = field(default=0.5, kw_only=True, metadata=SHARED)
    index: int | None = field(default=None, kw_only=True, metadata=SHARED)
    boxes: int = field(default=1, kw_only=True, repr=False, metadata=SHARED)  # number of boxes, of a fitted goal

    def __post_init__(self) -> None:
        check_number("below", self.below)

    @property
    def conditions(self) -> int:
        return self.boxes

    def fit(self, outputs: Tensor, rows: Tensor) -> Self:
        if self.index is not None and (outputs.ndim < 3 or not -outputs.shape[-1] <= self.index < outputs.shape[-1]):
            raise BadInput(
                f"index={self.index}: outputs of shape {tuple(outputs.shape)} have no such class in their last "
                "dimension."
            )
        return replace(self, boxes=self.margins(outputs).shape[1])

    def margins(self, outputs: Tensor) -> Tensor:
        return (outputs if self.index is None else outputs[..., self.index]).flatten(1) - self.below

    def spread(self, outputs: Tensor) -> Tensor:
        return spread_of(self.margins(outputs), self._reference())


@dataclass(frozen=True, eq=False)
class Embedding(Goal):
    """Cosine similarities s of the outputs (B, d): to ``reference_embedding`` (B, d) ``below`` a number, or to
    ``target_embedding`` (B, d) ``above`` one. The reference is by default the clean image's own embedding."""

    title = "embedding"
    of_logits = False
    about = "the similarity to a reference falls below, or to a target rises above a number"

    reference_embedding: Tensor | None = field(default=None, kw_only=True)
    target_embedding: Tensor | None = field(default=None, kw_only=True)
    below: float | None = field(default=None, kw_only=True, metadata=SHARED)
    above: float | None = field(default=None, kw_only=True, metadata=SHARED)

    def __post_init__(self) -> None:
        if (self.above is None) == (self.below is None) or (self.above is None) != (self.target_embedding is None):
            raise BadInput("the goal embedding needs below=0.5, or above=0.8 and target=..., the embeddings (B, d).")
        check_number("above" if self.below is None else "below", self.above if self.below is None else self.below)

    def fit(self, outputs: Tensor, rows: Tensor) -> Self:
        own = self.reference_embedding is None and self.below is not None
        fitted = replace(self, reference_embedding=outputs.detach().clone()) if own else self
        if (shape := fitted._other().shape) != outputs.shape:
            raise BadInput(f"the embeddings have shape {tuple(shape)}; for these outputs it must be {outputs.shape}.")
        return fitted

    def _other(self) -> Tensor:
        other = self.reference_embedding if self.above is None else self.target_embedding
        assert other is not None, "the goal is fitted to the model's outputs before it is used"
        return other

    def margin(self, outputs: Tensor) -> Tensor:
        similarity = F.cosine_similarity(outputs, self._other().to(outputs))
        return (similarity - (self.below or 0.0) if self.above is None else self.above - similarity) + self.confidence

    def tolerance(self, outputs: Tensor, precision: torch.dtype) -> Tensor:
        """(B,) the tolerance; similarities are at most one for any outputs."""
        return torch.full_like(outputs.detach().flatten(1)[:, 0], SAFETY.get(precision, 1e-5))

    def scale(self, outputs: Tensor) -> Tensor:
        return (2 * self._reference()).clamp_min(1e-4)
