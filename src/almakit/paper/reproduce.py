"""`almakit reproduce`: the paper's grid, cell by cell in run folders of their own, and the report of what is there."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..attacks import get
from ..core.problem import expected_forwards
from ..data import load as load_data
from ..errors import BadInput, Unavailable
from ..models import load
from ..models.preflight import preflight
from ..models.zoo import ZOO
from ..report.write import write_report
from ..runs import chunkfiles
from ..runs.begin import at_a_time, looked_at
from ..runs.engines.workers import Workers
from ..runs.failures import SpecChanged
from ..runs.folder import SUMMARY
from ..runs.progress import Silent
from ..runs.run import execute
from ..runs.spec import RunSpec
from . import layout
from .collect import Collected, collect, join_shards
from .entries import to_json
from .figures import PUBLISHED, draw
from .grid import SAMPLES, Cell, Network, choose, distinct, network_of, networks
from .page import page, remarks
from .sample import images_of

if TYPE_CHECKING:
    from ..runs.loop import Engine

CERTIFIED = ("linf", "l2", "l1")
BATCH = {"mnist": 128, "cifar10": 64, "imagenet": 16}
ONE_PASS_A_STEP = ("alma", "alma-plus", "soft-walk", "fmn", "ddn")
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


@dataclass
class Plan:
    """All that will be run, and sentences about what will not."""

    settings: Settings
    tasks: list[Task] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    joined: set[Path] = field(default_factory=set)


def plan(settings: Settings) -> Plan:
    """What the settings come to on this machine: networks and images that are at hand, cheap attacks before costly
    ones."""
    chosen = choose(settings.dataset, settings.budget, settings.attacks, settings.distances)
    made = Plan(settings)
    found = _networks(settings, made.skipped)
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
    small = [task for task in tasks if math.ceil((task.spec.limit or 0) / int(task.spec.batch_size)) < shards]
    if not small:
        return []
    images = min(task.spec.limit or 0 for task in small)
    return [
        f"{len(small)} of {len(tasks)} cells have fewer chunks than there are shards, so some shards have nothing to "
        "do in them: give all shards the "
        f"same smaller --batch-size, {max(1, images // shards)} for example."
    ]


def _networks(settings: Settings, skipped: list[str]) -> list[Network]:
    """The networks that can be loaded: the paper's, or those the user names."""
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
    found = []
    for network in wanted:
        try:
            load(network.name, trust=settings.trust)
        except Unavailable as error:
            skipped.append(NOT_AT_HAND.format(label=network.label, name=network.name, why=error))
        else:
            found.append(network)
    if not found:
        raise Unavailable(
            f"none of the networks for {settings.dataset} is at hand. "
            + " ".join(skipped)
            + " Name weights you have, e.g. --model "
            f"{wanted[0].name.partition('@')[0]}@<file>, or another network (almakit ls models), whose rows then "
            "stand without published ones."
        )
    return found


def estimate(made: Plan) -> float:
    """Seconds the cells that have no summary yet will take at least: their model calls, timed once for each network;
    distances come on top."""
    seconds = 0.0
    open_tasks = [task for task in made.tasks if not (task.folder / SUMMARY).is_file()]
    for name in dict.fromkeys(task.network.name for task in open_tasks):
        mine = [task for task in open_tasks if task.network.name == name]
        spec = mine[0].spec
        sample = looked_at(load_data(spec.data, limit=32, size=spec.size))
        measured = (
            preflight(load(name, trust=spec.trust), sample.x, sample.labels, batch_size=at_a_time(sample)).seconds
            or 0.0
        )
        for task in mine:
            with suppress(Unavailable):  # a distance whose weights are not at hand: its cell will be left out
                seconds += measured * (task.spec.limit or 0) * (expected_forwards(get(task.cell.text)) or 0)
    return seconds


def run(made: Plan, progress: Silent | None = None, workers: int | str = "auto") -> None:
    """Carries the plan out, going on where it was stopped; a cell whose weights (of LPIPS, say) are not at hand is left
    out with a sentence.

    ``workers`` processes share each cell's chunks, the same for all cells; "auto": as many as there are cores, where it
    is worth it.
    """
    show = progress or Silent()
    with Workers(workers, show) as engine:
        _cells(made, show, engine)


