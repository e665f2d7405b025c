"""`almakit reproduce`: the paper's grid, cell by cell in run folders of their own, and the report of what is there."""

from __future__ import annotations

import base64
import html
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import BadInput, Unavailable
from ..eval import chunkfiles
from ..eval.folder import Run
from ..eval.progress import Silent
from ..eval.spec import RunSpec
from ..report.palette import css
from . import layout
from .entries import Entry, entry_of, to_json
from .grid import SAMPLES, Cell, Network, choose, networks
from .sample import images_of

BATCH = {"mnist": 128, "cifar10": 64, "imagenet": 16}
ONE_PASS_A_STEP = ("alma", "alma-plus", "fmn", "ddn")
NOT_AT_HAND = "{label} ({name}) is not at hand and left out: {why}"


@dataclass(frozen=True)
class Settings:
    """What is asked for. ``limit`` images for each cell, ``costly_limit`` for the costly attacks; None is the paper's number."""

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


def plan(settings: Settings) -> Plan:
    """What the settings come to on this machine: networks and images that are at hand, cheap attacks before costly ones."""
    chosen = choose(settings.dataset, settings.budget, settings.attacks, settings.distances)
    made = Plan(settings)
    found = _networks(settings, made.skipped)
    data, count, note = images_of(settings.dataset, settings.data, settings.out)
    if note:
        made.skipped.append(note)
    most = min(count, settings.limit or SAMPLES[settings.dataset])
    few = settings.costly_limit or (most if settings.limit is None else max(1, math.ceil(settings.limit / 5)))
    size = settings.batch_size or BATCH[settings.dataset]
    for cell in sorted(chosen, key=lambda cell: (cell.costly, cell.size != "small", cell.attack not in ONE_PASS_A_STEP)):
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
            folder = settings.out / "runs" / _slug(network.model) / f"{cell.slug}-first-{images}"
            made.tasks.append(Task(cell, network, spec, folder))
    return made


def _networks(settings: Settings, skipped: list[str]) -> list[Network]:
    """The networks that can be loaded: the paper's, or those the user names."""
    from ..models import load

    paper = {network.name: network for network in networks(settings.dataset)}
    wanted = list(paper.values())
    if settings.models:
        wanted = []
        for uri in settings.models:
            known = paper.get(uri.partition("@")[0])
            wanted.append(replace(known, name=uri) if known else Network(settings.dataset, uri.rpartition("/")[2], uri, uri))
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
            f"none of the networks for {settings.dataset} is at hand. " + " ".join(skipped) + " Name weights you have, e.g. --model "
            f"{wanted[0].name.partition('@')[0]}@<file>, or another network (almakit ls models), whose rows then stand without published ones."
        )
    return found


def run(made: Plan, progress: Silent | None = None) -> None:
    """Carries the plan out, going on where it was stopped; a cell whose weights (of LPIPS, say) are not at hand is left out with a sentence."""
    from ..eval.run import execute

    show = progress or Silent()
    seen: set[str] = set()
    for number, task in enumerate(list(made.tasks), 1):
        show.note(f"[{number}/{len(made.tasks)}] {task.network.label}: {layout.name_of(task.cell.distance)}, {task.cell.title}, {task.spec.limit} images")
        if made.settings.shard is None:
            _join_shards(task.folder)
        try:
            execute(task.spec, task.folder, shard=made.settings.shard, preflight=task.network.name not in seen, progress=show)
            seen.add(task.network.name)
        except Unavailable as error:
            made.skipped.append(f"{task.cell.title} ({layout.name_of(task.cell.distance)}) on {task.network.label} is left out: {error}")
            made.tasks.remove(task)


def _join_shards(folder: Path) -> None:
    """Takes over what shards have done in this folder."""
    if any(folder.glob("records-*-of-*.sqlite")):
        from ..eval.merge import merge

        merge([folder])


def collect(made: Plan) -> tuple[list[Entry], dict[str, Any] | None]:
    """The entries of the run folders that exist, in the paper's order, and the machine of the first."""
    entries, environment = [], None
    for task in _in_order(made):
        if not (task.folder / "records.sqlite").is_file():
            continue
        opened = Run(task.folder)
        entries.append(entry_of(opened, task.cell, task.network, task.folder.relative_to(made.settings.out).as_posix()))
        environment = environment or opened.summary["environment"]
    return entries, environment


def _in_order(made: Plan) -> list[Task]:
    order = {cell: number for number, cell in enumerate(choose(made.settings.dataset))}
    return sorted(made.tasks, key=lambda task: order[task.cell])


