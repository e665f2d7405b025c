"""How long a reproduction will take: every attack of it tried on a few images for a few passes, before it begins."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

from ..attacks import get
from ..core.model import steady
from ..data import load as load_data
from ..errors import Unavailable
from ..models import load
from ..models.preflight import preflight
from ..runs.checks import at_a_time, looked_at
from ..runs.engines.workers import SMALL
from ..runs.folder import SUMMARY
from .plan import Plan, Task

PASSES, IMAGES = 400, 32
"""Forwards of a trial over all its images, of which there are so many at most; of large images two, and a fiftieth."""
CELL = 0.7
"""Seconds of a cell beside its attack: opening, clean pass, verdict, summary."""


def unfinished(made: Plan) -> list[Task]:
    """The cells that have no summary yet."""
    return [task for task in made.tasks if not (task.folder / SUMMARY).is_file()]


def estimate(made: Plan, workers: int = 1, threads: int = 1) -> float:
    """Seconds the unfinished cells will take: each attack's time for a forward, with all that comes with it, on one of
    the networks, times the forwards it is known to take, times what a pass of the other networks costs more.

    ``workers`` processes of so many ``threads`` share them.
    """
    with _with(threads):
        return _seconds(unfinished(made)) / workers


def _seconds(left: list[Task]) -> float:
    """Of one process."""
    first = {task.network.name: task for task in reversed(left)}
    passes = {name: _pass(task) for name, task in first.items()}
    trials: dict[tuple[str, int], tuple[float, float]] = {}
    seconds = 0.0
    for task in left:
        key = (task.cell.text, min(IMAGES, int(task.spec.batch_size)))
        with suppress(Unavailable):  # a distance whose weights are not at hand: its cell will be left out
            if key not in trials:
                trials[key] = _trial(task, key[1]), passes[task.network.name]
            tried, then = trials[key]
            seconds += tried * task.cell.forwards * (task.spec.limit or 0) * passes[task.network.name] / then + CELL
    return seconds


def _pass(task: Task) -> float:
    """Seconds of a forward and a backward pass of one image."""
    sample = looked_at(load_data(task.spec.data, limit=IMAGES, size=task.spec.size))
    model = load(task.network.name, trust=task.spec.trust)
    return preflight(model, sample.x, sample.labels, batch_size=at_a_time(sample)).seconds or 1.0


def _trial(task: Task, images: int) -> float:
    """Seconds of one image's forward inside the attack, among as many images as a chunk has."""
    sample = looked_at(load_data(task.spec.data, limit=images, size=task.spec.size))
    large = sample.x[0].numel() > SMALL[1]
    x, labels = (sample.x[:2], sample.labels[:2]) if large else (sample.x, sample.labels)
    model = steady(load(task.network.name, trust=task.spec.trust), torch.device("cpu"))
    budget = PASSES // 50 // 2 if large else max(20, PASSES // len(x))
    began = time.perf_counter()
    result = get(task.cell.text)(model, x, labels, budget=budget, check=False)
    return (time.perf_counter() - began) / max(1, int(result.forwards.sum()))


@contextmanager
def _with(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
