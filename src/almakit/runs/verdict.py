"""The judgement of what was stored. It shares no code with the attacks: its own forward passes, its own arithmetic, its
own decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..distances import get
from ..errors import AlmakitError
from .model import Subject
from .store.records import MEASURED, Tally, Top, wrong_pixels

TOP = 5


@dataclass(frozen=True)
class Judgement:
    """What the verdict says of one stored image."""

    prediction: int  # -1 where the logits are not finite
    top: Top
    fooled: bool
    measured: float | None
    measures: dict[str, float | None]
    fooled_8bit: bool
    measured_8bit: float | None
    pixels: Tally | None = None  # segmentation: how its labelled pixels are classified,
    classes: Tensor | None = None  # and the class of every pixel (H, W)


Measure = Callable[[Tensor, Tensor], Tensor]


class Aim(Protocol):
    """What the verdict uses of a goal that is not another class: its definition is the one thing that it shares with
    the attack."""

    def for_labels(self, labels: Tensor | None, targets: Tensor | None) -> Aim: ...

    def fit(self, outputs: Tensor, rows: Tensor) -> Aim: ...

    def margin(self, outputs: Tensor) -> Tensor: ...


def other_batch_size(batch: int) -> int:
    """A batch size that is not the attack's."""
    return batch // 2 + 1 if batch > 2 else batch + 1


def to_8_bits(images: Tensor) -> Tensor:
    """``images`` (B, ...) in [0, 1] as an 8-bit file would give them back."""
    return (images * 255).round() / 255


def judge(
    subject: Subject,
    x: Tensor,
    stored: Tensor,
    labels: list[int] | Tensor,
    targets: list[int] | None,
    distance: str,
    measure: Measure | None,
    batch: int,
    share: float = 1.0,
    goal: Aim | None = None,
) -> list[Judgement]:
    """Judges the images ``stored`` (B, ...) made of the clean ``x`` (B, ...): with ``labels`` (B) left, or ``targets``
    (B) reached; with label maps (B, H, W) left by a ``share`` of their labelled pixels; with a ``goal`` where its
    margin is negative, the one thing that is the attack's as well.

    ``distance`` names what the attack minimised and ``measure`` computes it where it is none of MEASURED; ``batch`` is
    the attack's batch size, which is avoided. The images and their 8-bit versions go through the model in full
    precision, in one stream.
    """
    if not len(stored):
        return []
    rounded = to_8_bits(stored)
    logits, maps = subject.answers(torch.cat([stored, rounded]), other_batch_size(batch))
    counted = None if maps is None else tallies(maps, torch.cat([torch.as_tensor(labels)] * 2), logits.shape[1])
    predicted, leading = predictions(logits), top_classes(logits[: len(stored)])
    if measure is not None:
        # Distances with a network of their own belong on the model's device.
        own, device = measure, subject.device
        measure = lambda a, b: own(a.to(device), b.to(device))  # noqa: E731
    exact, coarse = _distances(x, stored, distance, measure), _distances(x, rounded, distance, measure, only=distance)
    met = None if goal is None else _met(goal, subject.answers(x, other_batch_size(batch))[0], logits, labels, targets)
    judgements = []
    for row in range(len(stored)):
        wanted = int(labels[row]) if targets is None and counted is None else 0 if targets is None else targets[row]
        now, then = predicted[row], predicted[len(stored) + row]
        reached = [
            met[place]
            if met is not None
            else _reached(found, wanted, targets is not None)
            if counted is None
            else found >= 0 and wrong_pixels(counted[place]) >= share
            for place, found in ((row, now), (len(stored) + row, then))
        ]
        judgements.append(
            Judgement(
                now,
                leading[row],
                reached[0],
                exact[distance][row],
                {name: exact[name][row] for name in MEASURED},
                reached[1],
                coarse[distance][row],
                None if counted is None else counted[row],
                None if maps is None else maps[row],
            )
        )
    return judgements


