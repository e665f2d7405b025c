"""What an attack wants of the logits: margins whose sign is the argmax decision, and the scale-free constraints of the paper.

A margin is negative exactly when the goal is reached. A small tolerance, relative to the logits and their precision, is demanded on
top in both kinds of goal, so that a success is still one when the model rounds differently in another batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

# Relative safety of a decision by the precision the model computes in: far above its rounding, far below any margin that matters.
SAFETY = {torch.float64: 1e-11, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
TINY = 1e-12
# Below this part of the logits a difference between them is a tie.
TIE = 1e-4


@dataclass(frozen=True, eq=False)
class Goal:
    """Leave the class ``labels`` (B,), or with ``targets`` (B,) be classified as those; ``confidence`` is the logit lead demanded.

    ``reference`` (B,) is the margin's size on the clean images: the scale of the constraint where a model has too few classes for the
    paper's (DLR+ needs three logits, tDLR+ four).
    """

    labels: Tensor
    targets: Tensor | None = None
    confidence: float = 0.0
    reference: Tensor | None = None

    @property
    def targeted(self) -> bool:
        return self.targets is not None

    @property
    def classes(self) -> Tensor:
        """(B,) the class whose logit decides: the target where there is one, the label otherwise."""
        return self.labels if self.targets is None else self.targets

    def take(self, rows: Tensor) -> Goal:
        """The goal of the images ``rows`` (R,)."""
        return replace(
            self,
            labels=self.labels[rows],
            targets=None if self.targets is None else self.targets[rows],
            reference=None if self.reference is None else self.reference[rows],
        )

    def _own_and_best_other(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        index = self.classes.unsqueeze(1)
        own = logits.gather(1, index).squeeze(1)
        other = logits.scatter(1, index, float("-inf")).amax(1)
        return own, other

    def margin(self, logits: Tensor) -> Tensor:
        """(B,) z_y - max_{i != y} z_i, or for targets max_{i != t} z_i - z_t, plus the confidence: negative when the goal is reached."""
        own, other = self._own_and_best_other(logits)
        margin = other - own if self.targeted else own - other
        return margin + self.confidence if self.confidence else margin

    def tolerance(self, logits: Tensor, precision: torch.dtype) -> Tensor:
        """(B,) how far below zero a margin must be to count, for a model that computes in ``precision``."""
        values = logits.detach()
        safety = SAFETY.get(precision, 1e-5)
        most, least = values.amax(1), values.amin(1)
        return torch.add(safety * (most - least), torch.maximum(most, -least), alpha=0.1 * safety)

    def scale(self, logits: Tensor) -> Tensor:
        """(B,) the denominator of DLR+ or tDLR+, positive."""
        wanted = 4 if self.targeted else 3
        if logits.shape[1] < wanted:
            assert self.reference is not None, "the goal is bound to the clean images before its constraint is used"
            # Twice the clean margin: the constraint starts at 1/2, where linear models come out best at 100 and at 1000 steps.
            return _safe(2 * self.reference, logits)
        top = logits.topk(wanted, dim=1).values
        lowest = (top[:, 2] + top[:, 3]) / 2 if self.targeted else top[:, 2]
        return _safe(top[:, 0] - lowest, logits)

    def constraint(self, logits: Tensor, tolerance: Tensor | float = 0.0) -> Tensor:
        """(B,) DLR+ = (z_y - max_{i != y} z_i)/(z_p1 - z_p3), or tDLR+ = (max_{i != t} z_i - z_t)/(z_p1 - (z_p3 + z_p4)/2); eq. 4 and 15.

        ``tolerance`` (B,) is added to the numerator. With too few classes the margin is divided by twice its size on the clean image.
        """
        return (self.margin(logits) + tolerance) / self.scale(logits)

    def constraint_and_slope(self, logits: Tensor, margin: Tensor, tolerance: Tensor, largest: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """``constraint`` (B,) of the detached ``logits`` (B, K) whose ``margin`` (B,) is known, and its gradient in them (B, K), in closed form.
        ``largest`` (B,): their largest absolute entry, where it is known.

        With S the scale: (e_y - e_o)/S - d/S (e_p1 - e_p3), or (e_o - e_t)/S - d/S (e_p1 - (e_p3 + e_p4)/2), o the best other class. What autograd gives,
        at a fraction of its cost on a CPU; of tied classes the first counts.
        """
        index, wanted = self.classes.unsqueeze(1), 4 if self.targeted else 3
        rival = logits.scatter(1, index, float("-inf")).max(1, keepdim=True).indices
        one = -1.0 if self.targeted else 1.0
        slope = torch.zeros_like(logits).scatter_(1, rival, -one).scatter_(1, index, one)
        if logits.shape[1] < wanted:
            scale = self.scale(logits)
            return (margin + tolerance) / scale, slope.div_(scale.unsqueeze(1))
        top, places = logits.topk(wanted, dim=1)
        span = top[:, 0] - ((top[:, 2] + top[:, 3]) / 2 if self.targeted else top[:, 2])
        scale = _safe(span, logits, largest)
        d = (margin + tolerance) / scale
        # Where the scale was raised to its floor it is a constant.
        pull = torch.where(span == scale, d / scale, 0.0).unsqueeze(1)
        slope.div_(scale.unsqueeze(1)).scatter_add_(1, places[:, :1], -pull)
        low = pull / 2 if self.targeted else pull
        return d, slope.scatter_add_(1, places[:, 2:], low.expand(-1, wanted - 2))

    def soft_margin(self, logits: Tensor, temperature: Tensor) -> Tensor:
        """(B,) the margin with the other classes' maximum softened: T logsumexp(z_i / T); ``temperature`` (B,) > 0."""
        index = self.classes.unsqueeze(1)
        own = logits.gather(1, index).squeeze(1)
        others = logits.scatter(1, index, float("-inf"))
        best = others.detach().amax(1)
        soft = temperature * torch.logsumexp((others - best.unsqueeze(1)) / temperature.unsqueeze(1), dim=1) + best
        return (soft - own if self.targeted else own - soft) + self.confidence


def _safe(scale: Tensor, logits: Tensor, largest: Tensor | None = None) -> Tensor:
    """``scale`` (B,) kept above the rounding of ``logits`` (B, K), or of each pixel; 1 where all logits are zero.

    Divided by less, a constraint is so steep at a tie that the first step, sized by its gradient, is lost in rounding.
    """
    if largest is None:
        values = logits.detach()
        largest = torch.maximum(values.amax(1), -values.amin(1))
    scale = torch.maximum(scale, TIE * largest)
    return torch.where(scale > 0, scale, torch.ones_like(scale))
