"""SEA: the segmentation ensemble, APGD with four losses over pixels in balls that shrink to the radius epsilon."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from ..core import DistanceLike, Problem, Query
from ..errors import BadInput
from .apgd import APGD
from .fixed_epsilon import check_loss
from .pixelwise import Pixels

LOSSES = ("mask-ce", "balanced-ce", "js", "mask-sphere")


@dataclass(frozen=True)
class SEA(APGD):
    """APGD once for each of ``losses``, 30 % of the steps in 2 epsilon, 30 % in 1.5 epsilon, the rest in epsilon; an
    image leaves when its goal is reached.

    With p the softmax of a pixel's logits z, y its label, R the pixels still right and T the steps: mask-ce: sum over R
    of -log p_y; balanced-ce: (1 - l) sum over R + l sum over the others of -log p_y, l = t / 2T; js: the sum of the
    Jensen-Shannon divergences of p and the label's indicator e_y; mask-sphere: sum over R of |z/|z| - e_y|^2 / 2.
    Croce, Singh and Hein, *Towards Reliable Evaluation and Fast Training of Robust Semantic Segmentation Models*, ECCV
    2024; balanced-ce is that of Gu et al., *SegPGD*, ECCV 2022. Towards targets the signs turn and R are the pixels not
    yet there. Unlike the original: step sizes and the best point follow the mean over pixels of 1 where wrong, 1 - p_y
    where right, as masked losses fall with every pixel won; an image counts as broken when the goal's share of its
    pixels is wrong, and the worst mIoU over the losses is not taken.

    Args:
        loss: one loss alone, where losses has it.
        rivals: not used here.
        widen: not used here: the first steps always use 2 and 1.5 epsilon.
        losses: the losses that are maximised, one run after the other: mask-ce, balanced-ce, js, mask-sphere.
    """

    title = "SEA"
    does = ("l2", "linf")
    cost = "steps + 3 forwards, steps backwards per loss, and the clean pass"
    paper = "Croce, Singh and Hein, ECCV 2024"
    presets = {"paper": {"steps": 300}}

    distance: DistanceLike = "linf"
    steps: int = 100
    loss: str = "mask-ce"
    losses: tuple[str, ...] = LOSSES

    def __post_init__(self) -> None:
        names = (self.losses,) if isinstance(self.losses, str) else tuple(self.losses)
        object.__setattr__(self, "losses", names)
        if not names:
            raise BadInput(f"losses: name one or more of {', '.join(LOSSES)}.")
        super().__post_init__()

    def check_loss(self) -> None:
        for name in (self.loss, *self.losses):
            check_loss(name, LOSSES)

    def needs_classes(self) -> bool:
        return False

    def run_at(self, problem: Problem, epsilon: Tensor) -> None:
        for name in self.losses:
            super(SEA, replace(self, loss=name)).run_at(problem, epsilon)

    def _phases(self, wide: bool) -> list[tuple[float, int]]:
        early = math.ceil(0.3 * self.steps)
        return (
            [(1.0, self.steps)]
            if self.steps - 2 * early < 1
            else [(2.0, early), (1.5, early), (1.0, self.steps - 2 * early)]
        )

    def value(self, problem: Problem, query: Query, rival: Tensor | None, progress: float) -> tuple[Tensor, Tensor]:
        """The loss that is maximised (B,) and the one that ranks points (B,)."""
        pixels = Pixels.of(problem.goal, query.logits)
        return pixel_loss(self.loss, pixels, progress), _wrong(pixels)


def pixel_loss(name: str, pixels: Pixels, progress: float) -> Tensor:
    """(B,) the loss ``name`` that is maximised; ``progress`` runs from 0 to 1."""
    open_, sign = pixels.open(), -1.0 if pixels.targeted else 1.0
    if name == "mask-sphere":
        one = F.one_hot(pixels.classes, pixels.logits.shape[1]).movedim(-1, 1).to(pixels.logits.dtype)
        each, weight = (F.normalize(pixels.logits, dim=1) - one).square().sum(1) / 2, open_.to(pixels.logits.dtype)
    elif name == "js":
        each, weight = _divergence(pixels), pixels.counted.to(pixels.logits.dtype)
    else:
        each, weight = F.cross_entropy(pixels.logits, pixels.classes, reduction="none"), open_.to(pixels.logits.dtype)
        if name == "balanced-ce":
            share = progress / 2
            weight = (1 - share) * weight + share * (pixels.counted & ~open_).to(weight.dtype)
    return sign * (weight * each).sum(1)


def _divergence(pixels: Pixels) -> Tensor:
    """(B, P) Jensen-Shannon: (KL(p | m) + KL(e_y | m)) / 2 with m = (p + e_y) / 2, which depends on p_y alone."""
    p = pixels.logits.log_softmax(1).gather(1, pixels.classes.unsqueeze(1)).squeeze(1).exp()
    # Off the label m = p / 2, so those terms of KL(p | m) sum to (1 - p_y) log 2.
    return (
        (1 - p) * math.log(2) + p * (torch.log(2 * p.clamp_min(1e-30)) - torch.log1p(p)) + math.log(2) - torch.log1p(p)
    ) / 2


@torch.no_grad()
def _wrong(pixels: Pixels) -> Tensor:
    """(B,) the mean over the counted pixels of 1 where the goal is reached, else of how little is missing, below 1."""
    p = pixels.logits.softmax(1).gather(1, pixels.classes.unsqueeze(1)).squeeze(1)
    each = torch.where(pixels.open(), p if pixels.targeted else 1 - p, 1.0)
    return torch.where(pixels.counted, each, 0.0).sum(1) / pixels.counted.sum(1).clamp_min(1)
