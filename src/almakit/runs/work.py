"""The pieces of work of a run: the clean pass over a chunk, and an attack with its verdict on a chunk. Nothing is
written here."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..core import Attack, Box, Result
from ..core.goals import Goal, PixelGoal
from ..core.model import CONTIGUOUS, LEAST, Model
from ..core.problem import expected_forwards
from ..data.dataset import Chunk, Dataset
from ..errors import BadInput, BadModel
from .chunkfiles import Array
from .failures import SpecChanged
from .memory import within_memory
from .pixels import stored_maps
from .progress import forwards_per_image
from .records import PASSES, STATUSES, AttackInfo, ImageInfo, Record, Trace
from .spec import AUTO, DEFAULT, RunSpec
from .steady import stop_when, watched
from .store import ATTACK, CLEAN, ChunkKey
from .subject import Subject
from .targets import round_target, rounds, rule_target
from .transfer import to_device, to_host
from .verdict import Judgement, judge, predictions, tallies, top_classes

T = TypeVar("T")
TOLERANCE = 0.01
"""With ``budget`` auto: an image that came nearer by less than this share in the last quarter of what its attack plans
is done."""


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


@dataclass(eq=False)
class Bench:
    """Everything a piece of work needs; ``batch`` shrinks when memory runs out. ``hashes`` are the images' sha256,
    checked on every read."""

    spec: RunSpec
    subject: Subject
    dataset: Dataset
    hashes: list[str]
    targets: list[int] | None
    attacks: list[Attack]
    infos: list[AttackInfo]
    chunk_size: int
    batch: int
    known: dict[int, ImageInfo] = field(default_factory=dict)
    classes: int = 0
    called_off: Event | None = (
        None  # set when nobody wants the work any more: the next pass of the model is then the last
    )
    aim: Goal | None = None  # another goal than to leave the label or to reach the target
    share: float = 1.0  # of the labelled pixels, that must be wrong; of images with one class all one of them
    at_call: Callable[[float, int | None, int], None] | None = (
        None  # told at each model call of an attack: forwards per image, of about, images of the chunk
    )

    def positions(self, chunk: int) -> range:
        return range(chunk * self.chunk_size, min((chunk + 1) * self.chunk_size, len(self.dataset)))

    @property
    def chunk_count(self) -> int:
        return math.ceil(len(self.dataset) / self.chunk_size)

    def keys(self, shard: tuple[int, int] | None) -> list[ChunkKey]:
        """All work of a shard (or of the run), clean passes first; attacks are listed once the number of classes is
        known."""
        mine = [chunk for chunk in range(self.chunk_count) if shard is None or chunk % shard[1] == shard[0]]
        todo = [ChunkKey(CLEAN, -1, chunk) for chunk in mine]
        turns = rounds(self.spec.targets, self.classes) if self.classes else 0
        return todo + [
            ChunkKey(ATTACK, info.index, chunk, turn) for info in self.infos for chunk in mine for turn in range(turns)
        ]

    def read(self, chunk: int) -> Chunk:
        """The images of a chunk, which must still be the ones the run began with."""
        found = self.dataset.chunk(self.positions(chunk))
        for position, sha256 in zip(self.positions(chunk), found.sha256, strict=True):
            if sha256 != self.hashes[position]:
                raise SpecChanged(
                    f"image {self.dataset.ids[position]} of {self.dataset.name} changed while the run was going on; "
                    "a data set must give the same image every time (no random augmentation)."
                )
        return found

    def compute(self, key: ChunkKey) -> Outcome:
        """Does a piece of work."""
        return self.start(key)()

    def start(self, key: ChunkKey) -> Callable[[], Outcome]:
        """Does the long part of a piece of work; what is returned does the rest, the verdict, which may go on beside
        the next attack."""
        if key.kind == CLEAN:
            outcome = self._clean(key)
            return lambda: outcome
        try:
            return self._attack(key)
        except (BadInput, BadModel) as error:
            rows = self.positions(key.chunk)
            where = f"{self.infos[key.attack].text} on images {rows[0]} to {rows[-1]}"
            raise type(error)(f"{where} (counted from 0 there): {error}") from error

    def _clean(self, key: ChunkKey) -> Outcome:
        begin = time.perf_counter()
        chunk = self.read(key.chunk)
        (logits, maps), size = self._within_memory(lambda size: self.subject.answers(chunk.x, size), len(chunk))
        counted = None if maps is None or chunk.maps is None else tallies(maps, chunk.maps, logits.shape[1])
        beside = (
            {}
            if maps is None or chunk.maps is None
            else {"maps": stored_maps(chunk.maps), "predictions": stored_maps(maps)}
        )
        infos = []
        labels, spec = chunk.labels.tolist(), self.spec
        for row, (prediction, top) in enumerate(zip(predictions(logits), top_classes(logits), strict=True)):
            position = key.chunk * self.chunk_size + row
            target = None
            if self.targets is not None:
                target = self.targets[position]
            elif spec.targets is not None and spec.targets != "all":
                target = rule_target(spec.targets, logits[row], labels[row], chunk.sha256[row], spec.seed)
            infos.append(
                ImageInfo(
                    position,
                    chunk.ids[row],
                    chunk.sha256[row],
                    labels[row],
                    target,
                    key.chunk,
                    prediction,
                    top,
                    None if counted is None else counted[row],
                )
            )
        return Outcome(
            key, len(chunk), size, time.perf_counter() - begin, chunk.x.numpy(), beside, infos, classes=logits.shape[1]
        )

    def _attack(self, key: ChunkKey) -> Callable[[], Outcome]:
        begin = time.perf_counter()
        chunk, attack = self.read(key.chunk), self.attacks[key.attack]
        x, labels = chunk.x.to(self.subject.working), chunk.labels.tolist()
        infos = [self.known[position] for position in self.positions(key.chunk)]
        targets = self._targets(infos, key.round)

        def attempt(size: int) -> tuple[Result, _Watch]:
            watch = _Watch(self._traced(key, infos, targets))
            result = attack(
                self._called(size, len(chunk), attack),
                to_device(x, self.subject.device),
                chunk.labels if chunk.maps is None else chunk.maps,
                None if targets is None else torch.tensor(targets),
                goal=self.aim if chunk.maps is None else PixelGoal(share=self.share),
                box=Box(bits=self.spec.bits),
                batch_size=size,
                seed=self.spec.seed,
                budget=self.spec.most_passes,
                tolerance=TOLERANCE if self.spec.budget == AUTO else None,
                autocast=self.subject.autocast,
                check=False,
                trace=watch if watch.rows else None,
                layout=CONTIGUOUS if self.spec.layout in (AUTO, DEFAULT) else self.spec.layout,
                accelerate=self.spec.accelerate,
            )
            return result, watch

        (result, watch), size = self._within_memory(attempt, len(chunk))
        points = to_host(result.adversarials.detach())
        truth = labels if chunk.maps is None else chunk.maps
        return lambda: self._judged(key, x, truth, infos, targets, result, points, watch, size, begin)

    def _judged(
        self,
        key: ChunkKey,
        x: Tensor,
        truth: list[int] | Tensor,
        infos: list[ImageInfo],
        targets: list[int] | None,
        result: Result,
        points: Tensor,
        watch: _Watch,
        size: int,
        begin: float,
    ) -> Outcome:
        """The verdict on the ``points`` (B, ...) found for ``x`` (B, ...), and all that is stored of them."""
        attack = self.attacks[key.attack]
        claimed = [row for row, status in enumerate(result.status.tolist()) if status <= 1]
        stored = [row for row in claimed if int(result.status[row]) == 1]
        # The verdict may meet the end of memory as well as the attack; what it learns is not kept, for it asks without
        # gradients.
        judgements, _ = within_memory(
            lambda part: judge(
                self.subject,
                x[claimed],
                points[claimed],
                truth[claimed] if isinstance(truth, Tensor) else [truth[row] for row in claimed],
                None if targets is None else [targets[row] for row in claimed],
                self.infos[key.attack].distance,
                attack.measure,
                part,
                self.share,
                self.aim,
            ),
            size,
        )
        judged = dict(zip(claimed, judgements, strict=True))
        records = _records(key.attack, infos, targets, result, judged, {row: slot for slot, row in enumerate(stored)})
        traces = [
            Trace(key.attack, infos[row].index, None if targets is None else targets[row], values)
            for row, values in watch.columns().items()
        ]
        return Outcome(
            key,
            len(x),
            size,
            time.perf_counter() - begin,
            points[stored].numpy() if stored else None,
            {"predictions": stored_maps(torch.stack(maps))}
            if (maps := [found for row in stored if (found := judged[row].classes) is not None])
            else {},
            records=records,
            traces=traces,
        )

    def _called(self, size: int, images: int, attack: Attack) -> Model:
        """The model to attack ``size`` of a chunk's images at a time: with tiny batches filled up, unless memory has
        shown how dear a row is."""
        shrunk = self.batch < self.chunk_size or size < images
        model = self.subject.model if shrunk and size < LEAST else self.subject.steady
        looks = [] if self.called_off is None else [stop_when(self.called_off)]
        if (tell := self.at_call) is not None:
            looks.append(forwards_per_image(tell, expected_forwards(attack), images))
        return watched(model, *looks) if looks else model

    def _within_memory(self, work: Callable[[int], T], images: int) -> tuple[T, int]:
        """``work`` with as many images at a time as memory allows; what was learnt holds for the chunks that follow."""
        most = min(self.batch, images)
        done, size = within_memory(work, most)
        self.batch = size if size < most else self.batch
        return done, size

    def _targets(self, infos: list[ImageInfo], turn: int) -> list[int] | None:
        if self.spec.targets is None:
            return None
        if self.spec.targets == "all":
            return [round_target(info.label, turn, self.classes) for info in infos]
        return [info.target for info in infos if info.target is not None]

    def _traced(self, key: ChunkKey, infos: list[ImageInfo], targets: list[int] | None) -> list[int]:
        """The rows whose course is kept: the first attackable images of the first chunk."""
        if key.chunk or key.round:
            return []
        open_rows = [
            row
            for row, info in enumerate(infos)
            if (info.correct if targets is None else info.prediction != targets[row])
        ]
        return open_rows[: self.spec.traces]


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


def _records(
    attack: int,
    infos: list[ImageInfo],
    targets: list[int] | None,
    result: Result,
    judged: dict[int, Judgement],
    slots: dict[int, int],
) -> list[Record]:
    distances, statuses = result.distances.double().cpu().tolist(), result.status.tolist()
    forwards, backwards = result.forwards.tolist(), result.backwards.tolist()
    course = None if result.course is None else result.course.double().cpu().tolist()
    records = []
    for row, info in enumerate(infos):
        common = dict(
            attack=attack,
            image=info.index,
            target=None if targets is None else targets[row],
            status=STATUSES[statuses[row]],
            reason=result.reasons[row] if result.reasons else None,
            distance=distances[row],
            forwards=forwards[row],
            backwards=backwards[row],
        )
        if course is not None:
            common["course"] = {f"best_{count}": value for count, value in zip(PASSES, course[row], strict=True)}
        if (verdict := judged.get(row)) is not None:
            common |= dict(
                prediction=verdict.prediction,
                top=verdict.top,
                fooled=verdict.fooled,
                measured=verdict.measured,
                measures=verdict.measures,
                fooled_8bit=verdict.fooled_8bit,
                measured_8bit=verdict.measured_8bit,
                slot=slots.get(row),
                pixels=verdict.pixels,
            )
        records.append(Record(**common))
    return records
