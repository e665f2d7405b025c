"""Judging again, later: a run folder from what it stored, or any folder of images, with the model loaded afresh."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from ... import distances, goals
from ...core.oracle import borrowed
from ...data.dataset import Dataset, image_sha256
from ...errors import AlmakitError
from ...expression import parse
from ...goals.base import Goal
from ..failures import understood
from ..folder import RunFolder
from ..images import share_of
from ..model import Subject
from ..store.files import fault_of
from ..store.records import AttackInfo
from ..verdict import Measure, judge, predictions, tallies, top_classes
from .compare import DISTANCE, Differences, of_image, of_plan, of_record
from .derived import of_certificates, of_transfers
from .facts import of_folder
from .summary import Summarise, of_summary

NOT_CHECKED = (
    "Not checked, because only the run itself could see them: forwards, backwards and seconds (beyond their "
    "limits), gradients of the distance, reasons, courses, preflight."
)


@dataclass
class Verification:
    """What judging an attack's stored images again gave."""

    attack: str
    records: int = 0
    claimed: int = 0  # successes the attack reported, already wrong images included
    confirmed: int = 0  # of those, how many fool the model now
    confirmed_8bit: int = 0  # how many still do after rounding to 8 bits
    changed: int = 0  # images judged otherwise than when they were stored
    unmeasured: int = 0  # distances in a measure that almakit does not know here, which nobody can check
    differences: Differences = field(default_factory=Differences)

    @property
    def misreported(self) -> int:
        """Distances that are not the stored image's, by more than one part in a thousand."""
        return self.differences.found.get(DISTANCE, (0, ""))[0]

    @property
    def good(self) -> bool:
        """Whether every claim holds and every number that can be computed again is the stored one."""
        return self.confirmed == self.claimed and not (self.changed or self.differences)


@dataclass
class RunVerification:
    """What judging a whole run folder again gave: attack by attack, and of the clean images, certificates, transfers
    and facts of the folder."""

    attacks: list[Verification]
    folder: Differences
    not_checked: list[str]  # sentences about certificates and transfers that could not be computed again

    def __iter__(self) -> Iterator[Verification]:
        return iter(self.attacks)

    @property
    def good(self) -> bool:
        return not self.folder and all(found.good for found in self.attacks)

    def sentences(self) -> list[str]:
        """Every disagreement: which number, how often, an example."""
        return self.folder.sentences("the folder") + [
            said for found in self.attacks for said in found.differences.sentences(found.attack)
        ]


@dataclass
class FolderVerification:
    """What a model says of a folder of images."""

    images: int
    fooled: int  # not classified as their label, or with targets classified as their target
    wrong: list[tuple[str, int, int]]  # (id, label or target, prediction) of those that do not fool it


def damaged_files(run: RunFolder) -> list[str]:
    """A sentence for every file of a run folder that is not what was recorded."""
    return [f"{row.file} {fault}" for row in run.chunks if (fault := fault_of(run.folder, row))]


def verify_run(
    run: RunFolder,
    subject: Subject,
    batch_size: int | None = None,
    goal: object = None,
    summarise: Summarise | None = None,
) -> RunVerification:
    """Judges every stored image of a run again and compares all values that reports use. Damaged files and originals
    that do not match their hash raise.

    Args:
        run: the run folder.
        subject: its model, loaded again.
        batch_size: number of images in a forward pass, by default another one than the run's.
        goal: the run's own goal, if it has one.
        summarise: computes the content of ``summary.json``, which is not checked without it.
    """
    size, aim = batch_size or int(run.spec.batch_size), None if goal is None else goals.get(goal)
    held = all(finding["name"] != "randomness-elsewhere" for finding in run.findings)
    given, goal_of_run = subject, aim
    subject = replace(subject, maps=run.segmentation, held=held).with_features(run.features)
    if run.aimed:
        subject, aim = replace(subject, aim=aim), None
    with borrowed(subject.model), understood(run.folder):
        folder = Differences()
        clean = _verify_clean(run, subject, size, folder)
        of_folder(folder, run, subject.classes[0] if subject.classes else 0)
        found = [_verify_attack(run, info, subject, size, clean, aim) for info in run.attacks]
        not_checked = of_certificates(folder, run, subject) + of_transfers(folder, run, given, goal_of_run)
        not_checked += [] if summarise is None else of_summary(folder, run, summarise)
    return RunVerification(found, folder, not_checked)


