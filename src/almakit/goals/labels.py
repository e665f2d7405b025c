"""Checks of labels and targets."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import BadInput


def classes(values: object, what: str, batch: int) -> Tensor:
    """Labels or targets as int64 (B,)."""
    if not isinstance(values, Tensor):
        try:
            values = torch.as_tensor(values)
        except (TypeError, ValueError, RuntimeError):
            raise BadInput(f"{what} must be a tensor of {batch} class indices, not {type(values).__name__}.") from None
    values = values if values.numel() else values.long()
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        raise BadInput(
            f"{what} are {values.dtype}; they must be integer class indices (use .long(), or .argmax(1) for one-hot "
            "rows)."
        )
    if values.shape != (batch,):
        raise BadInput(
            f"{what} have shape {tuple(values.shape)}; for {batch} images they must have shape ({batch},), or for "
            f"maps ({batch}, height, width)."
        )
    if bool((values < 0).any()):
        row = int((values < 0).nonzero()[0])
        raise BadInput(f"{what[:-1]} {int(values[row])} of image {row} is not a class; classes are counted from 0.")
    return values.detach().long()


def maps(values: object, what: str, batch: int) -> Tensor:
    """Labels or targets of every pixel as int64 (B, H, W)."""
    if not isinstance(values, Tensor) or values.is_floating_point() or values.dtype == torch.bool:
        raise BadInput(f"{what} must be a tensor of integer classes, one per pixel.")
    if values.ndim != 3 or len(values) != batch:
        raise BadInput(
            f"{what} have shape {tuple(values.shape)}; for {batch} images they must have shape ({batch}, height, "
            "width)."
        )
    return values.detach().long()


def class_range(values: Tensor, what: str, count: int, rows: Tensor | None = None) -> None:
    """Raises where a class index in ``values`` (B,) is not below the model's number of classes; ``rows`` (B,) number
    the images."""
    wrong = (values < 0) | (values >= count)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        image = row if rows is None else int(rows[row])
        raise BadInput(
            f"{what[:-1]} {int(values[row])} of image {image} is not a class of this model, which has {count} (0 to "
            f"{count - 1})."
        )


def targets_differ(labels: Tensor, targets: Tensor) -> None:
    """Raises where a target equals its label; both (B,)."""
    same = labels == targets
    if bool(same.any()):
        row = int(same.nonzero()[0])
        raise BadInput(
            f"the target of image {row} equals its label ({int(labels[row])}); choose another class, or leave targets "
            "out."
        )
