"""One image of a result, and how it ended: a status that is a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

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
class ImageResult:
    """One image of a ``Result``: ``result[3]``. ``adversarial`` (...) is the clean image where nothing was found."""

    adversarial: Tensor
    distance: float
    status: Status
    forwards: int
    backwards: int
    reason: str | None = None
    original: Tensor | None = None
    label: int | Tensor | None = None

    @property
    def success(self) -> bool:
        return self.status in (Status.ALREADY_WRONG, Status.SUCCESS)

    def __repr__(self) -> str:
        label = f"label {self.label}, " if isinstance(self.label, int) else ""
        shape = " x ".join(map(str, self.adversarial.shape))
        return (
            f"ImageResult({shape}, {label}{self.status.name}, distance {self.distance:.4g}, {self.forwards} "
            f"forwards, {self.backwards} backwards)"
        )
