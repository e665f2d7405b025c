"""A piece of work as a function: from a job and a task, the clean pass over a chunk or an attack with its verdict, to
an outcome. Nothing is written here, and nothing that is given changes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core import Attack, Result
from ..core.model import LEAST, Model
from ..core.problem import expected_forwards
from ..errors import BadInput, BadModel
from ..goals.pixels import PixelGoal
from .images import round_target, rule_target
from .model import to_device, to_host
from .plan import Job, Task
from .progress import forwards_per_image
from .radii import stop_radius
from .spec import AUTO
from .store import CLEAN, ChunkKey
from .store.files import Array
from .store.records import PASSES, STATUSES, ImageInfo, Record, Tally, Trace
from .tuning import within_memory
from .units import box_of
from .verdict import Judgement, judge, predictions, tallies, top_classes
from .watching import stop_when, watched

TOLERANCE = 0.01
"""With ``budget`` auto: an image that came nearer by less than this share in the last quarter of what its attack plans
is done."""
Tell = Callable[[float, int | None, int], None]
"""Told at each model call of an attack: forwards per image, of about so many, images of the chunk."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """A finished piece of work, ready to be stored: ``stored`` are the images its file will hold (None: no file)."""

    key: ChunkKey
    images: int
    batch: int
    seconds: float
    stored: Array | None
    beside: dict[str, Array] = field(default_factory=dict)  # maps (B, H, W) that go into the same file
    infos: list[ImageInfo] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)
    classes: int = 0
    node: str = ""  # who did it, where others than this process do the work


@dataclass(frozen=True, eq=False)
class Attacked:
    """An attacked chunk that waits for its verdict: ``points`` (B, ...) were found for ``x`` (B, ...)."""

    task: Task
    x: Tensor
    truth: list[int] | Tensor  # labels, or label maps (B, H, W), or truths (B, ...)
    targets: list[int] | None
    result: Result
    points: Tensor
    watch: _Watch
    batch: int
    began: float

    @property
    def images(self) -> int:
        return len(self.x)


def compute(job: Job, task: Task, tell: Tell | None = None) -> Outcome:
    """Does a piece of work."""
    return judged(job, start(job, task, tell))


def start(job: Job, task: Task, tell: Tell | None = None, called_off: Event | None = None) -> Outcome | Attacked:
    """The long part of a piece of work; the verdict on an attacked chunk may be made beside the next attack. The pass
    of the model after ``called_off`` is set is the last."""
    if task.key.kind == CLEAN:
        return _clean(job, task)
    try:
        return _attack(job, task, tell, called_off)
    except (BadInput, BadModel) as error:
        rows = job.positions(task.key.chunk)
        where = f"{job.infos[task.key.attack].text} on images {rows[0]} to {rows[-1]}"
        raise type(error)(f"{where} (counted from 0 there): {error}") from error


def _clean(job: Job, task: Task) -> Outcome:
    began = time.perf_counter()
    chunk, spec = job.read(task.key.chunk), job.spec
    (logits, maps), size = within_memory(
        lambda size: job.subject.answers(chunk.x, size, chunk.truths), min(task.batch, len(chunk))
    )
    counted: Sequence[Tally | None] = [None] * len(chunk)
    beside = {}
    if maps is not None and chunk.maps is not None:
        counted = tallies(maps, chunk.maps, logits.shape[1])
        beside = {"maps": _stored_maps(chunk.maps), "predictions": _stored_maps(maps)}
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


def _attack(job: Job, task: Task, tell: Tell | None, called_off: Event | None) -> Attacked:
    began = time.perf_counter()
    chunk, attack = job.read(task.key.chunk), job.attacks[task.key.attack]
    x, subject, spec = chunk.x.to(job.subject.working), job.subject, job.spec
    truth, targets = chunk.truth, _targets(job, task)

    def attempt(size: int) -> tuple[Result, _Watch]:
        watch = _Watch(_traced(job, task, targets))
        result = attack(
            _called(job, task, attack, size, len(chunk), tell, called_off),
            to_device(x, subject.device),
            truth,
            None if targets is None else torch.tensor(targets),
            goal=job.goal if chunk.maps is None else PixelGoal(share=job.share),
            box=box_of(job.dataset.features, spec.bits),
            batch_size=size,
            seed=spec.seed,
            budget=spec.most_passes,
            tolerance=TOLERANCE if spec.budget == AUTO else None,
            stop_within=stop_radius(spec.stop_within, repr(attack.measure)),
            autocast=subject.autocast,
            check=False,
            trace=watch if watch.rows else None,
            surrogate=None if job.surrogate is None else job.surrogate.steady,
            eot=spec.eot,
            votes=spec.votes,
            vote_share=spec.vote_share,
        )
        return result, watch

    (result, watch), size = within_memory(attempt, min(task.batch, len(chunk)))
    points = to_host(result.adversarials.detach())
    known = chunk.labels.tolist() if truth is chunk.labels else truth
    return Attacked(task, x, known, targets, result, points, watch, size, began)


def judged(job: Job, found: Outcome | Attacked) -> Outcome:
    """The verdict on an attacked chunk, and all that is stored of it; an outcome is one already."""
    if isinstance(found, Outcome):
        return found
    key, targets, truth = found.task.key, found.targets, found.truth
    statuses = found.result.status.tolist()
    claimed = [row for row, status in enumerate(statuses) if status <= 1]
    stored = [row for row in claimed if statuses[row] == 1]
    # The verdict may meet the end of memory as well as the attack; what it learns is not kept, for it asks without
    # gradients.
    judgements, _ = within_memory(
        lambda part: judge(
            job.subject,
            found.x[claimed],
            found.points[claimed],
            truth[claimed] if isinstance(truth, Tensor) else [truth[row] for row in claimed],
            None if targets is None else [targets[row] for row in claimed],
            job.infos[key.attack].distance,
            job.attacks[key.attack].measure,
            part,
            job.share,
            job.goal,
        ),
        found.batch,
    )
    verdicts = dict(zip(claimed, judgements, strict=True))
    infos = found.task.infos
    traces = [
        Trace(key.attack, infos[row].index, None if targets is None else targets[row], values)
        for row, values in found.watch.columns().items()
    ]
    maps = [classes for row in stored if (classes := verdicts[row].classes) is not None]
    return Outcome(
        key,
        found.images,
        found.batch,
        time.perf_counter() - found.began,
        found.points[stored].numpy() if stored else None,
        {"predictions": _stored_maps(torch.stack(maps))} if maps else {},
        records=_records(found, verdicts, stored),
        traces=traces,
    )


def _called(
    job: Job, task: Task, attack: Attack, size: int, images: int, tell: Tell | None, called_off: Event | None
) -> Model:
    """The model to attack ``size`` of a chunk's images at a time: with tiny batches filled up, unless memory has shown
    how dear a row is."""
    shrunk = task.batch < job.chunk_size or size < images
    model = job.subject.model if shrunk and size < LEAST else job.subject.steady
    looks = [] if called_off is None else [stop_when(called_off)]
    if tell is not None:
        looks.append(forwards_per_image(tell, expected_forwards(attack), images))
    return watched(model, *looks) if looks else model


def _targets(job: Job, task: Task) -> list[int] | None:
    if job.spec.targets is None:
        return None
    if job.spec.targets == "all":
        return [round_target(info.label, task.key.round, task.classes) for info in task.infos]
    return [info.target for info in task.infos if info.target is not None]


def _traced(job: Job, task: Task, targets: list[int] | None) -> list[int]:
    """The rows whose course is kept: the first attackable images of the first chunk."""
    if task.key.chunk or task.key.round:
        return []
    open_rows = [
        row
        for row, info in enumerate(task.infos)
        if (info.correct if targets is None else info.prediction != targets[row])
    ]
    return open_rows[: job.spec.traces]


def _stored_maps(maps: Tensor) -> Array:
    """Label maps or predictions (B, H, W) as files hold them: whole numbers of 16 bits."""
    return maps.numpy().astype(np.int16)


class _Watch:
    """Collects what an attack records about a few rows of its batch."""

    def __init__(self, rows: list[int]):
        self.rows = rows
        self.steps: dict[int, list[dict[str, Any]]] = {row: [] for row in rows}

    def __call__(self, event: dict[str, Any]) -> None:
        places = {image: place for place, image in enumerate(event["image"].tolist()) if image in self.steps}
        for row, place in places.items():
            values = {
                name: _plain(value[place])
                for name, value in event.items()
                if name not in ("step", "image") and isinstance(value, Tensor)
            }
            self.steps[row].append({"step": event["step"], **values})

    def columns(self) -> dict[int, dict[str, list[Any]]]:
        """Row -> {name: one value per recorded step, None where a step did not record it}."""
        return {
            row: {name: [step.get(name) for step in steps] for name in dict.fromkeys(n for step in steps for n in step)}
            for row, steps in self.steps.items()
            if steps
        }


def _plain(value: Tensor) -> Any:
    number = value.item()
    return number if not isinstance(number, float) or math.isfinite(number) else None


def _records(found: Attacked, verdicts: dict[int, Judgement], stored: list[int]) -> list[Record]:
    result, slots = found.result, {row: slot for slot, row in enumerate(stored)}
    distances, statuses = result.distances.double().cpu().tolist(), result.status.tolist()
    forwards, backwards = result.forwards.tolist(), result.backwards.tolist()
    course = None if result.course is None else result.course.double().cpu().tolist()
    records = []
    for row, info in enumerate(found.task.infos):
        more: dict[str, Any] = {}
        if result.surrogate_forwards is not None:
            more["surrogate_forwards"] = int(result.surrogate_forwards[row])
        if course is not None:
            more["course"] = {f"best_{count}": value for count, value in zip(PASSES, course[row], strict=True)}
        if (verdict := verdicts.get(row)) is not None:
            more |= {name: value for name, value in vars(verdict).items() if name != "classes"}
            more["slot"] = slots.get(row)
        record = Record(
            attack=found.task.key.attack,
            image=info.index,
            target=None if found.targets is None else found.targets[row],
            status=STATUSES[statuses[row]],
            reason=result.reasons[row] if result.reasons else None,
            distance=distances[row],
            forwards=forwards[row],
            backwards=backwards[row],
            **more,
        )
        records.append(record)
    return records
