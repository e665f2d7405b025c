"""The rows a run leaves behind, typed, with a comment per field; no torch here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

ALREADY_WRONG, SUCCESS, FAILED, INVALID = "already-wrong", "success", "failed", "invalid"
STATUSES = (ALREADY_WRONG, SUCCESS, FAILED, INVALID)
"""How an image ended, in the order of ``almakit.core.Status``; their sentences are there."""
ROBUST = "robust"
"""What FAILED is called of an attack at a fixed epsilon: it has not failed, the image is robust at that radius as far as the attack can tell."""

MEASURED = ("l0", "l1", "l2", "linf", "ssim", "ciede2000")
"""The distances every stored image is measured in, where they are defined for it."""

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""How a text begins that a spreadsheet would work out."""

Top = tuple[tuple[int, float], ...]
"""Classes with their softmax probabilities, the largest first; of a segmentation the shares of the pixels they are given."""

Tally = tuple[tuple[int, int, int, int], ...]
"""For each class that occurs among an image's labelled pixels: (class, pixels labelled so, pixels predicted so, pixels that are both)."""


@dataclass(frozen=True)
class AttackInfo:
    """One attack of a run."""

    index: int  # its place in the run's list, from 0; the key of its rows
    text: str  # the canonical text, e.g. "alma(distance=l2, steps=100)"; settings at their defaults are left out
    title: str  # the method's name for people, e.g. "ALMA"
    distance: str  # the distance it minimises or bounds, e.g. "l2"
    minimal: bool  # true: looks for the smallest perturbation; false: works at a fixed epsilon
    targeted: bool  # true: towards a class; false: away from the label
    paper: str  # where the method is from
    cost: str  # what a step costs, in words
    settings: dict[str, Any]  # every setting with its value, defaults included


@dataclass(frozen=True)
class ImageInfo:
    """One clean image of a run."""

    index: int  # its place in the run, from 0
    id: str  # the data set's name for it
    sha256: str  # of its float32 values: what was attacked
    label: int  # the true class
    target: int | None  # the class that targeted attacks aim at; None: untargeted, or all others in turn
    chunk: int  # the chunk of the grid it belongs to
    prediction: int  # the class the model gives the clean image, -1 where its logits are not finite
    top: Top  # the model's leading classes for the clean image
    pixels: Tally | None = None  # segmentation: how its labelled pixels are classified; label is then 0 and says nothing

    @property
    def correct(self) -> bool:
        """Whether the model is right about the image; of a segmentation about most of its pixels."""
        return self.prediction == self.label if self.pixels is None else wrong_pixels(self.pixels) < 0.5


@dataclass(frozen=True)
class Record:
    """What one attack did to one image, and what the verdict said of the image it left."""

    attack: int  # AttackInfo.index
    image: int  # ImageInfo.index
    target: int | None  # the class aimed at, None for untargeted attacks
    status: str  # one of STATUSES, as the attack says
    reason: str | None  # why nothing was found, a sentence; None for successes
    distance: float  # in the attack's distance, as the attack says: 0 where already wrong, inf where nothing was found
    forwards: int  # model passes this image took
    backwards: int  # gradient passes this image took
    # From here on the verdict's: measured again on the stored image, which for an already wrong image is the clean one.
    prediction: int | None = None  # the class of the stored image, None where nothing was found
    top: Top = ()  # the leading classes of the stored image
    fooled: bool = False  # the stored image reaches the goal: fresh forward, other batch size, full precision
    measured: float | None = None  # the attack's distance, measured on the stored image
    measures: dict[str, float | None] = field(
        default_factory=dict
    )  # MEASURED -> distance of the stored image, None: not defined
    fooled_8bit: bool = False  # the stored image still reaches the goal after rounding to 8 bits
    measured_8bit: float | None = None  # the attack's distance after rounding, from the clean image as it is
    slot: int | None = None  # its row in the chunk's file of adversarial images, None where none is stored
    file: str | None = None  # that file, relative to the run folder
    seconds: float = 0.0  # wall time of its chunk divided by the images in it
    pixels: Tally | None = None  # segmentation, verdict: how the labelled pixels of the stored image are classified
    round: int = 0  # with targets=all: in which round over the chunk its target's turn came; as stored

    @property
    def attacked(self) -> bool:
        """Whether there was anything to do: the goal was not already reached on the clean image."""
        return self.status != ALREADY_WRONG

    @property
    def claimed(self) -> bool:
        """Whether the attack says the goal is reached."""
        return self.status in (ALREADY_WRONG, SUCCESS)

    @property
    def refuted(self) -> bool:
        """Whether the verdict contradicts the attack's claim."""
        return self.claimed and not self.fooled

    @property
    def verified(self) -> float:
        """The distance that counts: the stored image's where the verdict confirms it, 0 where it was wrong from the start, inf otherwise."""
        if not (self.claimed and self.fooled):
            return math.inf
        return 0.0 if self.status == ALREADY_WRONG or self.measured is None else self.measured

    @property
    def verified_8bit(self) -> float:
        """The same after rounding to 8 bits; 0 for an image that was wrong from the start and still is."""
        if not (self.claimed and self.fooled_8bit):
            return math.inf
        return 0.0 if self.status == ALREADY_WRONG or self.measured_8bit is None else self.measured_8bit


@dataclass(frozen=True)
class Trace:
    """The course of one attack on one image: equally long lists by name (step, distance, and what the attack records)."""

    attack: int
    image: int
    target: int | None
    values: dict[str, list[Any]]


def wrong_pixels(*tallies: Tally) -> float:
    """The share of labelled pixels with another class than theirs, over one image (APSR) or several."""
    labelled = sum(row[1] for tally in tallies for row in tally)
    return 1 - sum(row[3] for tally in tallies for row in tally) / labelled if labelled else math.nan


def mean_iou(tallies: Iterable[Tally]) -> float:
    """mIoU: the mean over the classes that are labelled anywhere of both / (labelled + predicted - both), each summed over all images."""
    sums: dict[int, list[int]] = {}
    for tally in tallies:
        for one, *counts in tally:
            sums[one] = [a + b for a, b in zip(sums.get(one, [0, 0, 0]), counts, strict=True)]
    shares = [both / (labelled + predicted - both) for labelled, predicted, both in sums.values() if labelled]
    return sum(shares) / len(shares) if shares else math.nan


def outcome(record: Record, info: AttackInfo) -> str:
    """A record's status for people and tables."""
    return ROBUST if record.status == FAILED and not info.minimal else record.status


def reach_of(info: AttackInfo, distances: Iterable[float]) -> float:
    """The radius an attack at a fixed epsilon looked in, infinite for one that looks for the smallest change.

    Of several attacks in one the largest; where an attack does not say its radius, the largest of the ``distances`` it found.
    """
    if info.minimal:
        return math.inf
    given = list(_epsilons(info.settings))
    return max(given) if given else float(max((value for value in distances if math.isfinite(value)), default=0.0))


def _epsilons(settings: Any) -> Iterator[float]:
    if isinstance(settings, list):
        for item in settings:
            yield from _epsilons(item)
    elif isinstance(settings, dict):
        if isinstance(own := settings.get("epsilon"), (int, float)):
            yield float(own)
        for inner in settings.values():
            yield from _epsilons(inner)


def plain_cell(value: Any) -> Any:
    """A cell that a spreadsheet takes for text and not for a formula; numbers stay numbers.

    A carriage return becomes a space: csv does not quote it, and readers begin a new row there.
    """
    if not isinstance(value, str):
        return value
    return f"{chr(39) if value.startswith(FORMULA) else ''}{value}".replace("\r", " ")
