"""Tests the adversarial images of a run on other models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..core.oracle import borrowed
from ..goals.base import Goal
from .folder import RunFolder
from .model import Subject, for_run
from .store.derived import Transfer, read_transfers
from .store.records import Record
from .verdict import judge_records

CHUNK = 256
"""Number of images that are judged and written together."""


def transfer_run(run: RunFolder, subject: Subject, goal: Goal | None = None) -> Transfer:
    """Test every verified success of a run on ``subject``. Answers are stored chunk by chunk in the run folder, so that
    an interrupted call resumes. ``goal``: the run's goal, if it has one."""
    part = Transfer(subject.name, subject.model_sha256)
    if subject.model_sha256 is not None:  # without it, stored answers cannot be matched to this model
        known = {(part.target, part.model_sha256): part for part in read_transfers(run.folder)}
        part = known.get((subject.name, subject.model_sha256), part)
    for _ in ask(run, subject, part, goal):
        part.write(run.folder)
    part.write(run.folder)
    return part


def ask(run: RunFolder, subject: Subject, part: Transfer, goal: Goal | None = None) -> Iterator[None]:
    """Add missing answers of ``subject`` to ``part``; yields after each chunk."""
    with borrowed(subject.model):
        subject = for_run(subject, run, goal)
        for info in run.attacks:
            seen = part.seen.setdefault(info.text, {})
            found = [
                record
                for record in run.records_of(info.index)
                if record.slot is not None and record.claimed and record.fooled and _key(record) not in seen
            ]
            plain = replace(info, distance="l2")  # distances are not kept
            for begin in range(0, len(found), CHUNK):
                chunk = found[begin : begin + CHUNK]
                verdicts = (judge_records(run, plain, chunk, subject, CHUNK // 4, clean=one) for one in (True, False))
                seen |= {
                    _key(record): (clean.fooled, stored.fooled)
                    for record, clean, stored in zip(chunk, *verdicts, strict=True)
                }
                yield


def _key(record: Record) -> str:
    return str(record.image) if record.target is None else f"{record.image}>{record.target}"
