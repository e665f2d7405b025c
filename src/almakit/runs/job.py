"""A step of a chunk as a function of a job and a task: the clean pass, or an attack with its verdict. Nothing is
written to disk here."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core import Result
from ..core.attack import expected_forwards
from ..core.result import OTHER_COUNTS
from ..errors import BadInput, BadModel
from .images import box_of, round_target, rule_target
from .model import Attacked
from .plan import Job, Notify, Task
from .progress import forwards_per_image
from .radii import stop_radius
from .store import ATTACK, CLEAN, ChunkKey
from .store.files import Array
from .store.records import ALREADY_WRONG, PASSES, STATUSES, SUCCESS, ImageInfo, Record, Tally, Trace
from .verdict import Judgement, judge, predictions, tallies, top_classes


@dataclass(frozen=True, eq=False)
class Outcome:
    """A finished step, ready to be stored. ``stored``: the images for its file, None without a file."""

    key: ChunkKey
    images: int
    batch: int
    seconds: float
    stored: Array | None
    beside: dict[str, Array] = field(default_factory=dict)  # label maps (B, H, W) for the same file
    infos: list[ImageInfo] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)
    classes: int = 0


def clean_step(job: Job, task: Task, notify: Notify | None = None) -> Outcome:
    """The clean pass over a chunk: predictions, targets, and clean outputs for the verdict."""
    began = time.perf_counter()
    _release(job, task)
    chunk, spec, subject = job.read(task.key.chunk), job.spec, job.subject
    size = min(task.batch, len(chunk))
    clean = None
    if task.share and size == len(chunk) and subject.autocast is None and subject.draws is None:
        gradients = job.surrogate is None and any(attack.needs_gradients() for attack in job.attacks)
        clean = job.kept.clean = subject.clean_pass(chunk.x.to(subject.working), gradients)
    logits, maps = subject.answers(chunk.x, size, chunk.truths, clean)
    counted: Sequence[Tally | None] = [None] * len(chunk)
    beside: dict[str, Array] = {}
    if maps is not None and chunk.maps is not None:
        counted = tallies(maps, chunk.maps, logits.shape[1])
        beside["maps"] = chunk.maps.numpy().astype(np.int16)
    if chunk.truths is not None:
        beside["truths"] = chunk.truths.numpy()
    infos, labels = [], chunk.labels.tolist()
    for row, (prediction, top) in enumerate(zip(predictions(logits), top_classes(logits), strict=True)):
        position = task.key.chunk * job.chunk_size + row
        name, sha256, label, target = chunk.ids[row], chunk.sha256[row], labels[row], None
        if job.targets is not None:
            target = job.targets[position]
        elif spec.targets is not None and spec.targets != "all":
            target = rule_target(spec.targets, logits[row], label, sha256, spec.seed)
        infos.append(ImageInfo(position, name, sha256, label, target, task.key.chunk, prediction, top, counted[row]))
    seconds = time.perf_counter() - began
    return Outcome(task.key, len(chunk), size, seconds, chunk.x.numpy(), beside, infos, classes=logits.shape[1])


def attack_step(job: Job, task: Task, notify: Notify | None = None) -> Outcome:
    """An attack on a chunk, and the verdict on its results."""
    began = time.perf_counter()
    _release(job, task)
    chunk, attack, subject, spec = job.read(task.key.chunk), job.attacks[task.key.attack], job.subject, job.spec
    size, x, targets = min(task.batch, len(chunk)), chunk.x.to(subject.working), _targets(job, task)
    watch = _Watch(_traced(job, task, targets))
    before = None if notify is None else forwards_per_image(notify, expected_forwards(attack), len(chunk))
    # Tiny batches are padded, unless memory has run out before.
    least = subject.least if size == len(chunk) and task.batch == job.chunk_size else min(size, subject.least)
    clean, surrogate = job.kept.clean if subject.autocast is None else None, job.surrogate
    try:
        result = attack(
            Attacked(subject.model, before, least, clean),
            x.to(subject.device),
            chunk.truth,
            None if targets is None else torch.tensor(targets),
            goal=subject.goal,
            box=box_of(job.dataset.features, spec.bits),
            batch_size=size,
            seed=spec.seed,
            budget=spec.budget,
            stop_within=stop_radius(spec.stop_within, repr(attack.measure)),
            autocast=subject.autocast,
            check=False,
            trace=watch if watch.rows else None,
            surrogate=None if surrogate is None else Attacked(surrogate.model, least=least),
            eot=subject.draws,
        )
    except (BadInput, BadModel) as error:
        rows = job.positions(task.key.chunk)
        where = f"{job.infos[task.key.attack].text} on images {rows[0]} to {rows[-1]}"
        raise type(error)(f"{where} (counted from 0 there): {error}") from error
    points, statuses = result.adversarials.detach().cpu(), [STATUSES[status] for status in result.status.tolist()]
    claimed = [row for row, status in enumerate(statuses) if status in (ALREADY_WRONG, SUCCESS)]
    stored = [row for row in claimed if statuses[row] == SUCCESS]
    judgements = judge(
        subject,
        x[claimed],
        points[claimed],
        chunk.labels[claimed].tolist() if chunk.truth is chunk.labels else chunk.truth[claimed],
        None if targets is None else [targets[row] for row in claimed],
        job.infos[task.key.attack].distance,
        attack.measure,
        size,
    )
    verdicts = dict(zip(claimed, judgements, strict=True))
    aims: Sequence[int | None] = targets or [None] * len(chunk)
    return Outcome(
        task.key,
        len(chunk),
        size,
        time.perf_counter() - began,
        points[stored].numpy() if stored else None,
        records=[_record(task, result, row, aims[row], verdicts.get(row), stored) for row in range(len(chunk))],
        traces=[
            Trace(task.key.attack, task.infos[row].index, aims[row], values) for row, values in watch.columns().items()
        ],
    )


def _record(
    task: Task, result: Result, row: int, target: int | None, verdict: Judgement | None, stored: list[int]
) -> Record:
    """The record of the image in a ``row`` of the chunk; ``stored``: the rows whose images are stored."""
    more: dict[str, Any] = {
        name: int(counts[row]) for name in OTHER_COUNTS if (counts := getattr(result, name)) is not None
    }
    if result.course is not None:
        marks = result.course[row].double().cpu().tolist()
        more["course"] = {f"best_{count}": value for count, value in zip(PASSES, marks, strict=True)}
    if verdict is not None:
        more |= {**vars(verdict), "slot": stored.index(row) if row in stored else None}
    return Record(
        attack=task.key.attack,
        image=task.infos[row].index,
        target=target,
        status=STATUSES[int(result.status[row])],
        reason=result.reasons[row] if result.reasons else None,
        distance=float(result.distances[row].double()),
        forwards=int(result.forwards[row]),
        backwards=int(result.backwards[row]),
        **more,
    )


STEPS: dict[str, Callable[[Job, Task, Notify | None], Outcome]] = {CLEAN: clean_step, ATTACK: attack_step}


def _release(job: Job, task: Task) -> None:
    """Free memory after it ran out."""
    if not task.share or task.batch < job.chunk_size:
        job.kept.clean = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _targets(job: Job, task: Task) -> list[int] | None:
    if job.spec.targets is None:
        return None
    if job.spec.targets == "all":
        return [round_target(info.label, task.key.round, task.classes) for info in task.infos]
    return [info.target for info in task.infos if info.target is not None]


def _traced(job: Job, task: Task, targets: list[int] | None) -> list[int]:
    """The rows whose history is kept: the first attackable images of the first chunk."""
    if task.key.chunk or task.key.round:
        return []
    infos = enumerate(task.infos)
    rows = [row for row, info in infos if (info.correct if targets is None else info.prediction != targets[row])]
    return rows[: job.spec.traces]


class _Watch:
    """Collects the history that an attack records for a few rows of its batch."""

    def __init__(self, rows: list[int]):
        self.rows = rows
        self.steps: dict[int, list[dict[str, Any]]] = {row: [] for row in rows}

    def __call__(self, event: dict[str, Any]) -> None:
        for place, row in enumerate(event["image"].tolist()):
            if row in self.steps:
                tensors = {name: value for name, value in event.items() if isinstance(value, Tensor)}
                values = {name: _plain(value[place]) for name, value in tensors.items() if name != "image"}
                self.steps[row].append({"step": event["step"], **values})

    def columns(self) -> dict[int, dict[str, list[Any]]]:
        """By row, {name: one value per recorded step, None if the step did not record it}."""
        return {
            row: {name: [step.get(name) for step in steps] for name in dict.fromkeys(n for step in steps for n in step)}
            for row, steps in self.steps.items()
            if steps
        }


def _plain(value: Tensor) -> Any:
    number = value.item()
    return number if not isinstance(number, float) or math.isfinite(number) else None
