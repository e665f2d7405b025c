"""Judging again, later: a run folder from what it stored, or any folder of images, with the model loaded afresh."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..attacks import get
from ..core.oracle import borrowed
from ..data.dataset import Dataset, image_sha256
from ..errors import AlmakitError
from .chunkfiles import fault_of, inside
from .folder import Run
from .records import ALREADY_WRONG, AttackInfo, Record
from .subject import Subject
from .verdict import Measure, judge, predictions


@dataclass
class Verification:
    """What judging an attack's stored images again gave."""

    attack: str
    records: int = 0
    claimed: int = 0  # successes the attack reported, already wrong images included
    confirmed: int = 0  # of those, how many fool the model now
    confirmed_8bit: int = 0  # how many still do after rounding to 8 bits
    changed: int = 0  # images judged otherwise than when they were stored
    misreported: int = 0  # distances that are not the stored image's (by more than one part in a thousand)


@dataclass
class FolderVerification:
    """What a model says of a folder of images."""

    images: int
    fooled: int  # not classified as their label, or with targets classified as their target
    wrong: list[tuple[str, int, int]]  # (id, label or target, prediction) of those that do not fool it


def damaged_files(run: Run) -> list[str]:
    """A sentence for every file of a run folder that is not what was recorded."""
    return [
        f"{row.file} {fault}"
        for row in run.chunks
        if row.file is not None and (fault := fault_of(inside(run.folder, row.file), str(row.sha256)))
    ]


def verify_run(run: Run, subject: Subject, batch_size: int | None = None) -> list[Verification]:
    """Judges every stored image of a run again; damaged files raise ``Corrupt``, an original that is not the recorded one likewise."""
    size = batch_size or int(run.spec.batch_size)
    with borrowed(subject.model):
        return [_verify_attack(run, info, subject, size) for info in run.attacks]


def _verify_attack(run: Run, info: AttackInfo, subject: Subject, size: int) -> Verification:
    found = Verification(info.text)
    records = run.records_of(info.index)
    found.records = len(records)
    measure = _measure(info)
    claimed = [record for record in records if record.claimed]
    for begin in range(0, len(claimed), 256):
        part = claimed[begin : begin + 256]
        x = _originals(run, part)
        own = [row for row, record in enumerate(part) if record.slot is not None]
        stored = x.clone()
        if own:
            points = torch.from_numpy(np.array(run.adversarials([part[row] for row in own])))
            # The images are stored as they came, the points in the precision of the run, which may be the higher one.
            stored = x.to(points.dtype).index_copy(0, torch.tensor(own), points)
        labels = [run.image[record.image].label for record in part]
        targets = [int(record.target or 0) for record in part] if info.targeted else None
        # One image more than last time: another batch size than the attack's and than the first verdict's.
        for record, verdict in zip(
            part, judge(subject, x, stored, labels, targets, info.distance, measure, size + 2), strict=True
        ):
            found.claimed += 1
            found.confirmed += verdict.fooled
            found.confirmed_8bit += verdict.fooled_8bit
            found.changed += (verdict.fooled, verdict.fooled_8bit) != (record.fooled, record.fooled_8bit)
            found.misreported += _apart(record, verdict.measured)
    return found


def _originals(run: Run, records: list[Record]) -> Tensor:
    images = torch.from_numpy(np.array(run.originals([record.image for record in records])))
    for record, image in zip(records, images, strict=True):
        if image_sha256(image) != run.image[record.image].sha256:
            raise AlmakitError(
                f"the stored original of image {run.image[record.image].id} is not the image that was attacked."
            )
    return images


def _measure(info: AttackInfo) -> Measure | None:
    try:
        return get(info.text).measure
    except AlmakitError:
        return None  # an attack or distance that only a Python session had: the plain distances are still checked


def _apart(record: Record, measured: float | None) -> bool:
    if record.status == ALREADY_WRONG or measured is None:
        return False
    return abs(record.distance - measured) > 1e-3 * max(abs(measured), 1e-12)


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
