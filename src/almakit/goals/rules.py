"""Goals about classes: one target for all, the first k places, a wrong class that a detector accepts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import BadInput, BadModel
from ..tensors import soft_maximum
from .base import SHARED
from .classes import ClassGoal
from .outputs import picked
from .soft import whole_number

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, eq=False)
class Targeted(ClassGoal):
    """Be classified as ``targets`` (B,), or all as the class ``target``."""

    title = "targeted"
    about = "be classified as the target"

    target: int | None = field(default=None, kw_only=True, metadata=SHARED)

    def for_labels(self, labels: Tensor | None, targets: Tensor | None) -> Self:
        bound = super().for_labels(labels, targets)
        if bound.targets is None and self.target is not None and bound.labels is not None:
            bound = replace(bound, targets=torch.full_like(bound.labels, self.target))
        if bound.targets is None:
            raise BadInput("the goal targeted needs targets, one class for each image, or target=3 for all.")
        return bound


@dataclass(frozen=True, eq=False)
class TopK(ClassGoal):
    """``labels`` (B,) are not among the ``k`` largest logits, or ``targets`` (B,) are: z_y - z_(k) < 0, or z_(k) - z_t
    < 0, z_(k) the k-th largest other."""

    title = "top-k"
    about = "the label is not among the k likeliest classes, or the target is"
    by_class = False

    k: int = field(default=5, kw_only=True, metadata=SHARED)

    def __post_init__(self) -> None:
        whole_number("k", self.k)

    def fit(self, outputs: Tensor, rows: Tensor) -> Self:
        if self.k >= outputs.shape[1]:
            raise BadInput(
                f"k={self.k}: the model has {outputs.shape[1]} classes, so k must be at most {outputs.shape[1] - 1}."
            )
        return super().fit(outputs, rows)

    @property
    def conditions(self) -> int:
        return 1 if self.targeted else self.k

    def _own_and_first(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The own logit (B,) and the k largest others (B, k)."""
        index = self._index()
        return outputs.gather(1, index).squeeze(1), outputs.scatter(1, index, float("-inf")).topk(self.k, dim=1).values

    def margin(self, outputs: Tensor) -> Tensor:
        own, first = self._own_and_first(outputs)
        return (first[:, -1] - own if self.targeted else own - first[:, -1]) + self.confidence

    def soft_margin(self, outputs: Tensor, temperature: Tensor) -> Tensor:
        """All k others must pass the label: the largest of k differences, softened. Towards a target only the k-th is
        in the way."""
        own, first = self._own_and_first(outputs)
        if self.targeted:
            return first[:, -1] - own + self.confidence
        return soft_maximum(own.unsqueeze(1) - first, temperature) + self.confidence

    def constraint_and_slope(
        self, outputs: Tensor, margin: Tensor, tolerance: Tensor, largest: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        return super(ClassGoal, self).constraint_and_slope(outputs, margin, tolerance, largest)

    def rivals(self, outputs: Tensor) -> Tensor | None:
        return None

    def rival_margin(self, outputs: Tensor, rivals: Tensor) -> Tensor:
        return self.margin(outputs)


@dataclass(frozen=True, eq=False)
class Reject(ClassGoal):
    """Wrong **and** accepted: leave ``labels`` (B,), or reach ``targets``, while the model's own check does not reject
    the image.

    The check is a ``detector``, another output (a key, or a place in a tuple) that accepts where its score is below
    ``threshold``, or the largest softmax ``probability``, which must be at least so much: log p + logsumexp(z) - max_{i
    != y} z_i < 0. The margin is the larger of both.
    """

    title = "reject"
    about = "a wrong class that the detector, or a confidence threshold, accepts"
    by_class = False

    probability: float | None = field(default=None, kw_only=True, metadata=SHARED)
    detector: str | int | None = field(default=None, kw_only=True, metadata=SHARED)
    threshold: float = field(default=0.0, kw_only=True, metadata=SHARED)

    def __post_init__(self) -> None:
        if (self.probability is None) == (self.detector is None):
            raise BadInput(
                "the goal reject needs probability=0.9, the least that is accepted, or detector=1, the output that "
                "rejects above threshold."
            )
        if self.probability is not None and not 0 < self.probability < 1:
            raise BadInput(
                f"probability={self.probability!r}: the least softmax probability that is accepted is between 0 and 1."
            )

    def read(self, answer: Any, images: int) -> Tensor:
        """Logits (B, K), and with a detector its score as a last column."""
        if self.detector is None:
            return super().read(answer, images)
        plain = self.output is None and isinstance(answer, (tuple, list))
        logits, score = (
            ClassGoal(output=0 if plain else self.output).read(answer, images),
            picked(answer, self.detector),
        )
        if not isinstance(score, Tensor) or score.numel() != images:
            raise BadModel(
                f"the detector's output {self.detector!r} must be one score for each of the {images} images."
            )
        return torch.cat([logits, score.reshape(images, 1).to(logits)], 1)

    def _logits(self, outputs: Tensor) -> Tensor:
        return outputs if self.detector is None else outputs[:, :-1]

    def _accepted(self, outputs: Tensor, rivals: Tensor | None = None) -> Tensor:
        """(B,) negative where a wrong class, or the target, is accepted; that of ``rivals`` (B,) where given.

        The label's own probability is left out: it decides nothing where the label is left, and until then it would
        pull back to it.
        """
        if self.probability is None:
            return outputs[:, -1] - self.threshold
        if rivals is not None or self.targeted:
            lead = outputs.gather(1, self._index() if rivals is None else rivals.unsqueeze(1)).squeeze(1)
        else:
            lead = outputs.scatter(1, self._index(), float("-inf")).amax(1)
        return math.log(self.probability) + torch.logsumexp(outputs, 1) - lead

    def fit(self, outputs: Tensor, rows: Tensor) -> Self:
        ClassGoal(self.labels, self.targets).fit(self._logits(outputs), rows)
        return self

    def margin(self, outputs: Tensor) -> Tensor:
        return torch.maximum(super().margin(self._logits(outputs)), self._accepted(outputs))

    def soft_margin(self, outputs: Tensor, temperature: Tensor) -> Tensor:
        return soft_maximum(
            torch.stack([super().soft_margin(self._logits(outputs), temperature), self._accepted(outputs)], 1),
            temperature,
        )

    def scale(self, outputs: Tensor) -> Tensor:
        return super(ClassGoal, self).scale(outputs)

    def constraint_and_slope(
        self, outputs: Tensor, margin: Tensor, tolerance: Tensor, largest: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        return super(ClassGoal, self).constraint_and_slope(outputs, margin, tolerance, largest)

    def rivals(self, outputs: Tensor) -> Tensor | None:
        return super().rivals(self._logits(outputs))

    def rival_margin(self, outputs: Tensor, rivals: Tensor) -> Tensor:
        return torch.maximum(super().rival_margin(self._logits(outputs), rivals), self._accepted(outputs, rivals))
