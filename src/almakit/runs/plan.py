"""A ``Request`` describes a run; ``plan`` opens its model and data and returns a ``Job``."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .. import goals
from ..core import Attack, Goal
from ..core.oracle import Model, predict
from ..data.coerce import Data
from ..data.dataset import Chunk, Dataset
from ..errors import BadInput
from ..goals.pixels import PixelGoal
from ..trackers import Track
from .attack_text import build_all, describe, text_of
from .failures import SpecChanged
from .images import box_of, named_targets, open_data, share_of, side_of, without_class
from .model import CleanPass, Subject, open_model
from .progress import Progress
from .radii import for_distances
from .spec import AUTO, RunSpec
from .store import ATTACK, CLEAN, ChunkKey
from .store.records import AttackInfo, FailureRow, ImageInfo

if TYPE_CHECKING:
    from .executors import Executor

REACHED = ("goal not reached", "goal reached")
"""The two classes of a run whose outputs are not class logits."""
ENGINES = ("local", "ray")
Notify = Callable[[float, int | None, int], None]
"""Called at each model call of an attack with the forwards per image, their expected total, and the images of the
chunk."""


@dataclass(frozen=True, eq=False)
class Request:
    """A specification, the run's folder, and options that do not change the numbers.

    The fields ``model`` to ``surrogate`` hold Python objects, which replace what the specification names.
    """

    spec: RunSpec
    out: Path = Path()
    model: str | Model | None = None
    data: Data | None = None
    attacks: Sequence[Attack] = ()  # built from the specification if empty
    targets: Tensor | Sequence[int] | str | None = None
    goal: Goal | None = None
    surrogate: str | Model | None = None
    add: bool = False  # add the attacks to those of the run in the folder
    shard: tuple[int, int] | None = None
    preflight: bool = True
    progress: Progress = field(default_factory=Progress)
    engine: str | Executor = "local"
    address: str = "local"  # of a Ray cluster
    workers: int | str | None = None
    keep: tempfile.TemporaryDirectory[str] | None = None  # temporary folder that is deleted with the run
    trackers: Sequence[Track] = ()
    certify: str | None = None
    warn: bool = False  # report preflight's findings as Python warnings

    def __post_init__(self) -> None:
        attacks = list(self.attacks) or build_all(self.spec.attacks)
        object.__setattr__(self, "attacks", attacks)
        object.__setattr__(self, "spec", replace(self.spec, attacks=tuple(map(text_of, attacks))))
        if isinstance(self.engine, str) and self.engine not in ENGINES:
            raise BadInput(f"there is no engine {self.engine!r}; choose {' or '.join(ENGINES)}.")
        if self.engine == "local" and self.address != "local":
            raise BadInput(f"address={self.address!r} is of a Ray cluster: add --engine ray, or leave it out.")
        whole = type(self.workers) is int and self.workers >= 1
        if not whole and self.workers not in (None, AUTO):
            raise BadInput(f"workers={self.workers!r}: give a whole number, at least 1, or auto.")
        if self.add and self.shard is not None:
            raise BadInput("attacks are added to a whole run: leave --shard out.")
        if self.shard is not None and self.spec.batch_size == AUTO and not (self.out / "run.toml").is_file():
            raise BadInput("each shard would measure --batch-size auto: give a number, the same for all shards.")
        if self.certify is not None and self.spec.targets is not None:
            raise BadInput("certificates are about any other class than the label: leave targets out.")
        if self.certify is not None and self.shard is not None:
            raise BadInput("shards are certified together: leave certify out, merge them, then `almakit certify`.")
        if not self.add:  # with --add, a radius may belong to an attack that the run has already
            self.check_radii()

    def check_radii(self) -> None:
        """Raise an error if a radius belongs to a distance that no attack uses."""
        distances = [repr(attack.measure) for attack in self.attacks]
        for option in ("epsilon", "stop_within"):
            for_distances(getattr(self.spec, option), distances, option)


@dataclass(eq=False)
class Kept:
    """The current chunk of a process: its images and the model's clean pass over them, used by all attacks."""

    number: int = -1
    chunk: Chunk | None = None
    clean: CleanPass | None = None


