"""`almakit reproduce`: the paper's grid, cell by cell in run folders of their own, and the report of what is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from .. import evaluation
from ..errors import BadInput, Unavailable
from ..report.run import Run, finish
from ..report.write import write_report
from ..runs.certify import certify_run
from ..runs.engines.workers import SMALL, Workers
from ..runs.failures import SpecChanged
from ..runs.model import open_model
from ..runs.plan import Options
from ..runs.progress import Silent
from ..runs.store import files
from ..runs.store.certificates import Certificate
from . import layout, typeset
from .collect import Collected, collect, join_shards
from .crew import Crew, Lost, Order
from .curves import draw_curves
from .entries import to_json
from .estimate import estimate, unfinished
from .figures import PUBLISHED, draw
from .page import page, remarks
from .plan import Plan, Settings, Task, plan

if TYPE_CHECKING:
    from ..runs.session import Engine

CERTIFIED = ("linf", "l2", "l1")
WORTH = 20_000
"""Forwards of single images for which worker processes, each of which imports torch, are worth starting."""


def crowd(made: Plan, workers: int | str = "auto") -> tuple[int, int]:
    """How many processes of how many threads the plan is carried out by."""
    engine = Workers(workers)
    if workers != "auto":
        return engine.workers, engine.threads
    work = sum(task.work for task in unfinished(made))
    alone = made.settings.dataset == "imagenet" or made.weights > SMALL[0] or not _on_cpu(made) or work < WORTH
    return (1, torch.get_num_threads()) if alone else (engine.workers, engine.threads)


def _on_cpu(made: Plan) -> bool:
    device = made.settings.device
    return device == "cpu" or (device == "auto" and not torch.cuda.is_available())


def run(made: Plan, progress: Silent | None = None, workers: int | str = "auto") -> None:
    """Carries the plan out, going on where it was stopped; a cell whose weights (of LPIPS, say) are not at hand is left
    out with a sentence.

    ``workers`` processes share the chunks of a cell, the same for all cells; cells of few chunks are done beside each
    other. "auto": as many as there are cores, where it is worth it. The numbers do not depend on it.
    """
    show = progress or Silent()
    many, threads = crowd(made, workers)
    tasks = list(made.tasks)
    first = {task.network.name: task for task in reversed(tasks)}
    beside = [task for task in tasks if task.chunks < 2 * many and made.settings.shard is None]
    if made.settings.shard is None:
        for task in tasks:
            join_shards(task.folder, made.joined)
    if many < 2 or len(beside) < 2 or not _on_cpu(made):
        beside = []
    beside.sort(key=lambda task: -task.work)  # the longest first, so that the processes end together
    orders = [Order(task.spec, task.folder, task is first[task.network.name], threads) for task in beside]
    for number, (place, found) in enumerate(Crew(orders, many), 1):
        _say(show, beside[place], number, len(tasks))
        if isinstance(found, Exception):
            _left_out(made, beside[place], found)
        else:
            for sentence in found:
                show.note(sentence)
    with Workers(workers, show) as engine:
        for number, task in enumerate((task for task in tasks if task not in beside), 1 + len(beside)):
            _say(show, task, number, len(tasks))
            _carry_out(made, task, task is first[task.network.name], show, engine)
    if made.settings.shard is None:
        _certify(made, show)


def _say(show: Silent, task: Task, number: int, of: int) -> None:
    show.note(
        f"[{number}/{of}] {task.network.label}: {layout.name_of(task.cell.distance)}, {task.cell.title}, "
        f"{task.spec.limit} images"
    )


def _carry_out(made: Plan, task: Task, preflight: bool, show: Silent, engine: Engine) -> None:
    try:
        options = Options(shard=made.settings.shard, preflight=preflight, progress=show, engine=engine)
        evaluation.run(task.spec, task.folder, options)
    except (Unavailable, SpecChanged) as error:
        _left_out(made, task, error)


def _left_out(made: Plan, task: Task, error: Exception) -> None:
    """A sentence for what a cell may end in without stopping the others."""
    if isinstance(error, Unavailable):
        made.skipped.append(f"{task.title} is left out: {error}")
    elif isinstance(error, SpecChanged):
        made.skipped.append(f"{task.title} is not gone on with, and what its folder holds stays: {error}")
    elif isinstance(error, Lost):
        made.skipped.append(f"{task.title} is not finished: {error} The same command goes on.")
    else:
        raise error
    made.tasks.remove(task)


def _certify(made: Plan, show: Silent) -> None:
    """The interval bounds of networks that were trained with them, where there are bounds in a cell's distance: once
    for each image of a network, the cells with the most images first."""
    tasks = [task for task in made.tasks if "ibp" in task.network.name and task.cell.distance in CERTIFIED]
    known: dict[tuple[str | None, str], dict[tuple[str, int], float]] = {}
    for task in sorted(tasks, key=lambda task: -(task.spec.limit or 0)):
        run, norm = Run(task.folder), task.cell.distance
        have = [part for part in run.certificates if (part.norm, part.method) == (norm, "ibp")]
        mine = have[0] if have else Certificate(norm, "ibp", run.model_sha256)
        shared = known.setdefault((run.model_sha256, norm), {})
        missing = {info.index: shared[info.content] for info in run.images if info.content in shared} | mine.radii
        if missing != mine.radii:
            mine.radii = missing
            mine.write(run.folder)
        if not have or len(mine.radii) < len(run.images):
            certify_run(run, open_model(task.spec.model, task.spec), "ibp", (norm,), progress=show)
            finish(task.folder)
        radii = next(part.radii for part in run.certificates if (part.norm, part.method) == (norm, "ibp"))
        shared |= {run.image[index].content: radius for index, radius in radii.items()}


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
        pictures += draw_curves(out, made.settings.out, entries)
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
        "paper.md": f"# {head}\n\n{notes}\n\n{typeset.markdown([*means, *single])}\n{sentence}\n",
        "paper.csv": typeset.comma_separated([*means, *single]),
        "paper.tex": typeset.latex([*single, *means]),
        "reproduce.json": to_json(entries, found.environment, made.skipped),
    }
    for name, text in texts.items():
        files.write_bytes(out / name, text.encode("utf-8"))
    return [*(out / name for name in texts), *pictures, *written]


__all__ = ["Plan", "Settings", "Task", "crowd", "estimate", "gather", "plan", "report", "run"]
