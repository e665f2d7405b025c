"""Goals for classifiers: leave the label or reach a target, leave the top k, a wrong class that a detector accepts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from ..errors import BadInput, BadModel
from ..tensors import deviation, extremes, soft_maximum
from .base import SAFETY, SHARED, Goal, safe_scale
from .outputs import picked

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, eq=False)
class ClassGoal(Goal):
    """Leave the class ``labels`` (B,), or reach the classes ``targets`` (B,); ``confidence`` is the required logit
    lead.

    DLR+ needs three logits, tDLR+ four: with fewer the constraint is the margin over twice its size on the clean image.
    """

    title = "untargeted"
    about = "leave the label, or with targets reach them"
    needs_labels = True
    by_class = True
    shape: ClassVar[tuple[int, str]] = (2, "(batch, classes)")

    def read(self, answer: Any, images: int) -> Tensor:
        """Logits (B, K)."""
        logits = picked(answer, self.output)
        if not isinstance(logits, Tensor) or logits.ndim != self.shape[0] or len(logits) != images:
            got = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
            raise BadModel(
                f"the model must return logits of shape {self.shape[1]}; for {images} images it returned {got}. "
                "Wrap it in a function that returns the logits alone."
            )
        if logits.shape[1] < 2:
            raise BadModel(
                "the model returns a single logit; stack (-z/2, z/2) to make a two-class classifier of it, or give "
                "goal=threshold(...)."
            )
        return logits

    def fit(self, outputs: Tensor, rows: Tensor) -> Self:
        for values, what in ((self.labels, "labels"), (self.targets, "targets")):
            if values is not None:
                check_range(values, what, outputs.shape[1], rows)
        return self

    def _index(self) -> Tensor:
        classes = self.classes
        if classes is None:
            raise BadInput("this goal needs labels: give labels (B,), or targets.")
        return classes.unsqueeze(1)

    def _own_and_best_other(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        index = self._index()
        own = logits.gather(1, index).squeeze(1)
        other = logits.scatter(1, index, float("-inf")).amax(1)
        return own, other

    def margin(self, outputs: Tensor) -> Tensor:
        """(B,) z_y - max_{i != y} z_i, or for targets max_{i != t} z_i - z_t, plus the confidence: negative when the
        goal is reached."""
        own, other = self._own_and_best_other(outputs)
        margin = other - own if self.targeted else own - other
        return margin + self.confidence if self.confidence else margin

    def spread(self, outputs: Tensor) -> Tensor:
        """(B,) the standard deviation of the logits (B, K)."""
        return deviation(outputs.detach())

    def tolerance(self, outputs: Tensor, precision: torch.dtype) -> Tensor:
        """(B,) how far below zero a margin must be to count, for a model that computes in ``precision``."""
        values = outputs.detach()
        safety = SAFETY.get(precision, 1e-5)
        least, most = extremes(values)
        return torch.add(safety * (most - least), torch.maximum(most, -least), alpha=0.1 * safety)

    def scale(self, outputs: Tensor) -> Tensor:
        """(B,) the denominator of DLR+ or tDLR+, positive."""
        count = 4 if self.targeted else 3
        if outputs.shape[1] < count:
            return super().scale(outputs)
        top = outputs.topk(count, dim=1).values
        lowest = (top[:, 2] + top[:, 3]) / 2 if self.targeted else top[:, 2]
        return safe_scale(top[:, 0] - lowest, outputs)

    def constraint(self, outputs: Tensor, tolerance: Tensor | float = 0.0) -> Tensor:
        """(B,) DLR+ = (z_y - max_{i != y} z_i)/(z_p1 - z_p3), or tDLR+ = (max_{i != t} z_i - z_t)/(z_p1 - (z_p3 +
        z_p4)/2); eq. 4 and 15.

        ``tolerance`` (B,) is added to the numerator.
        """
        return (self.margin(outputs) + tolerance) / self.scale(outputs)

    def margin_slope(self, outputs: Tensor, temperature: Tensor | None = None) -> Tensor | None:
        """The gradient (B, K) of the margin, e_y - e_o with o the best other class, or of the soft margin, e_y -
        softmax(z / T) over the others; towards a target the signs turn. Of tied classes the first counts. None for a
        subclass with a margin of its own."""
        kind = type(self)
        if kind.margin is not ClassGoal.margin or kind.soft_margin is not ClassGoal.soft_margin:
            return None
        index, towards = self._index(), -1.0 if self.targeted else 1.0
        others = outputs.scatter(1, index, float("-inf"))
        if temperature is None:
            slope = torch.zeros_like(outputs).scatter_(1, others.argmax(1, keepdim=True), -towards)
        else:
            # Subtract the common part of the logits, which divided by T would hide their differences.
            slope = others.sub_(outputs[:, :1]).div_(temperature.unsqueeze(1)).softmax(1)
            slope = slope if self.targeted else slope.neg_()
        return slope.scatter_(1, index, towards)

    def soft_margin_slope(self, outputs: Tensor, temperature: Tensor) -> Tensor | None:
        if type(self).soft_margin is not ClassGoal.soft_margin:
            return None
        index, t = self._index(), temperature.unsqueeze(1)
        others = outputs.scatter(1, index, float("-inf"))
        scaled = (others - others.amax(1, keepdim=True)).div_(t)
        # Times and over T, as autograd computes it.
        slope = scaled.sub_(scaled.logsumexp(1, keepdim=True)).exp_().mul_(t).div_(t)
        slope = slope if self.targeted else slope.neg_()
        return slope.scatter_(1, index, -1.0 if self.targeted else 1.0)

    def constraint_and_slope(
        self, outputs: Tensor, margin: Tensor, tolerance: Tensor, largest: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """``constraint`` (B,) of the detached logits (B, K) whose ``margin`` (B,) is known, and its gradient in them
        (B, K), in closed form. ``largest`` (B,): their largest absolute entry, where it is known.

        With S the scale: (e_y - e_o)/S - d/S (e_p1 - e_p3), or (e_o - e_t)/S - d/S (e_p1 - (e_p3 + e_p4)/2), o the best
        other class. What autograd gives, at a fraction of its cost on a CPU; of tied classes the first counts.
        """
        slope = self.margin_slope(outputs)
        if slope is None:
            return super().constraint_and_slope(outputs, margin, tolerance, largest)
        logits, count = outputs, 4 if self.targeted else 3
        if logits.shape[1] < count:
            scale = self.scale(logits)
            return (margin + tolerance) / scale, slope.div_(scale.unsqueeze(1))
        top, places = logits.topk(count, dim=1)
        span = top[:, 0] - ((top[:, 2] + top[:, 3]) / 2 if self.targeted else top[:, 2])
        scale = safe_scale(span, logits, largest)
        d = (margin + tolerance) / scale
        # Where the scale was raised to its floor it is a constant.
        pull = torch.where(span == scale, d / scale, 0.0).unsqueeze(1)
        slope.div_(scale.unsqueeze(1)).scatter_add_(1, places[:, :1], -pull)
        low = pull / 2 if self.targeted else pull
        return d, slope.scatter_add_(1, places[:, 2:], low.expand(-1, count - 2))

    def soft_margin(self, outputs: Tensor, temperature: Tensor) -> Tensor:
        """(B,) the margin with the other classes' maximum softened: T logsumexp(z_i / T); ``temperature`` (B,) > 0."""
        index = self._index()
        own = outputs.gather(1, index).squeeze(1)
        others = outputs.scatter(1, index, float("-inf"))
        soft = soft_maximum(others, temperature)
        return (soft - own if self.targeted else own - soft) + self.confidence

    def rivals(self, outputs: Tensor) -> Tensor | None:
        """(B, K - 1) the other classes by their logits (B, K), ties in the order of the classes; None towards a
        target."""
        if self.targeted:
            return None
        return (
            outputs.detach()
            .scatter(1, self._index(), float("-inf"))
            .argsort(dim=1, descending=True, stable=True)[:, :-1]
        )

    def rival_margin(self, outputs: Tensor, rivals: Tensor) -> Tensor:
        """(B,) z_y - z_r plus the confidence, for the classes r ``rivals`` (B,)."""
        own = outputs.gather(1, self._index()).squeeze(1)
        return own - outputs.gather(1, rivals.unsqueeze(1)).squeeze(1) + self.confidence


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
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise BadInput(f"k={self.k!r}: give a whole number, at least 1.")

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
        """All k other classes must pass the label: the largest of k differences, softened. For a target, only the k-th
        class matters."""
        own, first = self._own_and_first(outputs)
        if self.targeted:
            return first[:, -1] - own + self.confidence
        return soft_maximum(own.unsqueeze(1) - first, temperature) + self.confidence

    def rivals(self, outputs: Tensor) -> Tensor | None:
        return None

    def rival_margin(self, outputs: Tensor, rivals: Tensor) -> Tensor:
        return self.margin(outputs)


