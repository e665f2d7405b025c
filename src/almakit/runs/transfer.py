"""A run's stored images judged by other models: what was found with one model and whom else it fools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ..core.oracle import borrowed
from ..goals.base import Goal
from .folder import RunFolder
from .images import share_of
from .model import Subject
from .store.derived import Seen, Transfer, read_transfers
from .store.records import AttackInfo, Record
from .verdict import judge

CHUNK = 256
"""Images that are judged and written together."""


def transfer_run(run: RunFolder, subject: Subject, goal: Goal | None = None) -> Transfer:
    """Asks ``subject`` about every verified success of a run, chunk by chunk into its folder, so that what was stopped
    goes on; ``goal`` is the run's, where it has one of its own."""
    part = Transfer(subject.name, subject.model_sha256)
    if subject.model_sha256 is not None:  # else nothing says that stored answers are this model's
        known = {(part.target, part.model_sha256): part for part in read_transfers(run.folder)}
        part = known.get((subject.name, subject.model_sha256), part)
    for _ in ask(run, subject, part, goal):
        part.write(run.folder)
    part.write(run.folder)
    return part


def ask(run: RunFolder, subject: Subject, part: Transfer, goal: Goal | None = None) -> Iterator[None]:
    """Adds the answers of ``subject`` that are not in ``part`` yet, and yields after each chunk of them."""
    with borrowed(subject.model):
        asked = replace(subject, maps=run.segmentation).with_features(run.features)
        if run.aimed:
            asked, goal = replace(asked, aim=goal), None
        for info in run.attacks:
            seen = part.seen.setdefault(info.text, {})
            found = [
                record
                for record in run.records_of(info.index)
                if record.slot is not None and record.claimed and record.fooled and _key(record) not in seen
            ]
            for begin in range(0, len(found), CHUNK):
                chunk = found[begin : begin + CHUNK]
                seen |= dict(zip(map(_key, chunk), _answers(run, info, chunk, asked, goal), strict=True))
                yield


def _key(record: Record) -> str:
    return str(record.image) if record.target is None else f"{record.image}>{record.target}"


def _answers(
    run: RunFolder, info: AttackInfo, records: Sequence[Record], subject: Subject, goal: Goal | None
) -> list[Seen]:
    """For each record: whether the goal is reached on the clean image, and on the stored one."""
    places = [record.image for record in records]
    x = torch.from_numpy(np.array(run.originals(places))).to(subject.working)
    stored = torch.from_numpy(np.array(run.adversarials(list(records)))).to(x.dtype)
    labels: list[int] | Tensor = [run.image[place].label for place in places]
    if run.segmentation or run.aimed:
        labels = torch.from_numpy(np.array(run.maps(places, "truths" if run.aimed else "maps")))
        labels = labels.long() if run.segmentation else labels
    targets = [int(record.target or 0) for record in records] if info.targeted else None
    share = share_of(run.spec.goal) if run.segmentation else 1.0
    clean, found = (
        [verdict.fooled for verdict in judge(subject, x, points, labels, targets, "l2", None, CHUNK // 4, share, goal)]
        for points in (x, stored)
    )
    return list(zip(clean, found, strict=True))
