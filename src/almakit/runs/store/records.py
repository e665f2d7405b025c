"""The rows of a run's database as dataclasses, with a comment per field. No torch here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from .fields import Stored
from .fields import Tally as Tally
from .fields import Top as Top

PIXELS = "JSON [[class, pixels labelled so, predicted so, both], ...]"

ALREADY_WRONG, SUCCESS, FAILED, INVALID = "already-wrong", "success", "failed", "invalid"
STATUSES = (ALREADY_WRONG, SUCCESS, FAILED, INVALID)
"""The statuses of images, in the order of ``almakit.core.Status``, which describes them."""
ROBUST = "robust"
"""The name of FAILED for an attack at a fixed epsilon: it has not failed, the image is robust at this radius as far as
the attack can tell."""

MEASURES = (
    "l0: verdict: values that differ",
    "l1: verdict: sum of absolute differences",
    "l2: verdict: Euclidean norm",
    "linf: verdict: largest absolute difference",
    "ssim: verdict: 1 - SSIM; NULL: not defined for these images, or nothing found",
    "ciede2000: verdict: l2 norm of the colour differences; NULL likewise",
)
MEASURED = tuple(text.partition(":")[0] for text in MEASURES)
"""The distances that are measured for every stored image for which they are defined."""

PASSES = (10, 30, 100, 300, 1000)
"""Numbers of forwards after which a record stores the best distance."""
COURSE = tuple(
    f"best_{count}: attacks.distance of the nearest point after {count} forwards; NULL: nothing found by then, or not "
    "kept"
    for count in PASSES
)

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""First characters of texts that a spreadsheet would evaluate."""


@dataclass(frozen=True)
class AttackInfo:
    """One attack of a run."""

    index: Annotated[int, Stored("place in the run's list, from 0", name="attack")]
    text: Annotated[
        str, Stored("canonical, e.g. alma(distance=l2, steps=100); settings at their defaults are left out")
    ]
    title: Annotated[str, Stored("the method's name for people, e.g. ALMA")]
    distance: Annotated[str, Stored("what it minimises or bounds, e.g. l2")]
    minimal: Annotated[bool, Stored("1: smallest perturbation, 0: fixed epsilon")]
    targeted: Annotated[bool, Stored("1: towards a class, 0: away from the label")]
    paper: Annotated[str, Stored("where the method is from")]
    cost: Annotated[str, Stored("what a step costs, in words")]
    settings: Annotated[dict[str, Any], Stored("JSON of all settings, defaults included")]


@dataclass(frozen=True)
class ImageInfo:
    """One clean image of a run."""

    index: Annotated[int, Stored("place in the run, from 0", name="image")]
    id: Annotated[str, Stored("the data set's name for it")]
    sha256: Annotated[str, Stored("of its float32 values, little-endian, in memory order (C, H, W): what was attacked")]
    label: Annotated[int, Stored("true class")]
    target: Annotated[
        int | None, Stored("class that targeted attacks aim at; -1: untargeted, or all others in turn", empty=-1)
    ]
    chunk: Annotated[
        int, Stored("place in the chunk grid; its row in originals/<chunk> is image - first image of the chunk")
    ]
    prediction: Annotated[int, Stored("the model's class for it; -1: logits not finite")]
    top: Annotated[Top, Stored("JSON [[class, probability], ...], the largest first")]
    pixels: Annotated[Tally | None, Stored(f"segmentation: {PIXELS}, label is then 0; NULL: one class per image")] = (
        None
    )

    @property
    def content(self) -> tuple[str, int]:
        """Hash and label, by which images of different runs are matched."""
        return self.sha256, self.label

    @property
    def correct(self) -> bool:
        """Whether the model classifies the image correctly; for segmentation, most of its pixels."""
        return self.prediction == self.label if self.pixels is None else wrong_pixels(self.pixels) < 0.5


def _not_kept() -> dict[str, float | None]:
    return {f"best_{count}": None for count in PASSES}