def _cells(made: Plan, show: Silent, engine: Engine) -> None:
    seen: set[str] = set()
    for number, task in enumerate(list(made.tasks), 1):
        show.note(
            f"[{number}/{len(made.tasks)}] {task.network.label}: {layout.name_of(task.cell.distance)}, "
            f"{task.cell.title}, {task.spec.limit} images"
        )
        if made.settings.shard is None:
            join_shards(task.folder, made.joined)
        cell = f"{task.cell.title} ({layout.name_of(task.cell.distance)}) on {task.network.label}"
        try:
            # Networks trained with interval bounds are certified by them, where there are bounds in the cell's
            # distance.
            bound = (
                "ibp"
                if "ibp" in task.network.name and task.cell.distance in CERTIFIED and made.settings.shard is None
                else None
            )
            execute(
                task.spec,
                task.folder,
                shard=made.settings.shard,
                preflight=task.network.name not in seen,
                progress=show,
                engine=engine,
                certify=bound,
            )
            seen.add(task.network.name)
        except Unavailable as error:
            made.skipped.append(f"{cell} is left out: {error}")
            made.tasks.remove(task)
        except SpecChanged as error:
            made.skipped.append(f"{cell} is not gone on with, and what its folder holds stays: {error}")
            made.tasks.remove(task)


def gather(made: Plan) -> Collected:
    """All that lies in the output folder, of this command and of others."""
    found = collect(made.settings.out, made.settings.dataset, [task.network.name for task in made.tasks], made.joined)
    if not found.entries:
        raise BadInput(f"nothing in {made.settings.out} has been run yet.")
    return found


def report(
    made: Plan, found: Collected, figures: bool = True, say: Callable[[str], None] = lambda _: None
) -> list[Path]:
    """Writes ``report/`` in the output folder: the page of all runs, the paper's tables with our numbers, its figures;
    the table page first."""
    out, entries = made.settings.out / "report", found.entries
    written: list[Path] = []
    most = max(found.folders.values())
    whole = [folder for folder, count in found.folders.items() if count == most]
    fewer = [folder for folder, count in found.folders.items() if count != most]
    written += write_report(whole, out, with_figures=figures)
    if fewer:
        written += write_report(fewer, out / "costly", with_figures=figures)
    pictures: list[Path] = []
    sentence = ""
    if figures:
        pictures, finals, name = draw(out)
        pairs = "; ".join(f"{title} {value:.3g} (paper's image: {PUBLISHED[title]})" for title, value in finals.items())
        sentence = (
            f"Final l2 distance of ALMA, 1000 steps, alpha 0.9, on {name}: {pairs}. The paper does not name its image."
        )
        say(sentence)
    means, single = layout.geometric(entries), layout.by_model(entries)
    head = (
        f"The paper's {made.settings.dataset} tables, "
        f"{'and ours' if any(entry.paper for entry in entries) else 'its attacks on other networks'}"
    )
    notes = remarks(made.settings.dataset, [*made.skipped, *found.unfinished])
    texts = {
        "paper.html": page(
            head, notes, means, single, [path for path in pictures if path.suffix == ".png"], sentence, bool(fewer)
        ),
        "paper.md": f"# {head}\n\n{notes}\n\n{layout.markdown([*means, *single])}\n{sentence}\n",
        "paper.csv": layout.comma_separated([*means, *single]),
        "paper.tex": layout.latex([*single, *means]),
        "reproduce.json": to_json(entries, found.environment, made.skipped),
    }
    for name, text in texts.items():
        chunkfiles.write_bytes(out / name, text.encode("utf-8"))
    return [*(out / name for name in texts), *pictures, *written]


def _slug(network: Network) -> str:
    """The folder of a network's runs; one that the zoo's name alone does not say carries a hash of its URI, so that two
    never share a folder."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", network.model).strip("-").lower() or "model"
    return name if network.name in ZOO else f"{name}-{hashlib.sha256(network.name.encode()).hexdigest()[:8]}"


__all__ = ["Plan", "Settings", "Task", "estimate", "gather", "plan", "report", "run"]
