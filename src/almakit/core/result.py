"""What an attack returns: one row per image, with a status that is a sentence."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import torch
from torch import Tensor


class Status(IntEnum):
    """How an image ended. The sentences are in ``sentence``."""

    ALREADY_WRONG = 0
    SUCCESS = 1
    FAILED = 2
    INVALID = 3

    @property
    def sentence(self) -> str:
        return {
            Status.ALREADY_WRONG: "The goal is reached on the clean image; its distance is 0.",
            Status.SUCCESS: "An adversarial image was found and verified by the model's argmax.",
            Status.FAILED: "No adversarial image was found within the budget; its distance is infinite.",
            Status.INVALID: "The model gave no finite logits to work with; its distance is infinite.",
        }[self]


@dataclass(frozen=True, eq=False)
class Result:
    """One row per image: the best verified point, its distance, how it ended and what it cost.

    ``adversarials`` (B, ...) holds the clean image where nothing was found; ``distances`` (B,) is 0 where the goal was reached from the
    start and inf where nothing was found. ``forwards`` and ``backwards`` (B,) count model passes of each image. ``probes`` counts the
    single-image passes of the determinism check before the attack, which belong to no image's budget.
    """

    adversarials: Tensor
    distances: Tensor
    status: Tensor
    forwards: Tensor
    backwards: Tensor
    reasons: list[str | None] = field(default_factory=list)
    probes: int = 0

    @property
    def success(self) -> Tensor:
        """(B,) whether an image fools the model (already wrong ones included, as the paper counts)."""
        return (self.status == Status.ALREADY_WRONG) | (self.status == Status.SUCCESS)

    @property
    def success_rate(self) -> float:
        return float(self.success.double().mean()) if len(self) else float("nan")

    @property
    def median(self) -> float:
        """Median distance over all images: already wrong counts 0, failed infinity."""
        if not len(self):
            return float("nan")
        # Not by quantile(): between two infinities it interpolates to NaN.
        ordered = self.distances.double().sort().values
        return float(ordered[(len(self) - 1) // 2] + ordered[len(self) // 2]) / 2

    def __len__(self) -> int:
        return len(self.status)

    def __repr__(self) -> str:
        counts = ", ".join(f"{int((self.status == s).sum())} {s.name}" for s in Status if int((self.status == s).sum()))
        return f"Result({len(self)} images: {counts or 'none'}; success {self.success_rate:.1%}, median distance {self.median:.4g})"

    @staticmethod
    def empty(x: Tensor) -> Result:
        """The result for no images; ``x`` (0, ...) says their shape."""
        counts = torch.zeros(0, dtype=torch.long)
        return Result(x, x.new_zeros(0), counts, counts, counts)

    @staticmethod
    def concatenate(parts: list[Result]) -> Result:
        """The rows of several results, in order."""
        def rows(name: str) -> Tensor:
            return torch.cat([getattr(part, name) for part in parts])

        return Result(
            rows("adversarials"), rows("distances"), rows("status"), rows("forwards"), rows("backwards"),
            reasons=[reason for part in parts for reason in part.reasons],
            probes=sum(part.probes for part in parts),
        )
