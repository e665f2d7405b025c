"""The goal of segmentation: a share of the pixels is wrong, or as in the target map, with one margin per image."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ..errors import BadInput
from ..tensors import SMALL, ranks
from .base import SHARED
from .classes import ClassGoal

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, eq=False)
class PixelGoal(ClassGoal):
    """At least ``share`` of the pixels in ``mask`` (B, H, W) leave ``labels`` (B, H, W), or have the class of
    ``targets`` (B, H, W).

    The margin of an image is that of its decisive pixel, the ceil(share n)-th smallest of the n pixel margins: negative
    exactly when enough pixels have reached the goal. Labels that are no class of the model (such as 255 for unlabelled
    pixels) do not count.
    """

    title = "pixels"
    about = "a share of the pixels leave their labels, or reach their targets"
    by_class = False
    shape: ClassVar[tuple[int, str]] = (4, "(batch, classes, height, width)")

    mask: Tensor | None = None
    share: float = field(default=0.99, kw_only=True, metadata=SHARED)

    def __post_init__(self) -> None:
        check_share(self.share)

    def fit(self, outputs: Tensor, rows: Tensor) -> Self:
        """With the pixels that count: those in the mask whose label, and target, is a class of the ``outputs`` (B, K,
        H, W)."""
        classes, sides, labels, targets = outputs.shape[1], outputs.shape[2:], self.labels, self.targets
        assert labels is not None
        for what, values in (("labels", labels), ("targets", targets)):
            if values is not None and values.shape[1:] != sides:
                raise BadInput(
                    f"{what} are maps of {values.shape[1]} x {values.shape[2]}, the model's logits of {sides[0]} x "
                    f"{sides[1]}: resize one of them."
                )
        mask = torch.ones_like(labels, dtype=torch.bool) if self.mask is None else self.mask
        if mask.shape != labels.shape or mask.dtype != torch.bool:
            raise BadInput(
                f"the pixel mask must be boolean of shape {tuple(labels.shape)}, not {mask.dtype} of shape "
                f"{tuple(mask.shape)}."
            )
        labelled = mask & (labels >= 0) & (labels < classes)
        if targets is not None:
            labelled = labelled & (targets >= 0) & (targets < classes)
            differs = (labelled & (targets != labels)).flatten(1).any(1)
            if not bool(differs.all()):
                raise BadInput(
                    f"the target map of image {int(rows[~differs][0])} equals its labels; change some pixels of it, or "
                    "leave targets out."
                )
            targets = torch.where(labelled, targets, torch.zeros_like(targets))
        empty = ~labelled.flatten(1).any(1)
        if bool(empty.any()):
            raise BadInput(f"image {int(rows[empty][0])} has no labelled pixel in its mask; leave it out.")
        return replace(
            self, mask=labelled, labels=torch.where(labelled, labels, torch.zeros_like(labels)), targets=targets
        )

    def parts(self, size: int, device: torch.device) -> Tensor:
        """(B, H W) the pixels that count."""
        assert self.mask is not None, "the goal is fitted to the model's outputs before it is used"
        return self.mask.flatten(1)

    def pixel_margins(self, outputs: Tensor) -> Tensor:
        """(B, H W) the margins of the pixels in ``outputs`` (B, K, H, W), infinite where they do not count."""
        assert self.mask is not None, "the goal is fitted to the model's outputs before it is used"
        return torch.where(self.mask, super().margin(outputs), torch.full_like(outputs[:, 0], float("inf"))).flatten(1)

    def _needed(self, each: Tensor) -> Tensor:
        """(B, 1) the number of pixel margins ``each`` (B, H W) that must be negative."""
        # The tolerance makes 0.99 * 100 equal to 99 pixels.
        return (
            torch.ceil(self.share * self.parts(len(each), each.device).sum(1, keepdim=True).double() - 1e-9)
            .long()
            .clamp_min(1)
        )

    def margin(self, outputs: Tensor) -> Tensor:
        """(B,) the decisive pixel's margin in ``outputs`` (B, K, H, W)."""
        each = self.pixel_margins(outputs)
        return each.sort(dim=1).values.gather(1, self._needed(each) - 1).squeeze(1)

    @property
    def conditions(self) -> int:
        """The pixels that must be wrong where all of them count."""
        return math.ceil(self.share * self.parts(0, torch.device("cpu")).shape[1])

    def soft_margin(self, outputs: Tensor, temperature: Tensor) -> Tensor:
        """(B,) the margin, with the gradient of all pixels that are to be changed yet: of the pixel margins m that are
        needed, those nearest to the goal, the mean with weights sigmoid(m / T), each with its other classes' maximum
        softened. The decisive pixel, and the largest of them softened, show no way for the rest."""
        each = self.pixel_margins(outputs.detach())
        needed = ranks(each.argsort(dim=1, stable=True)) < self._needed(each)
        weights = logsigmoid(each / temperature.unsqueeze(1)).masked_fill(~needed, float("-inf")).softmax(1)
        mean = (weights * super().soft_margin(outputs, temperature.reshape(-1, 1, 1)).flatten(1)).sum(1)
        return self.margin(outputs.detach()) + mean - mean.detach()

    def spread(self, outputs: Tensor) -> Tensor:
        """(B,) the standard deviation of the pixel margins."""
        each = self.pixel_margins(outputs.detach())
        counted = torch.isfinite(each)
        number = counted.sum(1).clamp_min(1)
        values = torch.where(counted, each, torch.zeros_like(each))
        mean = values.sum(1) / number
        return (
            torch.where(counted, values - mean.unsqueeze(1), torch.zeros_like(values)).square().sum(1) / number
        ).sqrt()

    def tolerance(self, outputs: Tensor, precision: torch.dtype) -> Tensor:
        """(B,) the largest tolerance of the image's pixels."""
        return super().tolerance(outputs, precision).flatten(1).amax(1)

    def scale(self, outputs: Tensor) -> Tensor:
        """(B,) twice the decisive margin on the clean image."""
        return (2 * self._reference()).clamp_min(SMALL)

    def constraint_and_slope(
        self, outputs: Tensor, margin: Tensor, tolerance: Tensor, largest: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The constraint (B,), with the gradient of the soft margin over a fifth of the spread: one pixel alone shows
        no way for all."""
        scale = self.scale(outputs)
        with torch.enable_grad():
            leaf = outputs.detach().clone().requires_grad_(True)
            soft = self.soft_margin(leaf, (0.2 * self.spread(leaf)).clamp_min(SMALL)) / scale
            (slope,) = torch.autograd.grad(soft.sum(), leaf)
        return (margin + tolerance) / scale, slope

    def constraints(self, outputs: Tensor, tolerance: Tensor) -> Tensor:
        """(B, H W) DLR+ or tDLR+ of each pixel; ``tolerance`` (B,) is added to the numerators."""
        if outputs.shape[1] >= (4 if self.targeted else 3):
            scale = super().scale(outputs)
        else:
            scale = self._reference().clamp_min(SMALL).reshape(-1, 1, 1)
        return ((super().margin(outputs) + tolerance.reshape(-1, 1, 1)) / scale).flatten(1)

    def rivals(self, outputs: Tensor) -> None:
        return None

    def rival_margin(self, outputs: Tensor, rivals: Tensor) -> Tensor:
        return self.margin(outputs)


def check_share(share: float) -> None:
    """Raise an error if ``share`` is not in (0, 1]."""
    if not (isinstance(share, int | float) and math.isfinite(share) and 0 < share <= 1):
        raise BadInput(f"share={share!r}: the part of the pixels to change must be in (0, 1], e.g. 0.99.")
