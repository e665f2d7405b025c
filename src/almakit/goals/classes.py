"""The usual goal of a classifier: leave the label, or with targets reach them; DLR+ and tDLR+ as the paper has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from ..errors import BadInput, BadModel
from ..tensors import deviation, soft_maximum
from . import labels as label_checks
from .base import SAFETY, Goal, kept_safe
from .outputs import picked

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, eq=False)
class ClassGoal(Goal):
    """Leave the class ``labels`` (B,), or with ``targets`` (B,) be classified as those; ``confidence`` is the logit
    lead demanded.

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
                label_checks.class_range(values, what, outputs.shape[1], rows)
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
        most, least = values.amax(1), values.amin(1)
        return torch.add(safety * (most - least), torch.maximum(most, -least), alpha=0.1 * safety)

    def scale(self, outputs: Tensor) -> Tensor:
        """(B,) the denominator of DLR+ or tDLR+, positive."""
        wanted = 4 if self.targeted else 3
        if outputs.shape[1] < wanted:
            return super().scale(outputs)
        top = outputs.topk(wanted, dim=1).values
        lowest = (top[:, 2] + top[:, 3]) / 2 if self.targeted else top[:, 2]
        return kept_safe(top[:, 0] - lowest, outputs)

    def constraint(self, outputs: Tensor, tolerance: Tensor | float = 0.0) -> Tensor:
        """(B,) DLR+ = (z_y - max_{i != y} z_i)/(z_p1 - z_p3), or tDLR+ = (max_{i != t} z_i - z_t)/(z_p1 - (z_p3 +
        z_p4)/2); eq. 4 and 15.

        ``tolerance`` (B,) is added to the numerator.
        """
        return (self.margin(outputs) + tolerance) / self.scale(outputs)

    def constraint_and_slope(
        self, outputs: Tensor, margin: Tensor, tolerance: Tensor, largest: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """``constraint`` (B,) of the detached logits (B, K) whose ``margin`` (B,) is known, and its gradient in them
        (B, K), in closed form. ``largest`` (B,): their largest absolute entry, where it is known.

        With S the scale: (e_y - e_o)/S - d/S (e_p1 - e_p3), or (e_o - e_t)/S - d/S (e_p1 - (e_p3 + e_p4)/2), o the best
        other class. What autograd gives, at a fraction of its cost on a CPU; of tied classes the first counts.
        """
        logits, index, wanted = outputs, self._index(), 4 if self.targeted else 3
        rival = logits.scatter(1, index, float("-inf")).max(1, keepdim=True).indices
        one = -1.0 if self.targeted else 1.0
        slope = torch.zeros_like(logits).scatter_(1, rival, -one).scatter_(1, index, one)
        if logits.shape[1] < wanted:
            scale = self.scale(logits)
            return (margin + tolerance) / scale, slope.div_(scale.unsqueeze(1))
        top, places = logits.topk(wanted, dim=1)
        span = top[:, 0] - ((top[:, 2] + top[:, 3]) / 2 if self.targeted else top[:, 2])
        scale = kept_safe(span, logits, largest)
        d = (margin + tolerance) / scale
        # Where the scale was raised to its floor it is a constant.
        pull = torch.where(span == scale, d / scale, 0.0).unsqueeze(1)
        slope.div_(scale.unsqueeze(1)).scatter_add_(1, places[:, :1], -pull)
        low = pull / 2 if self.targeted else pull
        return d, slope.scatter_add_(1, places[:, 2:], low.expand(-1, wanted - 2))

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
