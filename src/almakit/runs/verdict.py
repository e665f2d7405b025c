"""Judges stored images. It shares no code with the attacks: it has its own forward passes, arithmetic and success
criterion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..data.dataset import image_sha256
from ..distances import get
from ..errors import AlmakitError
from ..goals.pixels import PixelGoal
from .failures import Corrupt
from .folder import RunFolder
from .model import TINY, Subject, votes
from .store.fields import finite
from .store.records import MEASURED, AttackInfo, Record, Tally, Top, wrong_pixels

TOP = 5
Measure = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Judgement:
    """The verdict on one stored image."""

    prediction: int  # -1 where the logits are not finite
    top: Top
    fooled: bool
    measured: float | None
    measures: dict[str, float | None]
    fooled_8bit: bool
    measured_8bit: float | None
    pixels: Tally | None  # segmentation: counts of its labelled pixels by class
    vote: float | None  # random model: share of the votes in which it reaches the goal


def judge(
    subject: Subject,
    x: Tensor,
    stored: Tensor,
    labels: list[int] | Tensor,
    targets: list[int] | None,
    distance: str,
    measure: Measure | None,
    batch: int,
) -> list[Judgement]:
    """Judge stored images and their 8-bit versions with a full-precision pass of the model.

    Args:
        subject: the model with its goal, whose definition is the only code shared with the attack.
        x: clean images, shape (B, ...).
        stored: their adversarial images, shape (B, ...).
        labels: true classes, or label maps, shape (B, H, W).
        targets: target classes, one per image.
        distance: name of the distance that the attack minimised.
        measure: computes this distance if it is not in ``MEASURED``.
        batch: the attack's batch size; another one is used.

    Returns:
        One judgement per image.
    """
    count = len(stored)
    if not count:
        return []
    # rounding to 8 bits applies to images only
    rounded = (stored * 255).round() / 255 if subject.features is None else stored
    logits, reached, pixels, votes = _answers(subject, x, torch.cat([stored, rounded]), labels, targets, batch + 1)
    exact = _distances(x, stored, dict.fromkeys([*MEASURED, distance]), distance, measure, subject.device)
    coarse = _distances(x, rounded, [distance], distance, measure, subject.device)
    kept = [True] * count if subject.features is None else subject.features.kept(stored.numpy(), x.numpy()).tolist()
    predicted, leading = predictions(logits[:count]), top_classes(logits[:count])
    return [
        Judgement(
            predicted[row],
            leading[row],
            reached[row] and kept[row],
            exact[distance][row],
            {name: exact[name][row] for name in MEASURED},
            reached[count + row] and kept[row],
            coarse[distance][row],
            pixels[row] if pixels else None,
            votes[row] if votes else None,
        )
        for row in range(count)
    ]


def _answers(
    subject: Subject, x: Tensor, points: Tensor, labels: list[int] | Tensor, targets: list[int] | None, size: int
) -> tuple[Tensor, list[bool], list[Tally], list[float]]:
    """The model's answers to ``points`` (2 B, ...): the adversarial images of the clean ``x`` (B, ...), then their
    8-bit versions.

    Returns logits (2 B, K), whether each point reaches the goal, and for segmentation the counts of its pixels, for a
    random model the share of the votes.
    """
    truth, aimed = torch.as_tensor(labels), None if targets is None else torch.as_tensor(targets)
    if subject.draws is not None:
        passes = [subject.passes(point, "verdict") for point in points]
        vote = [_vote(subject, logits, x, place % len(x), truth, aimed) for place, logits in enumerate(passes)]
        shares = torch.stack([votes(each).clamp_min(TINY).log() for each in passes])
        return shares, [part >= subject.draws.share for part in vote], [], vote
    if subject.aimed:
        clean = subject.outputs(x, size)
        both = torch.cat([subject.met(subject.outputs(part, size), clean, truth) for part in points.split(len(x))])
        return both, [now == 1 for now in predictions(both)], [], []
    logits, maps = subject.answers(points, size)
    if isinstance(subject.goal, PixelGoal) and maps is not None:
        counted, share = tallies(maps, torch.cat([truth] * 2), logits.shape[1]), subject.goal.share
        found = zip(predictions(logits), counted, strict=True)
        return logits, [now >= 0 and wrong_pixels(tally) >= share for now, tally in found], counted, []
    clean = logits if subject.goal is None else subject.answers(x, size)[0]
    met = [_met(subject, clean, part, truth, aimed) for part in logits.split(len(x))]
    return logits, torch.cat(met).tolist(), [], []


def _met(subject: Subject, clean: Tensor, logits: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
    """Whether ``logits`` (B, K) reach the goal, which is fitted to the ``clean`` logits (B, K); shape (B,)."""
    finite, logits = torch.isfinite(logits).all(1), torch.nan_to_num(logits)
    if subject.goal is None:
        now = logits.argmax(1)
        return finite & (now != labels if targets is None else now == targets)
    bound = subject.goal.for_labels(labels, targets).fit(clean, torch.arange(len(clean)))
    return finite & (bound.margin(logits) < 0)


def _vote(subject: Subject, logits: Tensor, x: Tensor, row: int, labels: Tensor, targets: Tensor | None) -> float:
    """The share of the passes ``logits`` (M, K) of an adversarial image of ``x[row]`` in which the goal is reached."""
    many = len(logits)
    clean = logits if subject.goal is None else subject.passes(x[row], "clean").mean(0).expand(many, -1)
    towards = None if targets is None else targets[row].expand(many)
    return float(_met(subject, clean, logits, labels[row].expand(many), towards).double().mean())


def judge_records(
    run: RunFolder,
    info: AttackInfo,
    records: Sequence[Record],
    subject: Subject,
    batch: int,
    measure: Measure | None = None,
    clean: bool = False,
) -> list[Judgement]:
    """The verdict on the stored images of records of one attack, or on their ``clean`` images."""
    if not records:
        return []
    x, truth = originals(run, [record.image for record in records])
    stored = x if clean else torch.from_numpy(np.array(run.adversarials(records))).to(subject.working)
    labels = [run.image[record.image].label for record in records] if truth is None else truth
    targets = [int(record.target or 0) for record in records] if info.targeted else None
    return judge(subject, x.to(subject.working), stored, labels, targets, info.distance, measure, batch)


def originals(run: RunFolder, indices: list[int]) -> tuple[Tensor, Tensor | None]:
    """The clean images (B, ...) of a run with their label maps (B, H, W) or other labels (B, ...), if they have any.
    Raises an error if a hash is not the recorded one."""
    images = torch.from_numpy(np.array(run.originals(indices)))
    maps = torch.from_numpy(run.maps(indices).astype(np.int64)) if run.segmentation else None
    truths = torch.from_numpy(np.array(run.maps(indices, "truths"))) if run.aimed else None
    for row, (index, image) in enumerate(zip(indices, images, strict=True)):
        now = image_sha256(image, None if maps is None else maps[row], None if truths is None else truths[row])
        if now != run.image[index].sha256:
            raise Corrupt(f"the stored original of image {run.image[index].id} is not the image that was attacked.")
    return images, truths if maps is None else maps


def predictions(logits: Tensor) -> list[int]:
    """The class of the largest logit of each row of ``logits`` (B, K), -1 if a logit is not finite."""
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
    """For each image, counts of its labelled pixels by class, from ``predicted`` and ``maps`` (B, H, W). Labels that
    are not in ``classes`` do not count."""
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


def _distances(
    x: Tensor, y: Tensor, names: Iterable[str], own: str, measure: Measure | None, device: torch.device
) -> dict[str, list[float | None]]:
    """Distances from ``x`` (B, ...) to ``y`` (B, ...) by name, one per image; None if a distance is not defined for
    these images. ``measure`` computes the distance ``own``, on the model's ``device`` because it may contain a
    network."""
    delta = (y.double() - x.double()).abs().flatten(1)
    plain: dict[str, Callable[[], Tensor]] = {
        "l0": lambda: (delta > 0).sum(1),
        "l1": lambda: delta.sum(1),
        "l2": lambda: delta.square().sum(1).sqrt(),
        "linf": lambda: delta.amax(1),
    }
    found: dict[str, list[float | None]] = {}
    for name in names:
        found[name] = [None] * len(x)
        if name in plain:
            found[name] = plain[name]().double().tolist()
        elif name == own and measure is not None:
            found[name] = _measured(measure, x.to(device), y.to(device))
        elif x.ndim == 4 and x.shape[1] == 3:  # SSIM and CIEDE2000 of colour images that are large enough
            with suppress(AlmakitError):
                found[name] = _measured(get(name), x, y)
    return found


@torch.no_grad()
def _measured(measure: Measure, x: Tensor, y: Tensor, size: int = 64) -> list[float | None]:
    values = torch.cat([measure(a, b) for a, b in zip(x.split(size), y.split(size), strict=True)]).double().cpu()
    return [finite(value) for value in values.tolist()]