def _met(goal: Aim, clean: Tensor, logits: Tensor, labels: list[int] | Tensor, targets: list[int] | None) -> list[bool]:
    """Whether each row of ``logits`` (2 B, K), the stored images and their 8-bit versions, reaches the goal, fitted to
    the ``clean`` logits (B, K)."""
    bound = goal.for_labels(torch.as_tensor(labels), None if targets is None else torch.as_tensor(targets)).fit(
        clean, torch.arange(len(clean))
    )
    margin = torch.cat([bound.margin(torch.nan_to_num(part)) for part in logits.split(len(clean))])
    return (torch.isfinite(logits).all(1) & (margin < 0)).tolist()


def predictions(logits: Tensor) -> list[int]:
    """The largest logit's class for each row of ``logits`` (B, K), -1 where a logit is not finite."""
    finite = torch.isfinite(logits).all(1)
    return torch.where(finite, torch.nan_to_num(logits).argmax(1), -1).tolist()


def top_classes(logits: Tensor) -> list[Top]:
    """The leading classes of each row of ``logits`` (B, K) with their softmax probabilities, to six places."""
    finite = torch.isfinite(logits).all(1)
    values, classes = torch.softmax(torch.nan_to_num(logits), dim=1).topk(min(TOP, logits.shape[1]), dim=1)
    return [
        tuple((label, round(value, 6)) for label, value in zip(row, chances, strict=True)) if good else ()
        for row, chances, good in zip(classes.tolist(), values.tolist(), finite.tolist(), strict=True)
    ]


def tallies(predicted: Tensor, maps: Tensor, classes: int) -> list[Tally]:
    """How the labelled pixels of each image are classified: ``predicted`` and ``maps`` (B, H, W); labels that are none
    of the ``classes`` do not count."""
    found = []
    for guess, truth in zip(predicted.flatten(1), maps.flatten(1), strict=True):
        counted = (truth >= 0) & (truth < classes)
        guess, truth = guess[counted].clamp_min(0), truth[counted]
        labelled, given = (torch.bincount(values, minlength=classes).tolist() for values in (truth, guess))
        both = torch.bincount(truth[truth == guess], minlength=classes).tolist()
        found.append(
            tuple((one, labelled[one], given[one], both[one]) for one in range(classes) if labelled[one] or given[one])
        )
    return found


def _reached(prediction: int, goal: int, targeted: bool) -> bool:
    return prediction >= 0 and (prediction == goal if targeted else prediction != goal)


def _distances(
    x: Tensor, y: Tensor, distance: str, measure: Measure | None, only: str | None = None
) -> dict[str, list[float | None]]:
    """Distances of ``y`` (B, ...) to ``x`` (B, ...) by name, one per image; None where one is not defined for such
    images."""
    delta = (y.double() - x.double()).abs().flatten(1)
    plain = {
        "l0": lambda: (delta > 0).sum(1),
        "l1": lambda: delta.sum(1),
        "l2": lambda: delta.square().sum(1).sqrt(),
        "linf": lambda: delta.amax(1),
    }
    wanted = [only] if only else list(dict.fromkeys([*MEASURED, distance]))
    found: dict[str, list[float | None]] = {}
    for name in wanted:
        if name in plain:
            found[name] = plain[name]().double().tolist()
        elif name == distance and measure is not None:
            found[name] = _plain_floats(measure, x, y)
        else:
            found[name] = _perceptual(name, x, y)
    return found


def _perceptual(name: str, x: Tensor, y: Tensor) -> list[float | None]:
    """SSIM and CIEDE2000 are for colour images here; where the distance itself says it is not defined, there is
    none."""
    if x.ndim != 4 or x.shape[1] != 3:
        return [None] * len(x)
    try:
        return _plain_floats(get(name), x, y)
    except AlmakitError:
        return [None] * len(x)


@torch.no_grad()
def _plain_floats(measure: Measure, x: Tensor, y: Tensor, size: int = 64) -> list[float | None]:
    values = torch.cat([measure(a, b) for a, b in zip(x.split(size), y.split(size), strict=True)]).double().cpu()
    return [value if value == value and abs(value) != float("inf") else None for value in values.tolist()]
