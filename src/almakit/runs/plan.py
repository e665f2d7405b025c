"""What is to do: a run's ``Job``, which never changes once it is made, its pieces of work, and ``Progress``, the little
that becomes known while they are done."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .. import goals
from ..core import Attack, Goal
from ..core.model import Model, predict
from ..data.dataset import Chunk, Dataset
from ..data.given import Data
from ..errors import BadInput
from ..goals.pixels import PixelGoal
from ..models import is_foreign
from ..trackers import Track
from .attack_text import describe
from .failures import SpecChanged
from .images import given_targets, open_data, rounds, share_of, side_of, without_class
from .model import Subject, open_model
from .progress import Silent
from .spec import AUTO, RunSpec
from .store import ATTACK, CLEAN, ChunkKey
from .store.records import AttackInfo, ImageInfo
from .units import box_of

if TYPE_CHECKING:
    from .session import Engine

AIMED = ("goal not reached", "goal reached")


@dataclass(frozen=True, eq=False)
class Options:
    """How a specification is carried out, which decides none of its numbers; and what only Python has: the first six
    stand in for what the specification names."""

    model: str | Model | None = None
    data: Data | None = None
    attacks: Sequence[Attack] | None = None
    targets: Tensor | Sequence[int] | str | None = None
    goal: Goal | None = None
    surrogate: str | Model | None = None
    add: bool = False  # the attacks are added to those of the run in the folder
    shard: tuple[int, int] | None = None
    preflight: bool = True
    progress: Silent = field(default_factory=Silent)
    engine: str | Engine = "local"
    address: str = "local"  # of a Ray cluster
    workers: int | str | None = None
    keep: tempfile.TemporaryDirectory[str] | None = None  # the folder, where it goes with the run
    trackers: Sequence[Track] = ()
    certify: str | None = None
    warn: bool = False  # about preflight's findings with Python's warnings


@dataclass(frozen=True, eq=False)
class Job:
    """Everything a run's pieces of work are made of; ``hashes`` are the images' sha256, checked on every read."""

    spec: RunSpec
    subject: Subject
    dataset: Dataset
    hashes: Sequence[str]
    targets: Sequence[int] | None
    attacks: Sequence[Attack]
    infos: Sequence[AttackInfo]
    goal: Goal | None = None  # another goal than to leave the label or to reach the target
    share: float = 1.0  # of the labelled pixels, that must be wrong; of images with one class all one of them
    surrogate: Subject | None = None  # the model that gradients come from, where it is another

    @property
    def chunk_size(self) -> int:
        return int(self.spec.batch_size)

    def positions(self, chunk: int) -> range:
        return range(chunk * self.chunk_size, min((chunk + 1) * self.chunk_size, len(self.dataset)))

    def keys(self, shard: tuple[int, int] | None, classes: int) -> list[ChunkKey]:
        """All work of a shard (or of the run), clean passes first; attacks are listed once the number of ``classes`` is
        known."""
        count = math.ceil(len(self.dataset) / self.chunk_size)
        mine = [chunk for chunk in range(count) if shard is None or chunk % shard[1] == shard[0]]
        turns = rounds(self.spec.targets, classes) if classes else 0
        return [ChunkKey(CLEAN, -1, chunk) for chunk in mine] + [
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


@dataclass(frozen=True, eq=False)
class Task:
    """A piece of work with all that is known by then and that it depends on."""

    key: ChunkKey
    batch: int  # images through the model at a time, at most
    infos: Sequence[ImageInfo] = ()  # of the chunk's images; empty before their clean pass
    classes: int = 0


@dataclass(eq=False)
class Progress:
    """What is known of a run under way; ``batch`` shrinks when memory runs out."""

    batch: int
    known: dict[int, ImageInfo] = field(default_factory=dict)
    classes: int = 0
    tell: Callable[[float, int | None, int], None] | None = (
        None  # told at each model call of an attack: forwards per image, of about, images of the chunk
    )

    def task(self, job: Job, key: ChunkKey) -> Task:
        infos = [] if key.kind == CLEAN else [self.known[position] for position in job.positions(key.chunk)]
        return Task(key, self.batch, infos, self.classes)

    def learn(self, batch: int, images: int) -> None:
        """A chunk of so many ``images`` went through the model ``batch`` at a time: where memory wanted fewer than
        before, that holds for the chunks that follow."""
        self.batch = batch if batch < min(self.batch, images) else self.batch


def plan(spec: RunSpec, attacks: Sequence[Attack], options: Options) -> Job:
    """The job of a specification: model and data opened, targets and goal decided; batch size and the like may still be
    left open."""
    subject = open_model(spec.model if options.model is None else options.model, spec)
    spec = replace(spec, device=str(subject.device)) if spec.device == AUTO else spec
    source = spec.data if options.data is None else options.data
    dataset = open_data(source, spec, side_of(subject.model, source))
    dataset = dataset.numbered_as(getattr(subject.model, "class_names", None))
    if spec.target_class is not None:
        dataset = without_class(dataset, spec.target_class, options.progress)
    chosen = given_targets(spec.targets if options.targets is None else options.targets, dataset)
    subject = subject.with_features(dataset.features)
    _check_units(spec, dataset, options)
    hashes = [sha256 for chunk in dataset.chunks(64) for sha256 in chunk.sha256]
    infos = [describe(attack, index, spec.targets is not None) for index, attack in enumerate(attacks)]
    lender = spec.surrogate if options.surrogate is None else options.surrogate
    surrogate = None
    if lender is not None:
        surrogate = open_model(lender, replace(spec, device=str(subject.device))).with_features(dataset.features)
    job = Job(spec, subject, dataset, hashes, chosen, attacks, infos, surrogate=surrogate)
    return _with_maps(job, options) if dataset.maps is not None else _with_goal(job, options)


def _check_units(spec: RunSpec, dataset: Dataset, options: Options) -> None:
    """Raises where data with units of their own, or a random model, are asked for what they cannot have."""
    box_of(dataset.features, spec.bits)
    if options.certify is not None and (dataset.features is not None or spec.eot is not None):
        raise BadInput("certificates are about images in [0, 1] and models that answer once; leave certify out.")
    if spec.eot is not None and dataset.maps is not None:
        raise BadInput("eot is for classifiers: leave it out with label maps.")
    if spec.most_passes is not None and spec.eot is not None and spec.most_passes < spec.eot:
        raise BadInput(f"budget={spec.budget}: with eot={spec.eot} a query takes {spec.eot} passes, so none fits in.")


def _with_maps(job: Job, options: Options) -> Job:
    """The job on data that give every pixel a class: so many of the labelled ones wrong."""
    if job.spec.targets is not None or options.certify is not None:
        raise BadInput(f"{job.dataset.name} gives every pixel a class: leave out targets and certify.")
    share = share_of(job.spec.goal)
    spec = replace(job.spec, goal=f"pixels(share={share:g})")
    return replace(job, spec=spec, subject=replace(job.subject, maps=True), share=share_of(spec.goal))


def _with_goal(job: Job, options: Options) -> Job:
    """The job with its goal, where it is another than to leave the label or to reach the target."""
    text, labels = job.spec.goal, job.dataset.truths
    if text is None and labels is not None:
        raise BadInput(
            f"the labels of {job.dataset.name} are {str(labels.dtype).removeprefix('torch.')} of shape "
            f"{tuple(labels.shape)}, no class numbers (N,): give a goal that reads them, such as multilabel or "
            "regression(by=0.5) (--goal)."
        )
    if text is None:
        return job
    goal = goals.get(text) if options.goal is None else options.goal
    if isinstance(goal, PixelGoal):
        raise BadInput(
            f"goal={text!r} is for data with label maps, and {job.dataset.name} has one class for each image; "
            "leave it out."
        )
    if options.certify is not None:
        raise BadInput("certificates are about any other class than the label; leave certify out, or the goal.")
    if own_code(text) and options.engine != "local":
        raise BadInput(f"goal={text!r} is code of your own, which other processes do not have: leave engine out.")
    if labels is None and goal.output is None and goal.of_logits and _gives_logits(job):
        return replace(job, goal=goal)
    return _aimed(replace(job, goal=goal), options)


def _gives_logits(job: Job) -> bool:
    """Whether the model returns something that may be the logits (B, K) of classes; one that fails is told later."""
    subject = job.subject
    try:
        answer = predict(subject.model, subject.place(job.dataset.chunk([0]).x))
    except Exception:
        return True
    return isinstance(answer, Tensor) and answer.ndim == 2 and answer.shape[1] > 1


def _aimed(job: Job, options: Options) -> Job:
    """The job with a goal on outputs that are no logits of classes: two classes say whether it is reached."""
    spec, dataset = job.spec, job.dataset
    if spec.targets is not None or spec.eot is not None:
        raise BadInput(
            f"the goal {spec.goal} is about outputs that are no logits of classes: leave out targets and eot."
        )
    truths = dataset.labels.clone() if dataset.truths is None else dataset.truths
    kept = replace(
        dataset, truths=truths, labels=torch.zeros_like(dataset.labels), class_names=AIMED, alphabetical=False
    )
    hashes = [sha256 for chunk in kept.chunks(64) for sha256 in chunk.sha256]
    surrogate = None if job.surrogate is None else replace(job.surrogate, aim=job.goal)
    return replace(job, dataset=kept, hashes=hashes, subject=replace(job.subject, aim=job.goal), surrogate=surrogate)


def own_code(goal: str | None) -> bool:
    """Whether a goal is code that other processes do not have."""
    return goal is not None and ":" in goal


# Before the first chunk.


def introduction(job: Job, options: Options) -> list[str]:
    """What a user is told of how images and model were made to fit."""
    side = side_of(job.subject.model, job.spec.data if options.data is None else options.data)
    if not (side or is_foreign(job.spec.model)):
        return []
    sentences = [
        getattr(job.subject.model, "preprocessing", None),
        side and f"Photos are cut to {side} x {side}, the size the model was made for.",
    ]
    return [sentence for sentence in sentences if sentence]
