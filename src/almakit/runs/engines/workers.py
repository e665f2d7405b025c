"""The engine of one machine: this process and worker processes beside it share the chunks; this process is the only
writer.

Every process uses as many threads as the others, one as a rule, and chunks do not know of each other: the numbers are
those of one process of so many threads, bit for bit.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import torch
from torch import Tensor, nn

from ...errors import BadInput
from ..attack_text import build_all
from ..job import Outcome, compute
from ..plan import Job, Progress, own_code
from ..progress import Silent
from ..store import CLEAN, ChunkKey, FailureRow
from . import local
from .helper import TRIES, Helper

AUTO = "auto"
WORTH = 20.0  # seconds of work left for which starting more processes, each of which imports torch, is worth it
SMALL = 20_000_000, 3 * 96 * 96
"""A model of so many weights at most, on images of so many numbers, is small: threads inside its layers gain little,
processes beside it much."""


class Workers:
    """``workers`` processes in all: this one, which also stores, and the others as helpers; ``auto``: one for each
    core, once the work left is worth it.

    A helper gets a chunk's images and sends its outcome. One that dies is replaced and its chunk tried again by a
    helper; a helper that cannot be started is done without.
    """

    name = "local"

    def __init__(self, workers: int | str = AUTO, show: Silent | None = None):
        if workers != AUTO and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
            raise BadInput(f"workers={workers!r}: give a whole number, at least 1, or auto.")
        self.auto, self.show = workers == AUTO, show or Silent()
        self.threads = _threads()
        self.workers = max(1, cores() // self.threads) if self.auto else int(workers)
        self.sharing, self.stage = False, Stage()
        self.job: Job  # of the run that is served, with images that several threads may ask for
        self.change, self.helpers = threading.Condition(), []  # type: threading.Condition, list[Helper]

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exc: object) -> None:
        self._end()

    @contextmanager
    def serving(self, job: Job) -> Iterator[Workers]:
        """For the time of the block: as many threads in this process as in each other."""
        why = _alone(job)
        if why and not self.auto and self.workers > 1:
            self.show.note(f"This run stays in one process: {why}.")
        self.sharing = not why and not (self.auto and not small(job))
        if not self.sharing:
            yield self
            return
        before = torch.get_num_threads()
        self.job = replace(job, dataset=replace(job.dataset, read=_one_at_a_time(job.dataset.read)))
        torch.set_num_threads(self.threads)
        try:
            yield self
        finally:
            torch.set_num_threads(before)

    def __call__(self, job: Job, progress: Progress, keys: Iterable[ChunkKey]) -> Iterator[Outcome | FailureRow]:
        """The outcome of each piece of work as it is done; a piece under which processes die is given up, an error ends
        the run as in one process."""
        left = list(keys)
        # The clean passes are short, and helpers need what they find.
        if not self.sharing or self.workers < 2 or not left or left[0].kind == CLEAN:
            yield from local.outcomes(job, progress, left)
            return
        later = sum(info.index > left[0].attack for info in job.infos) * len(left)
        stage = self._begin(Stage(left, progress))
        whole = False
        try:
            if not self.auto:
                self.start(len(left) + later - 1)
            while not stage.finished:
                key = stage.take()
                if key is not None:
                    outcome = compute(self.job, progress.task(job, key), progress.tell)
                    progress.learn(outcome.batch, outcome.images)
                    stage.done(key)
                    yield outcome
                    if self.auto and outcome.seconds * (len(stage.waiting) + later) > WORTH:
                        self.start(len(stage.waiting) + later)
                while (found := stage.found(wait=key is None)) is not None:
                    if isinstance(found, Exception):
                        raise found
                    yield found
            whole = True
        finally:
            self._begin(Stage())
            if not whole:
                self._end()

    def start(self, most: int) -> None:
        """Starts the helpers that are not there yet, ``most`` in all at most."""
        while len(self.helpers) < min(self.workers - 1, most):
            self.helpers.append(Helper(self, len(self.helpers) + 1))

    def ready(self) -> None:
        """Waits until every helper has opened the run or has given up."""
        with self.change:
            self.change.wait_for(lambda: all(helper.open or helper.over for helper in self.helpers))

    def _begin(self, stage: Stage) -> Stage:
        with self.change:
            self.stage = stage
            self.change.notify_all()
        return stage

    def _end(self) -> None:
        """Ends the helpers at once: what they are doing is not wanted."""
        with self.change:
            for helper in self.helpers:
                helper.over = True
            self.change.notify_all()
        for helper in self.helpers:
            helper.kill()
        for helper in self.helpers:
            helper.thread.join(10)
        self.helpers = []


class Stage:
    """Chunks of one attack, shared out between this process and its helpers."""

    def __init__(self, keys: Sequence[ChunkKey] = (), progress: Progress | None = None):
        self.progress = progress or Progress(1)
        self.waiting, self.again = deque(keys), deque()  # type: deque[ChunkKey], deque[ChunkKey]
        self.flying: set[ChunkKey] = set()
        self.deaths: Counter[ChunkKey] = Counter()
        self.results: queue.Queue[Outcome | FailureRow | Exception] = queue.Queue()
        self.lock = threading.Lock()

    @property
    def finished(self) -> bool:
        with self.lock:
            return not (self.waiting or self.again or self.flying) and self.results.empty()

    def take(self, helper: bool = False) -> ChunkKey | None:
        """The next chunk; one that a process died under is for helpers alone."""
        with self.lock:
            source = self.again if helper and self.again else self.waiting
            if not source:
                return None
            self.flying.add(source[0])
            return source.popleft()

    def done(self, key: ChunkKey, found: Outcome | FailureRow | Exception | None = None) -> None:
        with self.lock:
            if found is not None:
                self.results.put(found)
            self.flying.discard(key)

    def lost(self, key: ChunkKey, images: int, reason: str) -> bool:
        """Notes that a process died under a chunk; whether it is tried again."""
        with self.lock:
            self.deaths[key] += 1
            if again := self.deaths[key] < TRIES:
                self.again.append(key)
            else:
                self.results.put(FailureRow(key, images, TRIES, reason))
            self.flying.discard(key)
        return again

    def found(self, wait: bool) -> Outcome | FailureRow | Exception | None:
        """Something that a helper has, if there is; waits a little, so that a signal is heard."""
        with suppress(queue.Empty):
            return self.results.get(timeout=0.2) if wait else self.results.get_nowait()
        return None

    def forsaken(self, job: Job) -> None:
        """Gives up what only helpers may do, when there are none left."""
        reason = "the worker process ended under it, and no other could be started."
        while self.again:
            key = self.again.popleft()
            self.done(key, FailureRow(key, len(job.positions(key.chunk)), self.deaths[key], reason))


def _alone(job: Job) -> str:
    """Why a run cannot be shared with other processes; empty where it can."""
    if job.subject.device.type != "cpu":
        return f"its model is on {job.subject.device}"
    if own_code(job.spec.goal):
        return "its goal is code of your own, which worker processes do not have"
    for subject, what in ((job.subject, "model"), (job.surrogate, "surrogate")):
        if subject is not None and not subject.by_name:
            return f"its {what} was given in Python; worker processes load theirs by name or from a file"
    try:
        same = build_all(job.spec.attacks) == job.attacks
    except Exception:  # its text names a function or a class that only this process has
        same = False
    return "" if same else "an attack was given in Python; worker processes make theirs from a text"


def small(job: Job) -> bool:
    """Whether processes beside each other serve a model better than threads inside its layers."""
    model = job.subject.model
    weights = sum(part.numel() for part in model.parameters()) if isinstance(model, nn.Module) else 0
    return weights <= SMALL[0] and job.dataset.chunk(range(min(1, len(job.dataset)))).x[:1].numel() <= SMALL[1]


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _threads() -> int:
    """Threads of each process: one, unless somebody has asked for more."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdigit() and int(given) > 0 else 1


def _one_at_a_time(read: Callable[[Sequence[int]], Tensor]) -> Callable[[Sequence[int]], Tensor]:
    lock = threading.Lock()

    def locked(wanted: Sequence[int]) -> Tensor:
        with lock:
            return read(wanted)

    return locked
