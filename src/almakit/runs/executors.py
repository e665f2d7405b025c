"""Who computes the steps of a run's chunks: this process, or processes beside it. An executor only computes:
``session.py`` orders, retries and stores.

Chunks do not depend on each other and every process uses the same number of threads, so the numbers are those of one
process, bit for bit.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import torch

from ..core import Attack
from ..core.oracle import borrowed
from ..data.dataset import Chunk
from ..errors import AlmakitError
from . import environment
from .attack_text import build_all
from .failures import SpecChanged
from .job import STEPS, Outcome
from .model import Subject, open_model
from .plan import Job, Kept, Notify, Task
from .progress import Progress
from .spec import RunSpec
from .store.files import Array, pack, unpack

TRIES = 3
"""Number of processes that may die under a step before it is given up, or before one has started."""
WORTH = 20.0
"""Seconds of remaining work from which starting more processes, each of which imports torch, pays off."""
Images = tuple[Array, Array | None]
"""A chunk's images (B, ...), bytes where they lie on the 8-bit grid, and its label maps (B, H, W), if it has any."""


class Lost(AlmakitError):
    """A step that was not done through no fault of the run; it is tried again, ``limit`` times at most.

    ``pause``: whether waiting may help. ``apart``: a process died under it, so it must not be tried in this one.
    """

    def __init__(self, reason: str, limit: int = TRIES, node: str = "", pause: bool = False, apart: bool = False):
        super().__init__(reason)
        self.limit, self.node, self.pause, self.apart = limit, node, pause, apart


class Executor:
    """Computes steps. A future ends with an outcome, with ``Lost``, or with the error that ends the run."""

    name = "local"

    @property
    def capacity(self) -> int:
        """Number of steps that may be submitted and not finished."""
        return 1

    def submit(self, job: Job, task: Task, notify: Notify | None = None) -> Future[Outcome]:
        """Start a step; the steps of a chunk come one after the other."""
        raise NotImplementedError

    def expect(self, chunks: int, seconds: float) -> Executor:
        """Return the executor for the remaining chunks, which take one process about ``seconds``."""
        return self

    def close(self) -> None:
        """End at once: the results of running steps are not needed."""


class InProcess(Executor):
    """Steps done where they are submitted."""

    def submit(self, job: Job, task: Task, notify: Notify | None = None) -> Future[Outcome]:
        future: Future[Outcome] = Future()
        try:
            future.set_result(STEPS[task.key.kind](job, task, notify))
        except Exception as error:
            future.set_exception(error)
        return future


