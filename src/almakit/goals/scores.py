"""Goals for scores: multi-label, threshold, regression, detection, embeddings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import BadInput
from ..tensors import soft_maximum
from .base import SAFETY, SHARED, Goal, check_number, soft_minimum, spread_of
from .classes import ClassGoal

if TYPE_CHECKING:
    from typing_extensions import Self

INF = float("inf")


@dataclass(frozen=True, eq=False)
class Multilabel(Goal):
    """Multi-label classification, decided by the sign of each logit: ``any`` or ``all`` of some labels must be dropped
    or added.

    ``present`` (B, K) are the true labels, each of which is to be decided wrongly (by default what the model says of
    the clean image); ``remove`` and ``add``, class numbers for all images or masks (B, K), name some instead. With s =
    +1 for a label to drop, -1 for one to add: m_k = s (z_k - threshold), and the margin is the smallest of them (any)
    or the largest (all).
    """

    title = "multilabel"
    of_logits = False
    about = "labels of many dropped or added, any or all of them"

    present: Tensor | None = field(default=None, kw_only=True)
    remove: Tensor | tuple[int, ...] | None = field(default=None, kw_only=True)
    add: Tensor | tuple[int, ...] | None = field(default=None, kw_only=True)
    need: str = field(default="any", kw_only=True, metadata=SHARED)
    threshold: float = field(default=0.0, kw_only=True, metadata=SHARED)

    def __post_init__(self) -> None:
        if self.need not in ("any", "all"):
            raise BadInput(f"need={self.need!r}: choose any or all of the labels.")
        for name in ("remove", "add"):
            value = getattr(self, name)
            if isinstance(value, (int, list)) and not isinstance(value, bool):
                object.__setattr__(self, name, (value,) if isinstance(value, int) else tuple(value))

    def for_labels(self, labels: Tensor | None, targets: Tensor | None) -> Self:
        """Labels (B, K) are the true ones; labels of another shape are ignored."""
        named = self.present is not None or self.remove is not None or self.add is not None
        return replace(self, present=labels.bool()) if labels is not None and labels.ndim == 2 and not named else self

    def fit(self, outputs: Tensor, rows: Tensor) -> Self:
        if outputs.ndim != 2:
            raise BadInput(f"the goal multilabel needs outputs of shape (B, labels), not {tuple(outputs.shape)}.")
        count = outputs.shape[1]
        for name in ("present", "remove", "add"):
            value = getattr(self, name)
            if isinstance(value, Tensor) and value.shape != outputs.shape:
                raise BadInput(
                    f"{name} has shape {tuple(value.shape)}; for these outputs it must be {tuple(outputs.shape)}."
                )
            if isinstance(value, tuple) and not all(0 <= label < count for label in value):
                raise BadInput(f"{name}={list(value)}: the model has the labels 0 to {count - 1}.")
        named = self.remove is not None or self.add is not None
        fitted = self if self.present is not None or named else replace(self, present=outputs > self.threshold)
        if bool((fitted._signs(outputs) == 0).all(1).any()):
            raise BadInput("the goal multilabel names no label of some image; give remove or add.")
        return fitted

    def _signs(self, outputs: Tensor) -> Tensor:
        """(B, K) +1 for labels to drop, -1 for labels to add, 0 for others."""
        if self.remove is None and self.add is None:
            assert self.present is not None
            return torch.where(self.present.bool(), 1.0, -1.0).to(outputs)
        signs = torch.zeros_like(outputs, requires_grad=False)
        for labels, sign in ((self.remove, 1.0), (self.add, -1.0)):
            if isinstance(labels, Tensor):
                signs = torch.where(labels.bool(), sign, signs)
            elif labels is not None:
                signs[:, list(labels)] = sign
        return signs

    def _margins(self, outputs: Tensor) -> Tensor:
        """(B, K) the margin of each label, infinite for labels that are ignored."""
        signs = self._signs(outputs)
        return (signs * (outputs - self.threshold)).masked_fill(signs == 0, INF if self.need == "any" else -INF)

    def margin(self, outputs: Tensor) -> Tensor:
        each = self._margins(outputs)
        return (each.amin(1) if self.need == "any" else each.amax(1)) + self.confidence

    def soft_margin(self, outputs: Tensor, temperature: Tensor) -> Tensor:
        each = self._margins(outputs)
        return (
            soft_minimum(each, temperature) if self.need == "any" else soft_maximum(each, temperature)
        ) + self.confidence

    def spread(self, outputs: Tensor) -> Tensor:
        return spread_of(outputs, self._reference())

    @property
    def conditions(self) -> int:
        if self.need == "any":
            return 1
        named = (self.present,) if self.remove is None and self.add is None else (self.remove, self.add)
        return max(1, sum(labels.shape[1] if isinstance(labels, Tensor) else len(labels or ()) for labels in named))

    def rivals(self, outputs: Tensor) -> Tensor | None:
        """(B, C) the labels ordered by their margins, if any of them suffices."""
        if self.need == "all":
            return None
        each = self._margins(outputs.detach())
        return each.argsort(dim=1, stable=True)[:, : max(1, int(torch.isfinite(each).sum(1).min()))]

    def rival_margin(self, outputs: Tensor, rivals: Tensor) -> Tensor:
        return self._margins(outputs).gather(1, rivals.unsqueeze(1)).squeeze(1) + self.confidence


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
class Regression(Goal):
    """A number of the outputs is wrong by more than ``by``: by - max |f - truth| < 0, or only ``up`` or ``down`` with
    ``side``.

    ``truth`` (B, ...) has the shape of the outputs; default: the call's labels, or the model's outputs for the clean
    images.
    """

    title = "regression"
    of_logits = False
    about = "a number is wrong by more than a given amount"

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

    def _excess(self, outputs: Tensor) -> Tensor:
        """(B, N) the error of each number, in each direction that counts."""
        assert self.truth is not None, "the goal is fitted to the model's outputs before it is used"
        off = outputs.flatten(1) - self.truth.flatten(1)
        return off if self.side == "up" else -off if self.side == "down" else torch.cat([off, -off], 1)

    def margin(self, outputs: Tensor) -> Tensor:
        # max(), not amax(): if both directions tie, as on the clean image, only the first has a gradient and they do
        # not cancel.
        return self.by - self._excess(outputs).max(1).values + self.confidence

    def rivals(self, outputs: Tensor) -> Tensor | None:
        return self._excess(outputs.detach()).argsort(dim=1, descending=True, stable=True)

    def rival_margin(self, outputs: Tensor, rivals: Tensor) -> Tensor:
        return self.by - self._excess(outputs).gather(1, rivals.unsqueeze(1)).squeeze(1) + self.confidence


@dataclass(frozen=True, eq=False)
class Detection(Goal):
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

    def fit(self, outputs: Tensor, rows: Tensor) -> Self:
        if self.index is not None and (outputs.ndim < 3 or not -outputs.shape[-1] <= self.index < outputs.shape[-1]):
            raise BadInput(
                f"index={self.index}: outputs of shape {tuple(outputs.shape)} have no such class in their last "
                "dimension."
            )
        return replace(self, boxes=self._scores(outputs).shape[1])

    @property
    def conditions(self) -> int:
        return self.boxes

    def _scores(self, outputs: Tensor) -> Tensor:
        return (outputs if self.index is None else outputs[..., self.index]).flatten(1)

    def margin(self, outputs: Tensor) -> Tensor:
        return self._scores(outputs).amax(1) - self.below + self.confidence

    def soft_margin(self, outputs: Tensor, temperature: Tensor) -> Tensor:
        return soft_maximum(self._scores(outputs), temperature) - self.below + self.confidence

    def spread(self, outputs: Tensor) -> Tensor:
        return spread_of(self._scores(outputs), self._reference())


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
        chosen = [name for name in ("below", "above", "prompts") if getattr(self, name) is not None]
        if len(chosen) != 1:
            raise BadInput(
                "the goal embedding needs one of below=0.5, above=0.8 with target_embedding=..., or prompts=... (K, d)."
            )
        if chosen[0] != "prompts":
            check_number(chosen[0], getattr(self, chosen[0]))
        if chosen == ["above"] and self.target_embedding is None:
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
        """(B, K) the similarities to the prompts."""
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
        """(B,) the tolerance; similarities are at most one for any outputs."""
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