def report(made: Plan, figures: bool = True, say: Callable[[str], None] = lambda _: None) -> list[Path]:
    """Writes ``report/`` in the output folder: the page of all runs, the paper's tables with our numbers, its figures; the table page first."""
    from ..report.write import write_report

    out = made.settings.out / "report"
    entries, environment = collect(made)
    if not entries:
        raise BadInput(f"nothing in {made.settings.out} has been run yet.")
    written: list[Path] = []
    counts = {task.folder: task.spec.limit for task in made.tasks if (task.folder / "records.sqlite").is_file()}
    most = max(count or 0 for count in counts.values())
    whole = [folder for folder, count in counts.items() if count == most]
    fewer = [folder for folder, count in counts.items() if count != most]
    written += write_report(whole, out, with_figures=figures)
    if fewer:
        written += write_report(fewer, out / "costly", with_figures=figures)
    pictures: list[Path] = []
    sentence = ""
    if figures:
        from .figures import PUBLISHED, draw

        pictures, finals, name = draw(out)
        pairs = "; ".join(f"{title} {value:.3g} (paper's image: {PUBLISHED[title]})" for title, value in finals.items())
        sentence = f"Final l2 distance of ALMA, 1000 steps, alpha 0.9, on {name}: {pairs}. The paper does not name its image."
        say(sentence)
    means, single = layout.geometric(entries), layout.by_model(entries)
    head = f"The paper's {made.settings.dataset} tables, {'and ours' if any(entry.paper for entry in entries) else 'its attacks on other networks'}"
    texts = {
        "paper.html": _page(head, made, means, single, [path for path in pictures if path.suffix == ".png"], sentence, bool(fewer)),
        "paper.md": f"# {head}\n\n{_remarks(made)}\n\n{layout.markdown([*means, *single])}\n{sentence}\n",
        "paper.csv": layout.comma_separated([*means, *single]),
        "paper.tex": layout.latex([*single, *means]),
        "reproduce.json": to_json(entries, environment, made.skipped),
    }
    for name, text in texts.items():
        chunkfiles.write_bytes(out / name, text.encode("utf-8"))
    return [*(out / name for name in texts), *pictures, *written]


def _remarks(made: Plan) -> str:
    return "\n".join(
        [
            "Success and median are over all images: already wrong counts 0, nothing found infinite; – is a median that is not defined, because fewer "
            "than half of the images were fooled. Forwards and backwards are per attacked image. Ratio is our median over the paper's, which is of "
            f"{SAMPLES[made.settings.dataset]} images.",
            *(f"- {sentence}" for sentence in made.skipped),
        ]
    )


def _page(head: str, made: Plan, means: Sequence[layout.Table], single: Sequence[layout.Table], pictures: Sequence[Path], sentence: str, costly: bool) -> str:
    """One page that needs nothing from outside; the pictures are inside it."""
    style = (
        f"{css()} body{{font:15px/1.5 system-ui,sans-serif;background:var(--page);color:var(--text);max-width:72rem;margin:2rem auto;padding:0 1rem}}"
        "table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.2rem .6rem;text-align:right;border-bottom:1px solid var(--line)}"
        "td:first-child,th:first-child{text-align:left}div{overflow-x:auto}img{max-width:100%;background:#fff}a{color:var(--accent)}"
    )
    images = "".join(
        f'<h3>{html.escape(path.stem)}</h3><img alt="{html.escape(path.stem)}" src="data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}">\n'
        for path in pictures
    )
    notes = "".join(f"<p>{html.escape(line)}</p>\n" for line in _remarks(made).split("\n"))
    links = '<p><a href="index.html">Curves, images and every number of the runs</a>'
    links += ', <a href="costly/index.html">the same for the attacks on fewer images</a></p>' if costly else "</p>"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(head)}</title>\n<style>{style}</style></head>\n<body><h1>{html.escape(head)}</h1>\n{notes}{links}\n"
        f"{'<h2>Geometric means</h2>' if means else ''}{layout.web_tables(means)}\n<h2>Model by model</h2>\n{layout.web_tables(single)}\n"
        f"{'<h2>Figures</h2>' if images else ''}{images}<p>{html.escape(sentence)}</p></body></html>\n"
    )


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", name.partition("@")[0]).strip("-").lower() or "model"


__all__ = ["Plan", "Settings", "Task", "collect", "plan", "report", "run"]