class Auto(InProcess):
    """This process alone until the remaining work justifies one process for each core."""

    def __init__(self, progress: Progress):
        self.progress = progress

    def expect(self, chunks: int, seconds: float) -> Executor:
        workers = min(cores() // threads_per_process(), chunks)
        return Processes(workers, self.progress) if seconds >= WORTH and workers > 1 else self


class Processes(Executor):
    """A thread of this process and ``workers - 1`` processes beside it, each with one step at a time."""

    def __init__(self, workers: int, progress: Progress):
        threads = threads_per_process()
        others = [_Worker(number, threads, progress) for number in range(1, workers)]
        self._slots: list[_Slot] = [_Here(threads), *others]

    @property
    def capacity(self) -> int:
        return sum(slot.usable for slot in self._slots)

    def submit(self, job: Job, task: Task, notify: Notify | None = None) -> Future[Outcome]:
        slots = [slot for slot in self._slots if slot.usable and not (task.apart and isinstance(slot, _Here))]
        if not slots:
            future: Future[Outcome] = Future()
            future.set_exception(Lost("the worker process died under it, and no other could be started.", 1))
            return future
        # The process that has the chunk's images and clean pass continues with it.
        slot = min(slots, key=lambda slot: (not slot.last.done(), slot.chunk != task.key.chunk))
        # Images are read by the thread that submits: a data set need not be safe to read from several threads.
        images = None if slot.chunk == task.key.chunk else job.load(task.key.chunk)
        slot.chunk = task.key.chunk
        slot.last = slot.start(job, task, images, notify)
        return slot.last

    def close(self) -> None:
        for slot in self._slots:
            slot.stop()
        for slot in self._slots:
            slot.wait()


class _Slot:
    """A place where one step at a time is done."""

    usable = True
    chunk = -1  # the one whose images are there

    def __init__(self) -> None:
        self.last: Future[Outcome] = Future()
        self.last.cancel()

    def start(self, job: Job, task: Task, images: Chunk | None, notify: Notify | None) -> Future[Outcome]:
        """Start a step; ``images`` are those of its chunk where they are not there."""
        raise NotImplementedError

    def stop(self) -> None:
        """Make the running step end soon."""

    def wait(self) -> None:
        """Wait until it has ended."""


class _CalledOff(Exception):
    """Ends a step in a thread that nobody waits for any more."""


class _Here(_Slot):
    """A thread beside the one that orders and stores."""

    def __init__(self, threads: int):
        super().__init__()
        # The number of threads is a thread's own, and the last bits depend on it.
        self._pool = ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(threads,))
        self._stopped, self._kept = threading.Event(), Kept()

    def start(self, job: Job, task: Task, images: Chunk | None, notify: Notify | None) -> Future[Outcome]:
        return self._pool.submit(self.do, replace(job, kept=self._kept), task, images, notify)

    def do(self, job: Job, task: Task, images: Chunk | None, notify: Notify | None) -> Outcome:
        def before(forwards: float, of: int | None, count: int) -> None:
            if self._stopped.is_set():
                raise _CalledOff
            if notify is not None:
                notify(forwards, of, count)

        if images is not None:
            job.keep(task.key.chunk, images)
        return STEPS[task.key.kind](job, task, before)

    def stop(self) -> None:
        self._stopped.set()

    def wait(self) -> None:
        self._pool.shutdown(cancel_futures=True)


