"""The engine of one machine: this process and worker processes beside it share the chunks; this process is the only
writer.

Every process uses as many threads as the others, one as a rule, and chunks do not know of each other: the numbers are
those of one process of so many threads, bit for bit.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import IO, Any

import torch
from torch import Tensor, nn

from ...errors import BadInput
from .. import allocator
from ..attacktext import build_all
from ..progress import Silent
from ..store import CLEAN, ChunkKey, FailureRow
from ..work import Bench, Outcome
from . import local
from .helper import START, Order, run_of
from .shipping import images_of

AUTO = "auto"
TRIES = 3  # a chunk under which so many processes die is given up
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
        self.sharing, self.stage = False, _Stage(())
        self._bench: Bench  # the run that is served
        self._change, self._helpers = threading.Condition(), []  # type: threading.Condition, list[_Helper]

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exc: object) -> None:
        self._end()

    @contextmanager
    def serving(self, bench: Bench) -> Iterator[Workers]:
        """For the time of the block: as many threads in this process as in each other, and images that several threads
        may ask for."""
        why = _alone(bench)
        if why and not self.auto and self.workers > 1:
            self.show.note(f"This run stays in one process: {why}.")
        self.sharing = not why and not (self.auto and not small(bench))
        if not self.sharing:
            yield self
            return
        before, read = torch.get_num_threads(), bench.dataset.read
        self._bench, bench.dataset = bench, replace(bench.dataset, read=_one_at_a_time(read))
        torch.set_num_threads(self.threads)
        try:
            yield self
        finally:
            torch.set_num_threads(before)
            bench.dataset = replace(bench.dataset, read=read)

    def __call__(self, bench: Bench, keys: Iterable[ChunkKey]) -> Iterator[Outcome | FailureRow]:
        """The outcome of each piece of work as it is done; a piece under which processes die is given up, an error ends
        the run as in one process."""
        left = list(keys)
        # The clean passes are short, and helpers need what they find.
        if not self.sharing or self.workers < 2 or not left or left[0].kind == CLEAN:
            yield from local.outcomes(bench, left)
            return
        later = sum(info.index > left[0].attack for info in bench.infos) * len(left)
        stage = self._begin(_Stage(left))
        whole = False
        try:
            if not self.auto:
                self.start(len(left) + later - 1)
            while not stage.finished:
                key = stage.take()
                if key is not None:
                    outcome = bench.compute(key)
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
            self._begin(_Stage(()))
            if not whole:
                self._end()

    def start(self, most: int) -> None:
        """Starts the helpers that are not there yet, ``most`` in all at most."""
        while len(self._helpers) < min(self.workers - 1, most):
            self._helpers.append(_Helper(self, len(self._helpers) + 1))

    def ready(self) -> None:
        """Waits until every helper has opened the run or has given up."""
        with self._change:
            self._change.wait_for(lambda: all(helper.open or helper.over for helper in self._helpers))

    def _begin(self, stage: _Stage) -> _Stage:
        with self._change:
            self.stage = stage
            self._change.notify_all()
        return stage

    def _end(self) -> None:
        """Ends the helpers at once: what they are doing is not wanted."""
        with self._change:
            for helper in self._helpers:
                helper.over = True
            self._change.notify_all()
        for helper in self._helpers:
            helper.kill()
        for helper in self._helpers:
            helper.thread.join(10)
        self._helpers = []


class _Stage:
    """Chunks of one attack, shared out between this process and its helpers."""

    def __init__(self, keys: Sequence[ChunkKey]):
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


class _Helper:
    """A process beside this one and the thread that talks to it."""

    def __init__(self, engine: Workers, number: int):
        self.engine, self.number = engine, number
        self.process: subprocess.Popen[bytes] | None = None
        self.open: Bench | None = None  # the run the process has opened
        self.over = False
        self.thread = threading.Thread(target=self._serve, name=f"almakit-helper-{number}", daemon=True)
        self.thread.start()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    def _serve(self) -> None:
        engine = self.engine
        try:
            while not self.over:
                bench = engine._bench
                if self.open is not bench and not self._opened(bench):
                    break
                stage = engine.stage
                key = stage.take(helper=True)
                if key is None:
                    with engine._change:
                        engine._change.wait(0.2)
                    continue
                self._do(bench, stage, key)
        finally:
            self.over = True
            self._stop()
            with engine._change:
                engine._change.notify_all()
            if all(helper.over for helper in engine._helpers):
                _forsaken(engine.stage, engine._bench)

    def _do(self, bench: Bench, stage: _Stage, key: ChunkKey) -> None:
        images = len(bench.positions(key.chunk))
        try:
            infos = [bench.known[position] for position in bench.positions(key.chunk)]
            order = Order(key=key, images=images_of(bench, key.chunk), infos=infos, classes=bench.classes)
        except Exception as error:  # the data set's
            stage.done(key, error)
            return
        try:
            stage.done(key, self._answer(order))
        except (OSError, EOFError, pickle.UnpicklingError):
            if self.over:
                return
            reason = f"the worker process ended under it ({self._stop()})."
            if stage.lost(key, images, reason):
                self.engine.show.note(f"chunk {key.chunk}: {reason} It is tried again.")

    def _opened(self, bench: Bench) -> bool:
        """Whether there is a process that has opened the run; one that dies at it three times is done without."""
        reason = ""
        for _ in range(TRIES):
            try:
                if self.process is None:
                    self.process = started()
                    if self.over:  # perhaps too late to be ended with the others
                        self._stop()
                        return False
                found = self._answer(run_of(bench, self.engine.threads))
            except (
                OSError,
                EOFError,
                pickle.UnpicklingError,
                pickle.PicklingError,
                AttributeError,
                TypeError,
            ) as error:
                ended = self._stop()
                reason = ended if isinstance(error, (OSError, EOFError)) else f"{type(error).__name__}: {error}"
                if self.over:
                    return False
                continue
            if isinstance(found, Exception):
                self.engine.stage.done(ChunkKey(CLEAN, -1, -1), found)
                return False
            with self.engine._change:
                self.open = bench
                self.engine._change.notify_all()
            return True
        self.engine.show.note(
            f"Worker process {self.number} could not be started ({reason}); the run goes on without it."
        )
        return False

    def _answer(self, order: Order) -> Any:
        assert self.process is not None and self.process.stdin is not None and self.process.stdout is not None
        pickle.dump(order, self.process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
        self.process.stdin.flush()
        return pickle.load(self.process.stdout)

    def _stop(self) -> str:
        """Ends the process, if there is one, and says how it ended."""
        process, self.process, self.open = self.process, None, None
        if process is None:
            return "it is gone"
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        code = process.poll()
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            _close(pipe)
        return "it was ended" if code is None else f"signal {-code}" if code < 0 else f"exit code {code}"


def _forsaken(stage: _Stage, bench: Bench) -> None:
    """Gives up what only helpers may do, when there are none left."""
    reason = "the worker process ended under it, and no other could be started."
    while stage.again:
        key = stage.again.popleft()
        stage.done(key, FailureRow(key, len(bench.positions(key.chunk)), stage.deaths[key], reason))


def started(command: str = START) -> subprocess.Popen[bytes]:
    """A process with this one's modules at hand, which no signal of the terminal reaches; ``command`` is its Python."""
    environment = {
        **os.environ,
        **allocator.environment(),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTHONSAFEPATH": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-c", command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )


def _close(pipe: IO[bytes] | None) -> None:
    with suppress(OSError):
        if pipe is not None:
            pipe.close()


def _alone(bench: Bench) -> str:
    """Why a run cannot be shared with other processes; empty where it can."""
    if bench.subject.device.type != "cpu":
        return f"its model is on {bench.subject.device}"
    if not bench.subject.by_name:
        return "its model was given in Python; worker processes load theirs by name or from a file"
    if bench.dataset.maps is not None:
        return "its images have label maps, which are not sent to other processes"
    try:
        same = build_all(bench.spec.attacks) == bench.attacks
    except Exception:  # its text names a function or a class that only this process has
        same = False
    return "" if same else "an attack was given in Python; worker processes make theirs from a text"


def small(bench: Bench) -> bool:
    """Whether processes beside each other serve a model better than threads inside its layers."""
    model = bench.subject.model
    weights = sum(part.numel() for part in model.parameters()) if isinstance(model, nn.Module) else 0
    return weights <= SMALL[0] and bench.dataset.chunk(range(min(1, len(bench.dataset)))).x[:1].numel() <= SMALL[1]


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