@dataclass(frozen=True)
class Record:
    """The result of one attack on one image, and the verdict on the stored adversarial image."""

    attack: Annotated[int, Stored("attacks.attack")]
    image: Annotated[int, Stored("images.image")]
    target: Annotated[int | None, Stored("target class; -1: untargeted", empty=-1)]
    status: Annotated[str, Stored("already-wrong, success, failed or invalid, as the attack says")]
    reason: Annotated[str | None, Stored("why the attack failed, or a remark about the success")]
    distance: Annotated[
        float,
        Stored("in attacks.distance, as the attack says; 0: already wrong; NULL: nothing found, counts as infinite"),
    ]
    forwards: Annotated[int, Stored("model passes of this image")]
    backwards: Annotated[int, Stored("gradient passes of this image")]
    # From the verdict: measured on the stored image, which is the clean one if that was already misclassified.
    prediction: Annotated[int | None, Stored("verdict on the stored image: its class; NULL: nothing found")] = None
    top: Annotated[Top, Stored("verdict: JSON [[class, probability], ...] of the stored image")] = ()
    fooled: Annotated[
        bool,
        Stored("verdict: 1 if the stored image reaches the goal (fresh forward, other batch size, full precision)"),
    ] = False
    measured: Annotated[float | None, Stored("verdict: attacks.distance of the stored image")] = None
    measures: Annotated[dict[str, float | None], Stored("verdict: distances of the stored image", columns=MEASURES)] = (
        field(default_factory=dict)
    )
    fooled_8bit: Annotated[bool, Stored("verdict: 1 if it still reaches the goal after rounding to 8 bits")] = False
    measured_8bit: Annotated[
        float | None, Stored("verdict: attacks.distance after rounding, from the clean image as it is")
    ] = None
    slot: Annotated[int | None, Stored("row in the chunk's file; NULL: no image stored")] = None
    round: Annotated[
        int, Stored("chunks.round: with attack and images.chunk it says which chunk, and so which file, it belongs to")
    ] = 0
    course: Annotated[dict[str, float | None], Stored("best distances so far", columns=COURSE)] = field(
        default_factory=_not_kept
    )
    pixels: Annotated[Tally | None, Stored(f"verdict, segmentation: {PIXELS} of the stored image")] = None
    surrogate_forwards: Annotated[
        int | None, Stored("passes of the surrogate, whose are all backwards then; NULL: no surrogate")
    ] = None
    vote: Annotated[
        float | None,
        Stored(
            "verdict, random model: share of fresh passes in which the stored image reaches the goal; NULL: one pass "
            "decides"
        ),
    ] = None
    distance_gradients: Annotated[int | None, Stored("gradients of the distance; NULL: an lp norm, or not kept")] = None
    # Stored in the row of the chunk.
    file: str | None = None  # the file of adversarial images, relative to the run folder
    seconds: float = 0.0  # wall time of the chunk divided by the images in it

    @property
    def attacked(self) -> bool:
        """Whether the image was attacked: the clean image does not reach the goal."""
        return self.status != ALREADY_WRONG

    @property
    def claimed(self) -> bool:
        """Whether the attack reports a success."""
        return self.status in (ALREADY_WRONG, SUCCESS)

    @property
    def refuted(self) -> bool:
        """Whether the verdict contradicts the attack's claim."""
        return self.claimed and not self.fooled

    @property
    def verified(self) -> float:
        """The verified distance: that of the stored image if the verdict confirms the success, 0 if the clean image is
        misclassified, otherwise infinite."""
        if not (self.claimed and self.fooled):
            return math.inf
        return 0.0 if self.status == ALREADY_WRONG or self.measured is None else self.measured

    @property
    def verified_8bit(self) -> float:
        """The same after rounding to 8 bits; 0 if the clean image is misclassified also after rounding."""
        if not (self.claimed and self.fooled_8bit):
            return math.inf
        return 0.0 if self.status == ALREADY_WRONG or self.measured_8bit is None else self.measured_8bit


@dataclass(frozen=True)
class Trace:
    """The history of one attack on one image: lists of equal length by name (step, distance, and values that the attack
    records)."""

    attack: Annotated[int, Stored("attacks.attack")]
    image: Annotated[int, Stored("images.image")]
    target: Annotated[int | None, Stored("target class; -1: untargeted", empty=-1)]
    values: Annotated[dict[str, list[Any]], Stored("JSON {name: [value per step]}; null: not finite", name="data")]