@dataclass(frozen=True, eq=False)
class Job:
    """Everything from which a run's chunks are computed. ``hashes``: the sha256 of each image, compared whenever it is
    read."""

    spec: RunSpec
    subject: Subject
    dataset: Dataset
    hashes: Sequence[str]
    targets: Sequence[int] | None
    attacks: Sequence[Attack]
    infos: Sequence[AttackInfo]
    surrogate: Subject | None = None  # model that provides the gradients, if it is another one
    kept: Kept = field(default_factory=Kept)

    @property
    def chunk_size(self) -> int:
        return int(self.spec.batch_size)

    def positions(self, chunk: int) -> range:
        return range(chunk * self.chunk_size, min((chunk + 1) * self.chunk_size, len(self.dataset)))

    def chunks(self, shard: tuple[int, int] | None = None) -> list[int]:
        """The chunks of a shard, or of the run."""
        count = math.ceil(len(self.dataset) / self.chunk_size)
        return [chunk for chunk in range(count) if shard is None or chunk % shard[1] == shard[0]]

    def rounds(self, classes: int) -> int:
        """Number of targets per image: one, or with ``targets=all`` all classes except its label."""
        return classes - 1 if self.spec.targets == "all" else 1

    def keys(self, chunk: int, classes: int) -> list[ChunkKey]:
        """The steps of a chunk in order: its clean pass, then its attacks. They depend on the number of ``classes``."""
        turns = self.rounds(classes) if classes else 0
        attacks = [ChunkKey(ATTACK, info.index, chunk, turn) for info in self.infos for turn in range(turns)]
        return [ChunkKey(CLEAN, -1, chunk), *attacks]

    def with_models(self, change: Callable[[Subject], Subject]) -> Job:
        """The job with another model and surrogate."""
        surrogate = None if self.surrogate is None else change(self.surrogate)
        return replace(self, subject=change(self.subject), surrogate=surrogate)

    def load(self, number: int) -> Chunk:
        """The images of a chunk; raises an error if they have changed since the run began."""
        found = self.dataset.chunk(self.positions(number))
        for position, sha256 in zip(self.positions(number), found.sha256, strict=True):
            if sha256 != self.hashes[position]:
                raise SpecChanged(
                    f"image {self.dataset.ids[position]} of {self.dataset.name} changed while the run was going on; "
                    "use data that give the same image every time (no random augmentation)."
                )
        return found

    def read(self, number: int) -> Chunk:
        """The images of a chunk, loaded once for all its steps."""
        if self.kept.number != number or self.kept.chunk is None:
            self.keep(number, self.load(number))
        assert self.kept.chunk is not None
        return self.kept.chunk

    def keep(self, number: int, chunk: Chunk) -> None:
        self.kept.number, self.kept.chunk, self.kept.clean = number, chunk, None


@dataclass(frozen=True, eq=False)
class Task:
    """A step of a chunk with everything it depends on."""

    key: ChunkKey
    batch: int  # largest number of images in a model call
    infos: Sequence[ImageInfo] = ()  # targets of the chunk's images; empty before their clean pass
    classes: int = 0
    share: bool = True  # whether the clean pass is kept in memory for the attacks


@dataclass(eq=False)
class State:
    """The state of a run. When memory runs out, ``share`` becomes False, then ``batch`` is halved."""

    batch: int
    done: set[ChunkKey]
    known: dict[int, ImageInfo]
    classes: int
    failed: dict[ChunkKey, FailureRow] = field(default_factory=dict)  # in this session
    share: bool = True

    def next(self, job: Job, chunk: int) -> Task | None:
        """The next step of a chunk. A chunk whose clean pass was given up is not attacked."""
        for key in job.keys(chunk, self.classes):
            if key in self.failed and key.kind == CLEAN:
                return None
            if key not in self.done and key not in self.failed:
                infos = [] if key.kind == CLEAN else [self.known[position] for position in job.positions(chunk)]
                return Task(key, self.batch, infos, self.classes, self.share)
        return None


