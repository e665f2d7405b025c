"""Who computes the steps of a run's chunks: this process alone, or processes beside it. An executor only computes:
``session.py`` orders, retries and stores.

Chunks do not depend on each other, and every process uses as many threads as the others, so the numbers are those of
one process, bit for bit.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any, Protocol

import torch

from ..core.oracle import borrowed
from ..data.dataset import Chunk
from ..errors import AlmakitError
from . import environment
from .attack_text import build_all
from .failures import CalledOff, SpecChanged
from .job import STEPS, Outcome
from .model import Subject, open_model
from .plan import Job, Kept, Notify, Task
from .progress import Progress
from .spec import RunSpec
from .store.files import Array, pack, unpack

TRIES = 3
"""A chunk under which so many processes end is given up; so is a process that ends so often before it has begun."""
WORTH = 20.0
"""Seconds of work left for which starting more processes, each of which imports torch, is worth it."""


class Lost(AlmakitError):
    """A step that was not done through no fault of the run; it is tried again, ``limit`` times at most.

    ``pause``: whether time may help. ``apart``: a process ended under it, so that it must not be tried in this one.
    """

    def __init__(self, reason: str, limit: int = TRIES, node: str = "", pause: bool = False, apart: bool = False):
        super().__init__(reason)
        self.limit, self.node, self.pause, self.apart = limit, node, pause, apart


class Executor(Protocol):
    """Computes steps. A future ends with an outcome, with ``Lost``, or with the error that ends the run."""

    name: str

    @property
    def capacity(self) -> int:
        """How many steps may be under way."""

    def submit(self, job: Job, task: Task, notify: Notify | None = None) -> Future[Outcome]:
        """Begins a step; the steps of a chunk come one after the other."""

    def expect(self, chunks: int, seconds: float | None) -> Executor:
        """Who does the rest, of so many chunks and about so many seconds for one process (None: not known yet)."""

    def close(self) -> None:
        """Ends at once: what is under way is not needed."""


class InProcess:
    """Steps done at once where they are submitted."""

    name = "local"
    capacity = 1

    def submit(self, job: Job, task: Task, notify: Notify | None = None) -> Future[Outcome]:
        future: Future[Outcome] = Future()
        try:
            future.set_result(STEPS[task.key.kind](job, task, notify))
        except Exception as error:
            future.set_exception(error)
        return future

    def expect(self, chunks: int, seconds: float | None) -> Executor:
        return self

    def close(self) -> None:
        pass


class Auto(InProcess):
    """This process alone until the work left is worth more, then one process for each core."""

    def __init__(self, progress: Progress):
        self.progress = progress

    def expect(self, chunks: int, seconds: float | None) -> Executor:
        workers = min(cores() // threads_per_process(), chunks)
        return self if seconds is None or seconds < WORTH or workers < 2 else Processes(workers, self.progress)


class Processes:
    """``workers`` processes in all, this one among them.

    A process beside this one gets a chunk's images and sends outcomes back. One that dies is replaced; one that cannot
    be started is done without.
    """

    name = "local"

    def __init__(self, workers: int, progress: Progress):
        threads = threads_per_process()
        others = [_Process(number, threads, progress) for number in range(1, workers)]
        self._slots: list[_Slot] = [_Thread(threads), *others]

    @property
    def capacity(self) -> int:
        return sum(slot.usable for slot in self._slots)

    def submit(self, job: Job, task: Task, notify: Notify | None = None) -> Future[Outcome]:
        usable = [slot for slot in self._slots if slot.usable and not (task.apart and isinstance(slot, _Thread))]
        if not usable:
            future: Future[Outcome] = Future()
            future.set_exception(Lost("the worker process ended under it, and no other could be started.", 1))
            return future
        # The process that has the chunk's images and clean pass goes on with it.
        slot = min(usable, key=lambda slot: (not slot.idle, slot.chunk != task.key.chunk))
        return slot.submit(job, task, notify)

    def expect(self, chunks: int, seconds: float | None) -> Executor:
        return self

    def close(self) -> None:
        for slot in self._slots:
            slot.stop()
        for slot in self._slots:
            slot.end()


class _Slot:
    """A place where one step at a time is done, in a thread that waits for it."""

    usable = True

    def __init__(self, threads: int):
        # A signal of the terminal must not reach the processes that this thread starts.
        self.pool = ThreadPoolExecutor(1, initializer=_begin_thread, initargs=(threads,))
        self.chunk = -1  # the one whose images are at hand
        self._images: Chunk | None = None
        self._last: Future[Outcome] | None = None

    @property
    def idle(self) -> bool:
        return self._last is None or self._last.done()

    def submit(self, job: Job, task: Task, notify: Notify | None) -> Future[Outcome]:
        # Images are read by the thread that submits: a data set may not be safe to read from several.
        if self._images is None or self.chunk != task.key.chunk:
            self._images, self.chunk = job.read(task.key.chunk), task.key.chunk
        self._last = self.pool.submit(self.do, job, task, self._images, notify)
        return self._last

    def do(self, job: Job, task: Task, chunk: Chunk, notify: Notify | None) -> Outcome:
        raise NotImplementedError

    def stop(self) -> None:
        """Makes what is under way end soon."""

    def end(self) -> None:
        """Waits for that."""
        self.pool.shutdown(cancel_futures=True)


class _Thread(_Slot):
    """This process's own share of the work, beside the thread that orders and stores."""

    def __init__(self, threads: int):
        super().__init__(threads)
        self._stopped, self._kept = threading.Event(), Kept()

    def do(self, job: Job, task: Task, chunk: Chunk, notify: Notify | None) -> Outcome:
        def before(forwards: float, of: int | None, images: int) -> None:
            if self._stopped.is_set():
                raise CalledOff("the run is over")
            if notify is not None:
                notify(forwards, of, images)

        own = replace(job, kept=self._kept)
        if self._kept.number != task.key.chunk:
            own.keep(task.key.chunk, chunk)
        return STEPS[task.key.kind](own, task, before)

    def stop(self) -> None:
        self._stopped.set()


