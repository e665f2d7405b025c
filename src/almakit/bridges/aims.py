"""Targets without labels, as other libraries give them."""

from __future__ import annotations

from torch import Tensor

from ..goals.classes import check_range
from ..goals.resolve import class_indices


def labels_and_targets(logits: Tensor, targets: object) -> tuple[Tensor, Tensor]:
    """Labels (B,) and the targets (B,), checked against ``logits`` (B, K): the model's best class beside the target
    stands in for the label."""
    aims = class_indices(targets, "targets", len(logits)).to(logits.device)
    check_range(aims, "targets", logits.shape[1])
    return logits.scatter(1, aims.unsqueeze(1), float("-inf")).argmax(1), aims
