"""Executors: they compute the steps of a run's chunks, in this process or in worker processes. ``session.py`` orders,
retries and stores.

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
from concurrent.futures import Future, ProcessPoolExecutor
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
from ..errors import AlmakitError, Unavailable
from . import environment
from .attack_text import build_all
from .failures import SpecChanged
from .job import STEPS, Outcome
from .model import Subject, open_model
from .plan import Job, Kept, Notify, Task
from .spec import RunSpec
from .store.files import Array, pack, unpack

TRIES = 3
"""Number of worker processes that may die during a step before it is given up, or before one has started."""
WORTH = 20.0
"""Seconds of remaining work from which starting worker processes, which import torch, pays off."""
Images = tuple[Array, Array | None]
"""A chunk's images (B, ...), uint8 if they lie on the 8-bit grid, and its label maps (B, H, W), if it has any."""


class Lost(AlmakitError):
    """A step failed through no fault of the run; it is tried again, up to ``limit`` times. ``pause``: whether waiting
    may help."""

    def __init__(self, reason: str, limit: int = TRIES, node: str = "", pause: bool = False):
        super().__init__(reason)
        self.limit, self.node, self.pause = limit, node, pause


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
    """Computes steps where they are submitted."""

    def submit(self, job: Job, task: Task, notify: Notify | None = None) -> Future[Outcome]:
        future: Future[Outcome] = Future()
        try:
            future.set_result(STEPS[task.key.kind](job, task, notify))
        except Exception as error:
            future.set_exception(error)
        return future


class Auto(InProcess):
    """This process until the remaining work justifies one worker process for each core."""

    def expect(self, chunks: int, seconds: float) -> Executor:
        workers = min(cores() // threads_per_process(), chunks)
        return Processes(workers) if seconds >= WORTH and workers > 1 else self


class Processes(Executor):
    """Worker processes, each with one step at a time."""

    def __init__(self, workers: int):
        self._workers = [_Worker() for _ in range(workers)]

    @property
    def capacity(self) -> int:
        return len(self._workers)

    def submit(self, job: Job, task: Task, notify: Notify | None = None) -> Future[Outcome]:
        # The worker that has the chunk's images and clean pass continues with it.
        worker = min(self._workers, key=lambda worker: (not worker.last.done(), worker.chunk != task.key.chunk))
        worker.last = worker.start(job, task)
        return worker.last

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()


class _Worker:
    """A process that is started with its first step, and again after it died."""

    def __init__(self) -> None:
        self.chunk = -1  # whose images it has
        self.last: Future[Outcome] = Future()
        self.last.cancel()
        self._pool: ProcessPoolExecutor | None = None
        self._opened: Future[None] = Future()
        self._failed_starts = 0

    def start(self, job: Job, task: Task) -> Future[Outcome]:
        future: Future[Outcome] = Future()
        try:
            pool = self._pool = self._pool or self._begin(job)
            # Images are read here, once: a data set need not be safe to read in several processes.
            images = None if self.chunk == task.key.chunk else images_of(job.load(task.key.chunk))
            answer = pool.submit(_work, task, images)
        except (BrokenProcessPool, OSError) as error:
            future.set_exception(self._not_started(str(error)))
            return future
        self.chunk = task.key.chunk
        opened, processes = self._opened, list((pool._processes or {}).values())

        def finished(answer: Future[Outcome]) -> None:
            if answer.cancelled():
                return
            error = opened.exception() or answer.exception()
            if isinstance(error, BrokenProcessPool):
                error = self._died(processes, opened.exception() is None)
            if error is None:
                future.set_result(answer.result())
            else:
                future.set_exception(error)

        answer.add_done_callback(finished)
        return future

    def _begin(self, job: Job) -> ProcessPoolExecutor:
        # Workers are forked from a server process that has imported torch, where the system can do that.
        method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        context: Any = multiprocessing.get_context(method)
        context.set_forkserver_preload([__name__])
        pool = ProcessPoolExecutor(1, context, _begin_process, (threads_per_process(), environment.keeps_memory()))
        with _without_main():
            self._opened = pool.submit(_open_run, pickle.dumps(sent(job, by_name=True, attacks=())))
        return pool

    def _died(self, processes: list[Any], opened: bool) -> AlmakitError:
        for process in processes:
            process.join(10)  # its exit code may come a moment after its end
        codes = [process.exitcode for process in processes if process.exitcode is not None]
        how = "it is gone" if not codes else f"signal {-codes[0]}" if codes[0] < 0 else f"exit code {codes[0]}"
        if not opened:
            return self._not_started(how)
        self._pool, self.chunk = None, -1
        return Lost(f"the worker process ended under it ({how}).")

    def _not_started(self, why: str) -> AlmakitError:
        self._pool, self.chunk = None, -1
        self._failed_starts += 1
        if self._failed_starts < TRIES:
            return Lost(f"the worker process could not be started ({why}).", sys.maxsize)
        return Unavailable(f"worker processes cannot be started here ({why}); --workers 1 needs none.")

    def kill(self) -> None:
        if self._pool is not None:
            for process in list((self._pool._processes or {}).values()):
                process.kill()
            self._pool.shutdown(cancel_futures=True)


@contextmanager
def _without_main() -> Iterator[None]:
    """A process started in this block does not run the user's script again, which may have no guard."""
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


# In the worker process.

_job: list[Job] = []
"""The run that this process works for."""


def _begin_process(threads: int, keep_memory: bool) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started it decides
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
    try:
        return compute(_job[0], task, images)
    except Exception as error:
        raise portable(error) from None


def compute(job: Job, task: Task, images: Images | None) -> Outcome:
    """A step in a process that does not read images itself; None: it has those of the chunk."""
    if images is not None and job.kept.number != task.key.chunk:
        job.keep(task.key.chunk, chunk_of(job, task.key.chunk, images))
    with borrowed(job.subject.model):
        return STEPS[task.key.kind](job, task, None)


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