def _verify_clean(run: RunFolder, subject: Subject, size: int, found: Differences) -> dict[int, Tensor]:
    """Asks about every clean image; returns its probabilities (K,) by index, NaN where the logits are not finite."""
    clean: dict[int, Tensor] = {}
    for begin in range(0, len(run.images), 256):
        part = run.images[begin : begin + 256]
        images, truth = _originals(run, [info.index for info in part])
        logits, maps = subject.answers(images, size + 2, truth if run.aimed else None)
        counted = [None] * len(part) if maps is None or truth is None else tallies(maps, truth, logits.shape[1])
        for info, row, prediction, top, tally in zip(
            part, logits, predictions(logits), top_classes(logits), counted, strict=True
        ):
            of_image(found, info, run, prediction, top, tally, row, subject.near)
            clean[info.index] = torch.softmax(row, 0)
    return clean


def _verify_attack(
    run: RunFolder, info: AttackInfo, subject: Subject, size: int, clean: dict[int, Tensor], goal: Goal | None
) -> Verification:
    found = Verification(info.text)
    records = run.records_of(info.index)
    found.records = len(records)
    measure, share = _measure(info), share_of(run.spec.goal) if run.segmentation else 1.0
    for record in records:
        of_plan(found.differences, record, run, run.image[record.image], clean[record.image], subject.near)
        if not record.claimed:
            of_record(found.differences, record, info, run.image[record.image], None, True, subject.near)
    claimed = [record for record in records if record.claimed]
    for begin in range(0, len(claimed), 256):
        part = claimed[begin : begin + 256]
        x, truth = _originals(run, [record.image for record in part])
        x = x.to(subject.working)
        own = [row for row, record in enumerate(part) if record.slot is not None]
        stored = x.clone()
        if own:
            points = torch.from_numpy(np.array(run.adversarials([part[row] for row in own])))
            # The images are stored as they came, the points in the precision of the run, which may be the higher one.
            stored = x.to(points.dtype).index_copy(0, torch.tensor(own), points)
        labels = [run.image[record.image].label for record in part] if truth is None else truth
        targets = [int(record.target or 0) for record in part] if info.targeted else None
        # One image more than last time: another batch size than the attack's and than the first verdict's.
        for record, verdict in zip(
            part, judge(subject, x, stored, labels, targets, info.distance, measure, size + 2, share, goal), strict=True
        ):
            found.claimed += 1
            found.confirmed += verdict.fooled
            found.confirmed_8bit += verdict.fooled_8bit
            found.changed += (verdict.fooled, verdict.fooled_8bit) != (record.fooled, record.fooled_8bit)
            known = measure is not None or verdict.measured is not None
            found.unmeasured += not known
            of_record(found.differences, record, info, run.image[record.image], verdict, known, subject.near)
    return found


def _originals(run: RunFolder, indices: list[int]) -> tuple[Tensor, Tensor | None]:
    """The clean images (B, ...), and of a segmentation their label maps (B, H, W), or their labels (B, ...) of another
    kind, which must have their recorded hashes."""
    images = torch.from_numpy(np.array(run.originals(indices)))
    maps = torch.from_numpy(run.maps(indices).astype(np.int64)) if run.segmentation else None
    truths = torch.from_numpy(np.array(run.maps(indices, "truths"))) if run.aimed else None
    for row, (index, image) in enumerate(zip(indices, images, strict=True)):
        seen = image_sha256(image, None if maps is None else maps[row], None if truths is None else truths[row])
        if seen != run.image[index].sha256:
            raise AlmakitError(
                f"the stored original of image {run.image[index].id} is not the image that was attacked."
            )
    return images, truths if maps is None else maps


def _measure(info: AttackInfo) -> Measure | None:
    """The distance a record names. Its attack's text is parsed and never built: a folder is data, and a text may name
    code."""
    try:
        parse(info.text)
        return distances.get(info.distance)
    except AlmakitError:
        return None  # an attack or distance that only a Python session had: the plain distances are still checked


def verify_images(dataset: Dataset, subject: Subject, batch_size: int = 64) -> FolderVerification:
    """What the model says of images with labels (and, where the data name them, targets)."""
    fooled, wrong = 0, []
    with borrowed(subject.model):
        for chunk in dataset.chunks(256):
            for row, prediction in enumerate(predictions(subject.logits(chunk.x, batch_size))):
                label = int(chunk.labels[row])
                goal = label if chunk.targets is None else int(chunk.targets[row])
                reached = prediction >= 0 and (prediction != label if chunk.targets is None else prediction == goal)
                fooled += reached
                if not reached:
                    wrong.append((chunk.ids[row], goal, prediction))
    return FolderVerification(len(dataset), fooled, wrong)
