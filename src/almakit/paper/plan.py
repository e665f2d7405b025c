"""The plan of `almakit reproduce`: the paper's grid on the available networks and images, one ordinary run per cell."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import Unavailable
from ..models import load
from ..models.zoo import ZOO
from ..runs.spec import RunSpec
from .grid import SAMPLES, Cell, Network, choose, distinct, name_of, network_of, networks
from .sample import images_of

BATCH = {"mnist": 128, "cifar10": 64, "imagenet": 16}
ONE_PASS_A_STEP = ("alma", "soft-walk", "bb", "fmn", "ddn")


@dataclass(frozen=True)
class Settings:
    """The user's choices. ``limit`` images for each cell, ``costly_limit`` for the costly attacks; None is the paper's
    number."""

    dataset: str
    out: Path
    budget: str = "both"
    attacks: Sequence[str] | None = None
    distances: Sequence[str] | None = None
    model: Sequence[str] = ()
    limit: int | None = None
    costly_limit: int | None = None
    data: str | None = None
    seed: int = 0
    batch_size: int | None = None
    device: str = "auto"
    trust: bool = False


@dataclass(frozen=True)
class Task:
    """One cell on one network: its specification and its run folder."""

    cell: Cell
    network: Network
    spec: RunSpec
    folder: Path

    @property
    def title(self) -> str:
        return f"{self.cell.title} ({name_of(self.cell.distance)}) on {self.network.label}"

    @property
    def certify(self) -> str | None:
        """The bound that certifies the run's images: only networks trained with interval bounds have useful ones."""
        return "ibp" if "ibp" in self.network.name and self.cell.distance in ("linf", "l2", "l1") else None


@dataclass
class Plan:
    """All tasks, and messages about cells that are left out."""

    settings: Settings
    tasks: list[Task] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def plan(settings: Settings) -> Plan:
    """The tasks for these settings on this machine: the available networks and images, cheap attacks first."""
    cells = choose(settings.dataset, settings.budget, settings.attacks or (), settings.distances or ())
    made = Plan(settings)
    available = _networks(settings, made.skipped)
    data, count, note = images_of(settings.dataset, settings.data, settings.out)
    if note:
        made.skipped.append(note)
    most = min(count, settings.limit or SAMPLES[settings.dataset])
    few = settings.costly_limit or (most if settings.limit is None else max(1, math.ceil(settings.limit / 5)))
    for cell in sorted(cells, key=lambda cell: (cell.costly, cell.size != "small", cell.attack not in ONE_PASS_A_STEP)):
        images = min(most, few) if cell.costly else most
        for network in available:
            spec = RunSpec(
                model=network.name,
                data=data,
                attacks=(cell.text,),
                limit=images,
                size=224 if settings.dataset == "imagenet" else None,
                seed=settings.seed,
                batch_size=min(settings.batch_size or BATCH[settings.dataset], images),
                device=settings.device,
                trust=settings.trust,
            )
            folder = settings.out / "runs" / _slug(network) / f"{cell.slug}-first-{images}"
            made.tasks.append(Task(cell, network, spec, folder))
    return made


def _networks(settings: Settings, skipped: list[str]) -> list[Network]:
    """The networks that can be loaded: the paper's or the user's."""
    paper = networks(settings.dataset)
    own = [network_of(settings.dataset, uri) for uri in dict.fromkeys(settings.model)]
    names = [network.name for network in paper]
    if own and not all("@" in network.name and network.name.partition("@")[0] in names for network in own):
        chosen = distinct(own)
    else:  # the user's weights replace those of the paper's network with the same name
        replaced = ([use for use in own if use.model == known.model] or [known] for known in paper)
        chosen = distinct([network for networks_of_one in replaced for network in networks_of_one])
    found = []
    for network in chosen:
        try:
            load(network.name, trust=settings.trust)
            found.append(network)
        except Unavailable as error:
            skipped.append(f"{network.label} ({network.name}) is missing and left out: {error}")
    if not found:
        raise Unavailable(
            f"none of the networks for {settings.dataset} is available. {' '.join(skipped)} Give weights you have, "
            f"--model {chosen[0].name.partition('@')[0]}@<file>, or another network (almakit ls models), whose rows "
            "then stand without published ones."
        )
    return found


def _slug(network: Network) -> str:
    """The folder name of a network's runs. For a network outside the zoo it contains a hash of the URI."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", network.model).strip("-").lower() or "model"
    return name if network.name in ZOO else f"{name}-{hashlib.sha256(network.name.encode()).hexdigest()[:8]}"