CLEAN, ATTACK = "clean", "attack"


@dataclass(frozen=True)
class ChunkKey:
    """A unit of work: the clean pass over a chunk (attack -1), or an attack on it. ``round`` counts the targets of
    targets=all."""

    kind: Annotated[str, Stored("clean or attack")]
    attack: Annotated[int, Stored("attacks.attack; -1 for kind clean")]
    chunk: Annotated[int, Stored("place in the chunk grid")]
    round: Annotated[int, Stored("0; with targets=all one round for each other class")] = 0


@dataclass(frozen=True)
class ChunkRow:
    """A finished unit of work and its file."""

    key: ChunkKey
    file: Annotated[str | None, Stored("relative to the run folder; NULL: no image to store")]
    sha256: Annotated[str | None, Stored("of the file")]
    images: Annotated[int, Stored("images in the chunk")]
    batch: Annotated[int, Stored("images sent through the model at a time (fewer after running out of memory)")]
    seconds: Annotated[float, Stored("wall time of attack and verdict")]
    session: Annotated[int, Stored("sessions.session that did it")] = 0


@dataclass(frozen=True)
class FailureRow:
    """A unit of work that was given up, and the reason."""

    key: ChunkKey
    images: Annotated[int, Stored("images in the chunk: they have no results")]
    tries: Annotated[int, Stored("number of attempts")]
    reason: Annotated[str, Stored("reason of the last failure")]
    session: Annotated[int, Stored("sessions.session that gave it up")] = 0


class FindingRow(NamedTuple):
    """A finding of preflight before the run."""

    name: Annotated[str, Stored("e.g. low-clean-accuracy; what --allow takes")]
    severity: Annotated[str, Stored("refuse, warn or note")]
    sentence: Annotated[str, Stored("what was noticed")]
    way_out: Annotated[str, Stored("what to do about it")]


@dataclass(frozen=True)
class SessionRow:
    """A session: one start of the program for this run."""

    session: Annotated[int, Stored("number, from 1")]
    started: Annotated[str, Stored("UTC, ISO 8601")]
    ended: Annotated[str | None, Stored("UTC; NULL: still running, or killed")]
    outcome: Annotated[str | None, Stored("done, interrupted, or the error's sentence")]
    environment: Annotated[dict[str, Any], Stored("JSON: versions, git commit, hardware, threads")]


def wrong_pixels(*tallies: Tally) -> float:
    """The share of labelled pixels that are misclassified, over one image (APSR) or several."""
    labelled = sum(row[1] for tally in tallies for row in tally)
    return 1 - sum(row[3] for tally in tallies for row in tally) / labelled if labelled else math.nan


def mean_iou(tallies: Iterable[Tally]) -> float:
    """mIoU: the mean of both / (labelled + predicted - both), summed over all images, over the classes that occur in
    the labels."""
    sums: dict[int, list[int]] = {}
    for tally in tallies:
        for one, *counts in tally:
            sums[one] = [a + b for a, b in zip(sums.get(one, [0, 0, 0]), counts, strict=True)]
    shares = [both / (labelled + predicted - both) for labelled, predicted, both in sums.values() if labelled]
    return sum(shares) / len(shares) if shares else math.nan


def outcome(record: Record, info: AttackInfo) -> str:
    """A record's status as tables show it."""
    return ROBUST if record.status == FAILED and not info.minimal else record.status


def reach_of(info: AttackInfo, distances: Iterable[float]) -> float:
    """The radius of an attack at a fixed epsilon; infinite for an attack that minimises the distance.

    For several attacks in one, the largest radius. If an attack does not state its radius, the largest of its
    ``distances``.
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
    """A cell that a spreadsheet reads as text, not as a formula; numbers stay numbers.

    A carriage return becomes a space, because csv does not quote it and readers would start a new row.
    """
    if not isinstance(value, str):
        return value
    return f"{chr(39) if value.startswith(FORMULA) else ''}{value}".replace("\r", " ")