def plan(request: Request, spec: RunSpec) -> Job:
    """The job of a request, with the ``spec`` that agrees with its folder: opens and checks model and data, and decides
    targets and goal. The batch size may still be undecided."""
    subject = open_model(spec.model if request.model is None else request.model, spec)
    spec = replace(spec, device=str(subject.device)) if spec.device == AUTO else spec
    source = spec.data if request.data is None else request.data
    dataset = open_data(source, spec, side_of(subject.model, source))
    dataset = dataset.numbered_as(getattr(subject.model, "class_names", None))
    if spec.target_class is not None:
        dataset = without_class(dataset, spec.target_class, request.progress)
    targets = named_targets(spec.targets if request.targets is None else request.targets, dataset)
    box_of(dataset.features, spec.bits)  # raises an error if bits and features cannot be combined
    others = (dataset.features, dataset.maps, dataset.truths, spec.eot, spec.goal)
    if request.certify is not None and any(other is not None for other in others):
        raise BadInput("certificates are for images with classes, without a goal, eot or units: leave certify out.")
    gradients = spec.surrogate if request.surrogate is None else request.surrogate
    surrogate = None if gradients is None else open_model(gradients, replace(spec, device=str(subject.device)))
    infos = [describe(attack, index, spec.targets is not None) for index, attack in enumerate(request.attacks)]
    job = Job(spec, subject, dataset, [], targets, request.attacks, infos, surrogate=surrogate)
    job = job.with_models(lambda subject: subject.with_features(dataset.features))
    job = _with_maps(job) if dataset.maps is not None else _with_goal(job, request)
    return replace(job, hashes=[sha256 for chunk in job.dataset.chunks(64) for sha256 in chunk.sha256])


def _with_maps(job: Job) -> Job:
    """The job for segmentation: a share of the labelled pixels must be wrong."""
    if job.spec.targets is not None or job.spec.eot is not None:
        raise BadInput(f"{job.dataset.name} gives every pixel a class: leave out targets and eot.")
    text = f"pixels(share={share_of(job.spec.goal):g})"
    subject = replace(job.subject, goal=PixelGoal(share=share_of(text)))
    return replace(job, spec=replace(job.spec, goal=text), subject=subject)


def _with_goal(job: Job, request: Request) -> Job:
    """The job with its goal, unless it is to leave the label or to reach the target."""
    spec, dataset, text = job.spec, job.dataset, job.spec.goal
    labels = dataset.truths
    if text is None and labels is not None:
        raise BadInput(
            f"the labels of {dataset.name} are no class numbers (N,) but {str(labels.dtype)[6:]} of shape "
            f"{tuple(labels.shape)}: give a goal that reads them, such as multilabel or regression(by=0.5) (--goal)."
        )
    if text is None:
        return job
    goal = goals.get(text) if request.goal is None else request.goal
    if isinstance(goal, PixelGoal):
        raise BadInput(f"goal={text!r} is for label maps, and {dataset.name} has a class per image: leave it out.")
    if own_code(text) and request.engine != "local":
        raise BadInput(f"goal={text!r} is code of your own, which other processes do not have: leave engine out.")
    job = job.with_models(lambda subject: replace(subject, goal=goal))
    if labels is None and goal.output is None and goal.of_logits and _gives_logits(job):
        return job
    # The goal is about outputs that are no class logits: its two classes are "not reached" and "reached".
    if spec.targets is not None or spec.eot is not None:
        raise BadInput(f"the goal {text} is about outputs that are no logits: leave out targets and eot.")
    truths, zeros = dataset.labels.clone() if labels is None else labels, torch.zeros_like(dataset.labels)
    dataset = replace(dataset, truths=truths, labels=zeros, class_names=REACHED, alphabetical=False)
    return replace(job, dataset=dataset).with_models(lambda subject: replace(subject, aimed=True))


def _gives_logits(job: Job) -> bool:
    """Whether the model's output may be class logits (B, K). A model that fails is reported by preflight."""
    try:
        answer = predict(job.subject.model, job.subject.place(job.dataset.chunk([0]).x))
    except Exception:
        return True
    return isinstance(answer, Tensor) and answer.ndim == 2 and answer.shape[1] > 1


def own_code(goal: str | None) -> bool:
    """Whether a goal is Python code that other processes cannot load."""
    return goal is not None and ":" in goal
