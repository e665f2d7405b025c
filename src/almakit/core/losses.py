"""Losses that fixed-radius attacks climb: larger is closer to the goal, whichever kind of goal it is."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from ..errors import BadInput
from .goals import TINY, Goal

LOSSES = ("ce", "dlr", "margin", "targeted-dlr")


def check_loss(name: str, known: tuple[str, ...] = LOSSES) -> None:
    """Raises a sentence where a loss has no such name."""
    if name not in known:
        raise BadInput(f"loss={name!r}: choose one of {', '.join(known)}.")


def ascent_loss(name: str, goal: Goal, logits: Tensor, classes: Tensor | None = None) -> Tensor:
    """(B,) the loss ``name`` of ``logits`` (B, K), to be climbed; ``classes`` (B,) are the rivals of "targeted-dlr".

    "ce": the cross-entropy of the label, or minus that of the target. "dlr": minus DLR+ or tDLR+ (Croce and Hein 2020,
    eq. 5 and 6). "margin": minus the margin. "targeted-dlr": (z_c - z_y)/(z_p1 - (z_p3 + z_p4)/2) for the rival class c
    of each image; a goal with targets takes those instead.
    """
    if name == "ce":
        assert goal.classes is not None, "cross-entropy is for goals of classes"
        sign = -1.0 if goal.targeted else 1.0
        return sign * F.cross_entropy(logits, goal.classes, reduction="none")
    if name == "margin":
        return -goal.margin(logits)
    if name == "dlr" or goal.targeted or classes is None:
        return -goal.constraint(logits)
    assert goal.labels is not None
    lead = logits.gather(1, classes.unsqueeze(1)).squeeze(1) - logits.gather(1, goal.labels.unsqueeze(1)).squeeze(1)
    if logits.shape[1] < 4:
        assert goal.reference is not None, "the goal is bound to the clean images before its constraint is used"
        return lead / goal.reference.clamp_min(TINY)
    top = logits.topk(4, dim=1).values
    return lead / (top[:, 0] - (top[:, 2] + top[:, 3]) / 2).clamp_min(TINY)
