"""Cells beside each other: worker processes that do whole cells, where a cell has too few chunks to be shared out.

Each process has the threads of a shared run's (one as a rule), so that a cell has the bits of one process.
"""

from __future__ import annotations

import pickle
import queue
import subprocess
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from .. import evaluation
from ..errors import AlmakitError
from ..runs.engines.helper import TRIES, asked, ended, serve, started
from ..runs.plan import Options
from ..runs.progress import Silent
from ..runs.session import Stop
from ..runs.spec import RunSpec

START = "from almakit.paper.crew import main; main()"


@dataclass(frozen=True)
class Order:
    """A cell: what to run, and where."""

    spec: RunSpec
    folder: Path
    preflight: bool
    threads: int


class Lost(AlmakitError):
    """A process ended under a cell as often as it was tried."""


class Notes(Silent):
    """Keeps the sentences of a run for the process that will say them."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, sentence: str) -> None:
        self.said.append(sentence)


def main() -> None:
    """A worker process: cells in, what was said of them out."""
    serve(_carry_out)


def _carry_out(order: Order) -> list[str]:
    torch.set_num_threads(order.threads)
    notes = Notes()
    evaluation.run(order.spec, order.folder, Options(preflight=order.preflight, progress=notes))
    return notes.said


class Crew:
    """``workers`` processes that take one cell after the other; this process stores nothing and waits."""

    def __init__(self, orders: Sequence[Order], workers: int):
        self._orders, self._waiting = orders, deque(range(len(orders)))
        self._deaths: Counter[int] = Counter()
        self._found: queue.Queue[tuple[int, list[str] | Exception]] = queue.Queue()
        self._over = False
        self._processes: list[subprocess.Popen[bytes]] = []
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(min(workers, len(orders)))]

    def __iter__(self) -> Iterator[tuple[int, list[str] | Exception]]:
        """Each cell's place with what was said of it or the error it ended in, as they are done."""
        with Stop().watching():
            try:
                for thread in self._threads:
                    thread.start()
                for _ in self._orders:
                    yield self._next()
            finally:
                self._over = True
                for process in self._processes:
                    process.kill()
                for thread in self._threads:
                    thread.join(10)

    def _next(self) -> tuple[int, list[str] | Exception]:
        while True:
            with suppress(queue.Empty):
                return self._found.get(timeout=0.2)  # so that a signal is heard

    def _serve(self) -> None:
        process = None
        while not self._over:
            try:
                place = self._waiting.popleft()
            except IndexError:
                break
            try:
                if process is None:
                    process = started(START)
                    self._processes.append(process)
                self._found.put((place, asked(process, self._orders[place])))
            except (OSError, EOFError, pickle.UnpicklingError):
                how, process = ended(process) if process else "it could not be started", None
                self._deaths[place] += 1
                if self._deaths[place] < TRIES:
                    self._waiting.appendleft(place)
                else:
                    self._found.put((place, Lost(f"its worker process ended under it {TRIES} times ({how}).")))
        if process is not None:
            ended(process, 0.0)