@dataclass(frozen=True, eq=False)
class Reject(ClassGoal):
    """Wrong **and** accepted: leave ``labels`` (B,), or reach ``targets``, while the model's own check does not reject
    the image.

    The check is a ``detector``, another output (a key, or a position in a tuple) that accepts scores below
    ``threshold``, or a smallest softmax ``probability`` of the predicted class: log p + logsumexp(z) - max_{i != y} z_i
    < 0. The margin is the larger one of class and check.
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

        The label's own probability is ignored: it has no effect once the label is left, and before that it would pull
        towards the label.
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

    def rivals(self, outputs: Tensor) -> Tensor | None:
        return super().rivals(self._logits(outputs))

    def rival_margin(self, outputs: Tensor, rivals: Tensor) -> Tensor:
        return torch.maximum(super().rival_margin(self._logits(outputs), rivals), self._accepted(outputs, rivals))


def check_range(values: Tensor, what: str, count: int, rows: Tensor | None = None) -> None:
    """Raise an error if a class in ``values`` (B,) is not one of the model's ``count`` classes; ``rows`` (B,) are image
    numbers."""
    wrong = (values < 0) | (values >= count)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        image = row if rows is None else int(rows[row])
        raise BadInput(
            f"{what[:-1]} {int(values[row])} of image {image} is not a class of this model, which has {count} (0 to "
            f"{count - 1})."
        )