class _Process(_Slot):
    """A process of its own, started when there is work and again when it died."""

    def __init__(self, number: int, threads: int, progress: Progress):
        super().__init__(threads)
        self.number, self.threads, self.progress = number, threads, progress
        self._processes: ProcessPoolExecutor | None = None
        self._job: Job | None = None  # the one that the process has opened
        self._held = -1  # the chunk whose images it has
        self._stopped = False

    def do(self, job: Job, task: Task, chunk: Chunk, notify: Notify | None) -> Outcome:
        why = ""
        for _ in range(TRIES):
            why = self._open(job)
            if not why or self._stopped:
                break
        if self._processes is None or self._stopped:
            self.usable = False
            if not self._stopped:
                said = f"Worker process {self.number} could not be started ({why}); the run goes on without it."
                self.progress.note(said)
            raise Lost("the worker process could not be started.", sys.maxsize)
        images = None if self._held == task.key.chunk else _images_of(chunk)
        try:
            outcome = self._processes.submit(_work, task, images).result()
        except BrokenProcessPool as error:
            raise Lost(f"the worker process ended under it ({self._ended()}).", apart=True) from error
        self._held = task.key.chunk
        return outcome

    def _open(self, job: Job) -> str:
        """Makes sure that there is a process that has opened the run; why there is none."""
        if self._processes is not None and self._job is job:
            return ""
        try:
            if self._processes is None:
                context = multiprocessing.get_context("spawn")
                settings = (self.threads, environment.keeps_memory())
                self._processes = ProcessPoolExecutor(1, context, _begin_process, settings)
            with _main_left_alone():
                opened = self._processes.submit(_open_run, pickle.dumps(_without_model(job)))
            opened.result()
        except (BrokenProcessPool, OSError) as error:
            return self._ended() if isinstance(error, BrokenProcessPool) else str(error)
        self._job, self._held = job, -1
        return ""

    def _ended(self) -> str:
        """Clears away a process that died, and says how it ended."""
        pool, self._processes, self._job = self._processes, None, None
        assert pool is not None
        processes = _processes_of(pool)
        pool.shutdown()
        codes = [process.exitcode for process in processes if process.exitcode is not None]
        return "it is gone" if not codes else f"signal {-codes[0]}" if codes[0] < 0 else f"exit code {codes[0]}"

    def stop(self) -> None:
        self._stopped = True
        if self._processes is not None:
            for process in _processes_of(self._processes):
                process.kill()

    def end(self) -> None:
        super().end()
        self.stop()  # one that was just being started
        if self._processes is not None:
            self._processes.shutdown()


def _processes_of(pool: ProcessPoolExecutor) -> list[BaseProcess]:
    return list((pool._processes or {}).values())


def _begin_thread(threads: int) -> None:
    torch.set_num_threads(threads)  # the number belongs to a thread, and bits depend on it
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


