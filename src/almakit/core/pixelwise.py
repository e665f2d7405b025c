"""A goal on pixels as the attacks on segmentation models see it: every pixel a classification of its own; a classifier
is one pixel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import BadInput
from .class_goal import ClassGoal
from .goals import Goal


@dataclass(frozen=True, eq=False)
class Pixels:
    """``logits`` (B, K, P), the ``classes`` (B, P) to leave, or with ``targeted`` to reach, and which pixels are
    ``counted`` (B, P)."""

    logits: Tensor
    classes: Tensor
    counted: Tensor
    targeted: bool

    @staticmethod
    def of(goal: Goal, logits: Tensor) -> Pixels:
        """The pixels of ``logits`` (B, K, H, W), or (B, K)."""
        classes = goal.classes
        if classes is None or not isinstance(goal, ClassGoal):
            raise BadInput(
                "DAG, ASMA and SEA serve untargeted and targeted goals, of images or pixels; soft-walk, alma and ddn "
                "serve any goal."
            )
        flat = classes.reshape(len(logits), -1)
        mask: Tensor | None = getattr(goal, "mask", None)
        counted = torch.ones_like(flat, dtype=torch.bool) if mask is None else mask.reshape(flat.shape)
        return Pixels(logits.reshape(*logits.shape[:2], -1), flat, counted, goal.targeted)

    @property
    def own(self) -> Tensor:
        """(B, P) the logit of each pixel's class."""
        return self.logits.gather(1, self.classes.unsqueeze(1)).squeeze(1)

    @property
    def rival(self) -> Tensor:
        """(B, P) the largest other logit."""
        return self.logits.scatter(1, self.classes.unsqueeze(1), float("-inf")).amax(1)

    def open(self) -> Tensor:
        """(B, P) the counted pixels that have not reached the goal: still of their class, or not yet of their
        target's."""
        lead = (self.own - self.rival).detach()
        return self.counted & ((lead <= 0) if self.targeted else (lead >= 0))
