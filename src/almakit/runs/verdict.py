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
from .model import TINY, Subject, votes
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
    vote: float | None = None  # random model: the share of fresh passes in which it reaches the goal


Measure = Callable[[Tensor, Tensor], Tensor]


class Aim(Protocol):
    """What the verdict uses of a goal that is not another class: its definition is the one thing that it shares with
    the attack."""

    def for_labels(self, labels: Tensor | None, targets: Tensor | None) -> Aim: ...

    def fit(self, outputs: Tensor, rows: Tensor) -> Aim: ...

    def margin(self, outputs: Tensor) -> Tensor: ...


def other_batch_size(batch: int) -> int:
    """A batch size that is not the attack's."""
    return batch + 1


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
    # Values with units of their own are no image files.
    rounded = to_8_bits(stored) if subject.features is None else stored
    said = _asked(subject, x, torch.cat([stored, rounded]), labels, targets, batch, share, goal)
    predicted, leading = predictions(said.logits), top_classes(said.logits[: len(stored)])
    if measure is not None:
        # Distances with a network of their own belong on the model's device.
        own, device = measure, subject.device
        measure = lambda a, b: own(a.to(device), b.to(device))  # noqa: E731
    exact, coarse = _distances(x, stored, distance, measure), _distances(x, rounded, distance, measure, only=distance)
    kept = [True] * len(x) if subject.features is None else subject.features.kept(stored.numpy(), x.numpy()).tolist()
    return [
        Judgement(
            predicted[row],
            leading[row],
            said.reached[row] and kept[row],
            exact[distance][row],
            {name: exact[name][row] for name in MEASURED},
            said.reached[len(stored) + row] and kept[row],
            coarse[distance][row],
            None if said.counted is None else said.counted[row],
            None if said.maps is None else said.maps[row],
            None if said.vote is None else said.vote[row],
        )
        for row in range(len(stored))
    ]


@dataclass(frozen=True, eq=False)
class _Said:
    """What the model says of images: logits (R, K), whether each reaches the goal, and what else there is to say."""

    logits: Tensor
    reached: list[bool]
    maps: Tensor | None = None
    counted: list[Tally] | None = None
    vote: list[float] | None = None


def _asked(
    subject: Subject,
    x: Tensor,
    points: Tensor,
    labels: list[int] | Tensor,
    targets: list[int] | None,
    batch: int,
    share: float,
    goal: Aim | None,
) -> _Said:
    """Asks about ``points`` (2 B, ...): those made of the clean ``x`` (B, ...), then their 8-bit versions."""
    if subject.draws is not None:
        passes = [subject.passes(point, "verdict") for point in points]
        vote = _votes(subject, passes, x, labels, targets, goal)
        shares = torch.stack([votes(each).clamp_min(TINY).log() for each in passes])
        return _Said(shares, [part >= subject.draws.share for part in vote], vote=vote)
    if subject.aim is not None:
        size, truth = other_batch_size(batch), torch.as_tensor(labels)
        clean = subject.outputs(x, size)
        both = torch.cat([subject.met(subject.outputs(part, size), clean, truth) for part in points.split(len(x))])
        return _Said(both, [now == 1 for now in predictions(both)])
    logits, maps = subject.answers(points, other_batch_size(batch))
    if maps is not None:
        counted = tallies(maps, torch.cat([torch.as_tensor(labels)] * 2), logits.shape[1])
        found = zip(predictions(logits), counted, strict=True)
        return _Said(logits, [now >= 0 and wrong_pixels(tally) >= share for now, tally in found], maps, counted)
    if goal is not None:
        clean = subject.answers(x, other_batch_size(batch))[0]
        return _Said(logits, _met(goal, clean, logits, labels, targets))
    wanted = [int(label) for label in labels] if targets is None else targets
    reached = [
        _reached(now, goal, targets is not None)
        for now, goal in zip(predictions(logits), [*wanted, *wanted], strict=True)
    ]
    return _Said(logits, reached)


def _met(goal: Aim, clean: Tensor, logits: Tensor, labels: list[int] | Tensor, targets: list[int] | None) -> list[bool]:
    """Whether each row of ``logits`` (2 B, K), the stored images and their 8-bit versions, reaches the goal, fitted to
    the ``clean`` logits (B, K)."""
    bound = goal.for_labels(torch.as_tensor(labels), None if targets is None else torch.as_tensor(targets)).fit(
        clean, torch.arange(len(clean))
    )
    margin = torch.cat([bound.margin(torch.nan_to_num(part)) for part in logits.split(len(clean))])
    return (torch.isfinite(logits).all(1) & (margin < 0)).tolist()


def _votes(
    subject: Subject,
    passes: list[Tensor],
    x: Tensor,
    labels: list[int] | Tensor,
    targets: list[int] | None,
    goal: Aim | None,
) -> list[float]:
    """In which share of the ``passes`` (M, K) of each stored image, and of each 8-bit version after them, the goal is
    reached."""
    found = []
    for place, logits in enumerate(passes):
        row, finite, many = place % len(x), torch.isfinite(logits).all(1), len(logits)
        if goal is None:
            wanted = int(labels[row]) if targets is None else targets[row]
            hit = (logits.argmax(1) == wanted) == (targets is not None)
        else:
            aimed = None if targets is None else torch.full((many,), targets[row])
            bound = goal.for_labels(torch.full((many,), int(labels[row])), aimed)
            clean = subject.passes(x[row], "clean").mean(0).expand(many, -1)
            hit = bound.fit(clean, torch.arange(many)).margin(torch.nan_to_num(logits)) < 0
        found.append(float((finite & hit).double().mean()))
    return found


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
