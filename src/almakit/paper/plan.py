"""What `almakit reproduce` will do: the paper's grid on the networks and images that are at hand, as specifications of
runs with a folder each."""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import BadInput, Unavailable
from ..models import load
from ..models.zoo import ZOO
from ..runs.spec import RunSpec
from . import layout
from .grid import SAMPLES, Cell, Network, choose, distinct, network_of, networks
from .sample import images_of

BATCH = {"mnist": 128, "cifar10": 64, "imagenet": 16}
ONE_PASS_A_STEP = ("alma", "soft-walk", "bb", "fmn", "ddn")
NOT_AT_HAND = "{label} ({name}) is not at hand and left out: {why}"


@dataclass(frozen=True)
class Settings:
    """What is asked for. ``limit`` images for each cell, ``costly_limit`` for the costly attacks; None is the paper's
    number."""

    dataset: str
    out: Path
    budget: str = "both"
    attacks: tuple[str, ...] = ()
    distances: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    limit: int | None = None
    costly_limit: int | None = None
    data: str | None = None
    seed: int = 0
    batch_size: int | None = None
    device: str = "auto"
    shard: tuple[int, int] | None = None
    trust: bool = False

    def __post_init__(self) -> None:
        for name in ("limit", "costly_limit", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadInput(f"--{name.replace('_', '-')} {value}: give a number from 1 on.")


@dataclass(frozen=True)
class Task:
    """One cell on one network: its specification and its run folder."""

    cell: Cell
    network: Network
    spec: RunSpec
    folder: Path

    @property
    def chunks(self) -> int:
        return math.ceil((self.spec.limit or 0) / int(self.spec.batch_size))

    @property
    def work(self) -> int:
        """About how many forwards of single images it takes."""
        return self.cell.forwards * (self.spec.limit or 0)

    @property
    def title(self) -> str:
        return f"{self.cell.title} ({layout.name_of(self.cell.distance)}) on {self.network.label}"


@dataclass
class Plan:
    """All that will be run, and sentences about what will not."""

    settings: Settings
    tasks: list[Task] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    joined: set[Path] = field(default_factory=set)
    weights: int = 0  # of its largest network


def plan(settings: Settings) -> Plan:
    """What the settings come to on this machine: networks and images that are at hand, cheap attacks before costly
    ones."""
    chosen = choose(settings.dataset, settings.budget, settings.attacks, settings.distances)
    made = Plan(settings)
    found, made.weights = _networks(settings, made.skipped)
    data, count, note = images_of(settings.dataset, settings.data, settings.out)
    if note:
        made.skipped.append(note)
    most = min(count, settings.limit or SAMPLES[settings.dataset])
    few = settings.costly_limit or (most if settings.limit is None else max(1, math.ceil(settings.limit / 5)))
    size = settings.batch_size or BATCH[settings.dataset]
    for cell in sorted(
        chosen, key=lambda cell: (cell.costly, cell.size != "small", cell.attack not in ONE_PASS_A_STEP)
    ):
        images = min(most, few) if cell.costly else most
        for network in found:
            spec = RunSpec(
                model=network.name,
                data=data,
                attacks=(cell.text,),
                limit=images,
                size=224 if settings.dataset == "imagenet" else None,
                seed=settings.seed,
                batch_size=min(size, images),
                device=settings.device,
                trust=settings.trust,
            )
            folder = settings.out / "runs" / _slug(network) / f"{cell.slug}-first-{images}"
            made.tasks.append(Task(cell, network, spec, folder))
    if settings.shard is not None:
        made.skipped += _too_few_chunks(made.tasks, settings.shard[1])
    return made


def _too_few_chunks(tasks: list[Task], shards: int) -> list[str]:
    """A sentence where some shards would have nothing to do."""
    small = [task for task in tasks if task.chunks < shards]
    if not small:
        return []
    images = min(task.spec.limit or 0 for task in small)
    return [
        f"{len(small)} of {len(tasks)} cells have fewer chunks than there are shards, so some shards have nothing to "
        f"do in them: give all shards the same smaller --batch-size, {max(1, images // shards)} for example."
    ]


def _networks(settings: Settings, skipped: list[str]) -> tuple[list[Network], int]:
    """The networks that can be loaded, the paper's or those the user names, and how many weights the largest has."""
    paper = networks(settings.dataset)
    given = [network_of(settings.dataset, uri) for uri in dict.fromkeys(settings.models)]
    skipped += [
        f"--model {network.name} was given more than once and counts once."
        for network in given
        if settings.models.count(network.name) > 1
    ]
    own_names = [known.name for known in paper]
    weights = [network for network in given if "@" in network.name and network.name.partition("@")[0] in own_names]
    if given and len(weights) < len(given):
        wanted = distinct(given)
    else:  # only weights for networks of the paper: they take their places, and the others stay
        wanted = distinct(
            [
                network
                for known in paper
                for network in ([own for own in weights if own.model == known.model] or [known])
            ]
        )
    found, most = [], 0
    for network in wanted:
        try:
            model = load(network.name, trust=settings.trust)
        except Unavailable as error:
            skipped.append(NOT_AT_HAND.format(label=network.label, name=network.name, why=error))
        else:
            found.append(network)
            most = max(most, sum(part.numel() for part in model.parameters()))
    if not found:
        raise Unavailable(
            f"none of the networks for {settings.dataset} is at hand. "
            + " ".join(skipped)
            + " Name weights you have, e.g. --model "
            f"{wanted[0].name.partition('@')[0]}@<file>, or another network (almakit ls models), whose rows then "
            "stand without published ones."
        )
    return found, most


def _slug(network: Network) -> str:
    """The folder of a network's runs; one that the zoo's name alone does not say carries a hash of its URI, so that two
    never share a folder."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", network.model).strip("-").lower() or "model"
    return name if network.name in ZOO else f"{name}-{hashlib.sha256(network.name.encode()).hexdigest()[:8]}"
