"""Goals on segmentation models: so many of the pixels wrong, or as the target map says, with one decision per image like any other goal."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import BadInput
from . import accelerate as acceleration
from . import layout as layouts
from . import validate
from .attack import Attack, default_batch_size
from .domain import Box
from .goals import TINY, Goal
from .oracle import Model, Oracle, borrowed, guarded
from .result import Result
from .solve import solve


class PixelOracle(Oracle):
    """A segmentation model: logits (R, K, H, W)."""

    rank = 4
    shape = "(batch, classes, height, width)"


@dataclass(frozen=True, eq=False)
class PixelGoal(Goal):
    """At least ``share`` of the pixels in ``mask`` (B, H, W) leave ``labels`` (B, H, W), or have the class of ``targets`` (B, H, W).

    The margin of an image is that of its decisive pixel, the ceil(share n)-th smallest of the n pixel margins: negative exactly when
    enough pixels have reached the goal. ``constraint`` stays one number per pixel.
    """

    mask: Tensor | None = None
    share: float = 0.99

    def take(self, rows: Tensor) -> PixelGoal:
        assert self.mask is not None
        return replace(self, mask=self.mask[rows], labels=self.labels[rows], targets=None if self.targets is None else self.targets[rows],
                       reference=None if self.reference is None else self.reference[rows])

    @property
    def pixels(self) -> Tensor:
        """(B,) how many pixels count."""
        assert self.mask is not None
        return self.mask.flatten(1).sum(1)

    def margin(self, logits: Tensor) -> Tensor:
        """(B,) the decisive pixel's margin in ``logits`` (B, K, H, W)."""
        assert self.mask is not None
        each = torch.where(self.mask, super().margin(logits), torch.full_like(logits[:, 0], float("inf")))
        # The tolerance of the product keeps 0.99 * 100 at 99 pixels.
        decisive = torch.ceil(self.share * self.pixels.double() - 1e-9).long().clamp_min(1)
        return each.flatten(1).sort(dim=1).values.gather(1, decisive.unsqueeze(1) - 1).squeeze(1)

    def tolerance(self, logits: Tensor, precision: torch.dtype) -> Tensor:
        """(B,) the largest tolerance of the image's pixels."""
        return super().tolerance(logits, precision).flatten(1).amax(1)

    def scale(self, logits: Tensor) -> Tensor:
        """(B, H, W) the denominator of DLR+ or tDLR+ of each pixel."""
        if logits.shape[1] >= (4 if self.targeted else 3):
            return super().scale(logits)
        assert self.reference is not None, "the goal is bound to the clean images before its constraint is used"
        return self.reference.clamp_min(TINY).reshape(-1, 1, 1)

    def constraint(self, logits: Tensor, tolerance: Tensor | float = 0.0) -> Tensor:
        """(B, H, W) DLR+ or tDLR+ of each pixel; ``tolerance`` (B,) is added to the numerators."""
        extra = tolerance.reshape(-1, 1, 1) if isinstance(tolerance, Tensor) else tolerance
        return (super().margin(logits) + extra) / self.scale(logits)


def attack_pixels(attack: Attack, model: Model, x: Tensor, labels: Tensor, targets: Tensor | None, mask: Tensor | None, share: float, *,
                  box: Box | None = None, confidence: float = 0.0, batch_size: int | None = None, seed: int = 0, budget: int | None = None,
                  autocast: torch.dtype | None = None, check: bool = True, trace: Any = None, layout: str = layouts.CONTIGUOUS,
                  accelerate: str = acceleration.NONE, tolerance: float | None = None) -> Result:
    """Runs ``attack`` on a segmentation model: ``x`` (B, C, H, W), ``labels``, ``targets`` and ``mask`` (B, H, W); labels that are no class
    of the model (such as 255 for unlabelled pixels) do not count."""
    box = box or Box()
    x = validate.images(x, box)
    labels = _map(labels, "labels", x)
    targets = None if targets is None else _map(targets, "targets", x)
    mask = torch.ones_like(labels, dtype=torch.bool) if mask is None else torch.as_tensor(mask)
    if mask.shape != labels.shape or mask.dtype != torch.bool:
        raise BadInput(f"the pixel mask must be boolean of shape {tuple(labels.shape)}, not {mask.dtype} of shape {tuple(mask.shape)}.")
    validate.call(model, confidence, batch_size, budget, tolerance)
    layouts.check(layout)
    acceleration.check(accelerate)
    attack.measure.check(x)
    if not len(x):
        return Result.empty(x)
    oracle = PixelOracle(model, x.dtype, autocast)
    x, labels, mask, box = oracle.place(x), oracle.place(labels), oracle.place(mask), box.to(oracle.device or x.device)
    targets = None if targets is None else oracle.place(targets)
    size = batch_size or default_batch_size(x)
    if layout == layouts.AUTO:
        layout = layouts.faster_layout(model, x[:size].to(oracle.native or x.dtype))
    oracle.model = acceleration.accelerated(model, accelerate, min(size, len(x)), x.device)
    with guarded(model, oracle), borrowed(model), layouts.laid_out(model, layout), torch.inference_mode(False), torch.enable_grad():
        with torch.no_grad():
            _, classes, *sides = oracle(x[:1]).shape
        for what, given in (("labels", labels), ("targets", targets)):
            if given is not None and list(given.shape[1:]) != sides:
                raise BadInput(f"{what} are maps of {given.shape[1]} x {given.shape[2]}, the model's logits of {sides[0]} x {sides[1]}: resize one of them.")
        labelled = mask & (labels >= 0) & (labels < classes)
        if targets is not None:
            labelled = labelled & (targets >= 0) & (targets < classes)
            asked = (labelled & (targets != labels)).flatten(1).any(1)
            if not bool(asked.all()):
                raise BadInput(f"the target map of image {int((~asked).nonzero()[0])} equals its labels; change some pixels of it, or leave targets out.")
        empty = ~labelled.flatten(1).any(1)
        if bool(empty.any()):
            raise BadInput(f"image {int(empty.nonzero()[0])} has no labelled pixel in its mask; leave it out.")
        labels = torch.where(labelled, labels, torch.zeros_like(labels))
        targets = None if targets is None else torch.where(labelled, targets, torch.zeros_like(targets))
        goal = PixelGoal(labels, targets, confidence, mask=labelled, share=share)
        result = solve(attack, oracle, x, goal, box, size=size, seed=seed, budget=budget, trace=trace, check=check, probes=1, tolerance=tolerance)
    return replace(result, originals=x, labels=labels, distance=repr(attack.measure))


def _map(values: Tensor, what: str, x: Tensor) -> Tensor:
    """Labels or targets as int64 (B, H, W)."""
    if not isinstance(values, Tensor) or values.is_floating_point() or values.dtype == torch.bool:
        raise BadInput(f"{what} must be a tensor of integer classes, one per pixel.")
    if values.ndim != 3 or len(values) != len(x):
        raise BadInput(f"{what} have shape {tuple(values.shape)}; for {len(x)} images they must have shape ({len(x)}, height, width).")
    return values.detach().long()


def check_share(share: float) -> None:
    """Raises where ``share`` is no share of the pixels."""
    if not (isinstance(share, int | float) and math.isfinite(share) and 0 < share <= 1):
        raise BadInput(f"share={share!r}: the part of the pixels to change must be in (0, 1], e.g. 0.99.")