class _Worker(_Slot):
    """A process of its own, started with its first step and again when it died."""

    def __init__(self, number: int, threads: int, progress: Progress):
        super().__init__()
        self.number, self.threads, self.progress = number, threads, progress
        self._pool: ProcessPoolExecutor | None = None
        self._processes: list[Any] = []
        self._opened: Future[None] = Future()
        self._failed_starts = 0

    def start(self, job: Job, task: Task, images: Chunk | None, notify: Notify | None) -> Future[Outcome]:
        future: Future[Outcome] = Future()
        try:
            if self._pool is None:
                self._begin(job)
            assert self._pool is not None
            answer = self._pool.submit(_work, task, None if images is None else images_of(images))
        except (BrokenProcessPool, OSError) as error:
            future.set_exception(self._not_started(str(error)))
            return future
        opened = self._opened

        def finished(answer: Future[Outcome]) -> None:
            if answer.cancelled():
                return
            error = opened.exception() or answer.exception()
            if isinstance(error, BrokenProcessPool):
                future.set_exception(self._died(opened.exception() is None))
            elif error is not None:
                future.set_exception(error)
            else:
                future.set_result(answer.result())

        answer.add_done_callback(finished)
        return future

    def _begin(self, job: Job) -> None:
        self._pool = ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn"), _begin_process, (self.threads, environment.keeps_memory())
        )
        with _as_helper():
            self._opened = self._pool.submit(_open_run, pickle.dumps(sent(job, by_name=True, attacks=())))
        self._processes = list((self._pool._processes or {}).values())

    def _died(self, opened: bool) -> Lost:
        for process in self._processes:
            process.join(10)  # its exit code may come a moment after its end
        codes = [process.exitcode for process in self._processes if process.exitcode is not None]
        how = "it is gone" if not codes else f"signal {-codes[0]}" if codes[0] < 0 else f"exit code {codes[0]}"
        if not opened:
            return self._not_started(how)
        self._pool, self.chunk = None, -1
        return Lost(f"the worker process ended under it ({how}).", apart=True)

    def _not_started(self, why: str) -> Lost:
        self._pool, self.chunk = None, -1
        self._failed_starts += 1
        if self.usable and self._failed_starts >= TRIES:
            self.usable = False
            self.progress.note(
                f"Worker process {self.number} could not be started ({why}); the run continues without it."
            )
        return Lost(f"the worker process could not be started ({why}).", sys.maxsize)

    def stop(self) -> None:
        for process in self._processes:
            process.kill()

    def wait(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


@contextmanager
def _as_helper() -> Iterator[None]:
    """For the time of the block a new process neither gets the terminal's signals nor runs the user's script, which may
    have no guard, again."""
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    masked = hasattr(signal, "pthread_sigmask")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if masked else set()
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        if masked:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


# In the process beside.

_job: list[Job] = []
"""The run that this process works for."""


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
    try:
        _job[:] = [received(pickle.loads(cargo))]  # from the process that started this one
    except Exception as error:
        raise portable(error) from None


def _work(task: Task, images: Images | None) -> Outcome:
    (job,) = _job
    try:
        if images is not None:
            job.keep(task.key.chunk, chunk_of(job, task.key.chunk, images))
        with borrowed(job.subject.model):
            return STEPS[task.key.kind](job, task, None)
    except Exception as error:
        raise portable(error) from None


def portable(error: Exception) -> Exception:
    """The error as another process can raise it: itself where it survives pickling, else its name and message."""
    with suppress(Exception):
        same: Any = pickle.loads(pickle.dumps(error))
        if type(same) is type(error) and str(same) == str(error):
            return error
    if isinstance(error, AlmakitError):
        return AlmakitError(str(error))
    return RuntimeError(f"{type(error).__name__}: {error}")


# What other processes get, here and on a cluster.


def not_sent(*_: Any) -> Any:
    """Stands for the part of a job that other processes do not get, or open by themselves."""
    raise AssertionError("this part of the job is not sent to other processes")


def sent(job: Job, by_name: bool, attacks: Sequence[Attack]) -> Job:
    """The job without images; with ``by_name`` without its models, and without attacks where they are built again."""
    maps = None if job.dataset.maps is None else not_sent
    dataset, surrogate, subject = replace(job.dataset, read=not_sent, maps=maps), job.surrogate, job.subject
    if by_name:
        subject = replace(subject, model=not_sent)
        surrogate = None if surrogate is None else replace(surrogate, model=not_sent)
    return replace(job, dataset=dataset, subject=subject, surrogate=surrogate, attacks=attacks, kept=Kept())


def received(job: Job, device: str | None = None, where: str = "") -> Job:
    """A job that was ``sent``, with the models that are loaded by name and the attacks opened here."""
    subject, surrogate = (
        opened_again(then, job.spec, device, where) if then is not None and then.model is not_sent else then
        for then in (job.subject, job.surrogate)
    )
    assert subject is not None
    return replace(job, subject=subject, surrogate=surrogate, attacks=job.attacks or build_all(job.spec.attacks))


def opened_again(then: Subject, spec: RunSpec, device: str | None, where: str) -> Subject:
    """The model of another process, loaded by its name in this one."""
    here = open_model(then.name, replace(spec, device=device or str(then.device)))
    for name in ("weights_sha256", "code_sha256", "imports_sha256"):
        if getattr(here, name) != getattr(then, name):
            raise SpecChanged(
                f"{then.name} changed while the run was going on{where}; bring back what it was, or choose another "
                "folder (--out)."
            )
    return replace(here.with_features(then.features), maps=then.maps, aim=then.aim, held=then.held)


def images_of(chunk: Chunk) -> Images:
    """A chunk's images as they are sent."""
    return pack(chunk.x.numpy()), None if chunk.maps is None else chunk.maps.numpy()


def chunk_of(job: Job, number: int, images: Images) -> Chunk:
    """The chunk of images that were sent; their hashes were compared where they were read."""
    data, rows = job.dataset, list(job.positions(number))
    x, maps = (
        None if part is None else torch.from_numpy(np.require(part, requirements="W"))
        for part in (unpack(images[0]), images[1])
    )
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


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_per_process() -> int:
    """One, unless OMP_NUM_THREADS says otherwise."""
    number = os.environ.get("OMP_NUM_THREADS", "")
    return int(number) if number.isdigit() and int(number) > 0 else 1