@contextmanager
def _main_left_alone() -> Iterator[None]:
    """For the time of the block a new process does not run the user's script again, which may have no guard."""
    with _STARTING:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


_STARTING = threading.Lock()

# In the process beside.

Images = tuple[Array, Array | None]
"""A chunk's images (B, ...), bytes where they lie on the 8-bit grid, and its label maps (B, H, W), if it has any."""
_opened: list[Job | Exception] = []
"""The run that this process works for, or why it cannot."""


def _begin_process(threads: int, keep_memory: bool) -> None:
    os.dup2(2, 1)  # what a model prints is not the output of the command
    torch.set_num_threads(threads)
    if keep_memory:
        environment.keep_memory()
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(0)  # it never outlives the run that started it, however that ended

    threading.Thread(target=watch, daemon=True).start()


def _open_run(cargo: bytes) -> None:
    _opened.clear()
    try:
        job: Job = pickle.loads(cargo)  # from the process that started this one
        surrogate = None if job.surrogate is None else opened_again(job.surrogate, job.spec)
        subject = opened_again(job.subject, job.spec)
        _opened.append(replace(job, subject=subject, surrogate=surrogate, attacks=build_all(job.spec.attacks)))
    except Exception as error:
        _opened.append(_portable(error))


def _work(task: Task, images: Images | None) -> Outcome:
    (job,) = _opened
    if isinstance(job, Exception):
        raise job
    try:
        if images is not None:
            job.keep(task.key.chunk, chunk_of(job, task, images))
        with borrowed(job.subject.model):
            return STEPS[task.key.kind](job, task, None)
    except Exception as error:
        raise _portable(error) from None


def _portable(error: Exception) -> Exception:
    """The error as another process can raise it: itself where it survives pickling, else its name and message."""
    with suppress(Exception):
        same: Any = pickle.loads(pickle.dumps(error))
        if type(same) is type(error) and str(same) == str(error):
            return error
    if isinstance(error, AlmakitError):
        return AlmakitError(str(error))
    return RuntimeError(f"{type(error).__name__}: {error}")


# What goes to other processes, here and on a cluster.


def absent(*_: Any) -> Any:
    """Stands for a part of the job that is not sent."""
    raise AssertionError("this part of the job is not sent to other processes")


def without_images(job: Job) -> Job:
    maps = None if job.dataset.maps is None else absent
    return replace(job, dataset=replace(job.dataset, read=absent, maps=maps), kept=Kept())


def _without_model(job: Job) -> Job:
    """The job with its model and attacks left out: the other process makes them from their names."""
    surrogate = None if job.surrogate is None else replace(job.surrogate, model=absent)
    return replace(without_images(job), subject=replace(job.subject, model=absent), surrogate=surrogate, attacks=[])


def _images_of(chunk: Chunk) -> Images:
    return pack(chunk.x.numpy()), None if chunk.maps is None else chunk.maps.numpy()


def images_of(job: Job, number: int) -> Images:
    """A chunk's images as they are sent."""
    return _images_of(job.read(number))


def chunk_of(job: Job, task: Task, images: Images) -> Chunk:
    """A chunk from the images that were sent; they were compared with their hashes where they were read."""
    data, rows = job.dataset, list(job.positions(task.key.chunk))
    x, maps = (None if part is None else torch.from_numpy(_writable(part)) for part in (unpack(images[0]), images[1]))
    assert x is not None
    return Chunk(
        tuple(data.ids[row] for row in rows),
        x,
        data.labels[rows],
        tuple(job.hashes[row] for row in rows),
        None if data.targets is None else data.targets[rows],
        maps,
        None if data.truths is None else data.truths[rows],
    )


def _writable(found: Array) -> Array:
    return found if found.flags.writeable else found.copy()


def opened_again(then: Subject, spec: RunSpec, device: str | None = None, where: str = "") -> Subject:
    """The model of another process, loaded by its name in this one."""
    here = open_model(then.name, replace(spec, device=device or str(then.device)))
    for name in ("weights_sha256", "code_sha256", "imports_sha256"):
        if getattr(here, name) != getattr(then, name):
            raise SpecChanged(
                f"{then.name} changed while the run was going on{where}; bring back what it was, or choose another "
                "folder (--out)."
            )
    return replace(here.with_features(then.features), maps=then.maps, aim=then.aim, held=then.held)


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_per_process() -> int:
    """One, unless OMP_NUM_THREADS says otherwise."""
    number = os.environ.get("OMP_NUM_THREADS", "")
    return int(number) if number.isdigit() and int(number) > 0 else 1
