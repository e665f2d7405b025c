"""Executors compute the steps of a run's chunks, in this process or in worker processes. ``session.py`` chooses the
steps, retries them and stores their outcomes.

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
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.oracle import borrowed
from ..data.dataset import Chunk
from ..errors import AlmakitError
from . import environment
from .attack_text import build_all
from .failures import SpecChanged
from .job import STEPS, Outcome
from .model import Subject, open_model
from .plan import Job, Kept, Notify, Task
from .spec import RunSpec
from .store.files import pack, unpack

TRIES = 3
"""Number of worker processes that may die during a step before it is given up."""


class Lost(AlmakitError):
    """A step failed for an external reason, such as a process that was killed. It is tried again, up to ``limit``
    times."""

    def __init__(self, reason: str, limit: int = TRIES):
        super().__init__(reason)
        self.limit = limit


class Executor:
    """Computes steps. A future's result is an outcome; its exception is ``Lost`` or the error that ends the run."""

    name = "local"

    @property
    def capacity(self) -> int:
        """The largest number of unfinished steps."""
        return 1

    def submit(self, job: Job, task: Task, notify: Notify | None = None) -> Future[Outcome]:
        """Start a step. Steps of one chunk are submitted one after the other."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop immediately and discard running steps."""


class InProcess(Executor):
    """Computes each step in ``submit``."""

    def submit(self, job: Job, task: Task, notify: Notify | None = None) -> Future[Outcome]:
        future: Future[Outcome] = Future()
        try:
            future.set_result(STEPS[task.key.kind](job, task, notify))
        except Exception as error:
            future.set_exception(error)
        return future


class Processes(Executor):
    """Worker processes that compute one step at a time each."""

    def __init__(self, workers: int):
        self._workers = [_Worker() for _ in range(workers)]

    @property
    def capacity(self) -> int:
        return len(self._workers)

    def submit(self, job: Job, task: Task, notify: Notify | None = None) -> Future[Outcome]:
        # A chunk stays with the worker that has its images and clean pass.
        free = [worker for worker in self._workers if worker.last is None or worker.last.done()]
        worker = min(free, key=lambda worker: worker.chunk != task.key.chunk)
        worker.last = worker.start(job, task)
        return worker.last

    def close(self) -> None:
        for worker in self._workers:
            if worker.pool is not None:
                for process in list((worker.pool._processes or {}).values()):
                    process.kill()
                worker.pool.shutdown(cancel_futures=True)


class _Worker:
    """A pool of one process. It starts with the first step, and again if the process dies."""

    def __init__(self) -> None:
        self.pool: ProcessPoolExecutor | None = None
        self.chunk = -1  # whose images it has
        self.last: Future[Outcome] | None = None

    def start(self, job: Job, task: Task) -> Future[Outcome]:
        pool = self.pool = self.pool or _pool(job)
        # Images are read here once, because a data set may not be safe to read in several processes.
        images = None if self.chunk == task.key.chunk else sendable(job.load(task.key.chunk))
        self.chunk = task.key.chunk
        future, answer = Future[Outcome](), Future[Outcome]()
        # The new process must not run the user's script again, which may lack an `if __name__ == "__main__"` guard.
        main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
        try:
            answer = pool.submit(_work, task, images)
        except (BrokenProcessPool, OSError) as error:
            answer.set_exception(BrokenProcessPool(str(error)))
        finally:
            sys.modules["__main__"] = main
        processes = list((pool._processes or {}).values())
        answer.add_done_callback(lambda answer: self._finish(answer, processes, future))
        return future

    def _finish(self, answer: Future[Outcome], processes: list[Any], future: Future[Outcome]) -> None:
        if answer.cancelled():
            return
        error = answer.exception()
        if error is None:
            future.set_result(answer.result())
        elif isinstance(error, BrokenProcessPool):
            self.pool, self.chunk = None, -1
            for process in processes:
                process.join(10)  # its exit code may come a moment after its end
            codes = [process.exitcode for process in processes if process.exitcode is not None]
            future.set_exception(Lost(f"the worker process ended under it (exit code {codes[0] if codes else '?'})."))
        else:
            future.set_exception(error)


def _pool(job: Job) -> ProcessPoolExecutor:
    # Where possible, workers are forked from a server process that has imported torch.
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context: Any = multiprocessing.get_context(method)
    context.set_forkserver_preload([__name__])
    settings = threads_per_process(), environment.keeps_memory(), pickle.dumps(sent(replace(job, attacks=()), True))
    return ProcessPoolExecutor(1, context, _begin_process, settings)


# In the worker process.

_job: list[Job | Exception] = []
"""The job of the run that this process works for, or the error of opening it."""


def _begin_process(threads: int, keep_memory: bool, job: bytes) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started it decides
    os.dup2(2, 1)  # what a model prints is not the output of the command
    torch.set_num_threads(threads)
    if keep_memory:
        environment.keep_memory()
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(0)  # ends with the process that started it, even if that one is killed

    threading.Thread(target=watch, daemon=True).start()
    try:
        _job.append(received(pickle.loads(job)))  # from the process that started this one
    except Exception as error:
        _job.append(portable(error))


def _work(task: Task, images: dict[str, Any] | None) -> Outcome:
    if isinstance(job := _job[0], Exception):
        raise job
    try:
        return compute(job, task, images)
    except Exception as error:
        raise portable(error) from None


def compute(job: Job, task: Task, images: dict[str, Any] | None) -> Outcome:
    """Compute a step in a worker process. ``images`` are those of the chunk, None if the process has them already."""
    if images is not None and job.kept.number != task.key.chunk:
        arrays = {name: part for name, part in images.items() if isinstance(part, np.ndarray)}
        arrays["x"] = unpack(arrays["x"])
        tensors = {name: torch.from_numpy(np.array(part)) for name, part in arrays.items()}
        job.keep(task.key.chunk, Chunk(**{**images, **tensors}))
    with borrowed(job.subject.model):
        return STEPS[task.key.kind](job, task, None)


def portable(error: Exception) -> Exception:
    """An error that can be sent to another process: itself if it can be pickled, otherwise one with its name and
    message."""
    with suppress(Exception):
        same: Any = pickle.loads(pickle.dumps(error))
        if type(same) is type(error) and str(same) == str(error):
            return error
    if isinstance(error, AlmakitError):
        return AlmakitError(str(error))
    return RuntimeError(f"{type(error).__name__}: {error}")


# What is sent to other processes, on this machine and on a cluster.


def not_sent(*_: Any) -> Any:
    """Placeholder for a part of a job that is not sent to other processes."""
    raise AssertionError("this part of the job is not sent to other processes")


def sent(job: Job, by_name: bool) -> Job:
    """The job without its images and, with ``by_name``, without its models."""
    dataset = replace(job.dataset, read=not_sent, maps=None if job.dataset.maps is None else not_sent)
    job = replace(job, dataset=dataset, hashes=(), kept=Kept())
    return job.with_models(lambda subject: replace(subject, model=not_sent)) if by_name else job


def received(job: Job, device: str | None = None, where: str = "") -> Job:
    """A job from ``sent``, with models that are loaded by name and attacks built in this process."""
    job = job.with_models(
        lambda subject: opened_again(subject, job.spec, device, where) if subject.model is not_sent else subject
    )
    return replace(job, attacks=job.attacks or build_all(job.spec.attacks))


def opened_again(then: Subject, spec: RunSpec, device: str | None, where: str) -> Subject:
    """A model loaded in this process by its name."""
    here = open_model(then.name, replace(spec, device=device or str(then.device)))
    if any(here.facts[name] != then.facts[name] for name in ("weights_sha256", "code_sha256", "imports_sha256")):
        raise SpecChanged(f"{then.name} changed while the run was going on{where}; choose another folder (--out).")
    return replace(here.with_features(then.features), goal=then.goal, aimed=then.aimed)


def sendable(chunk: Chunk) -> dict[str, Any]:
    """The parts of a chunk as numpy arrays, with images as bytes if they lie on the 8-bit grid."""
    parts = {name: part.numpy() if isinstance(part, Tensor) else part for name, part in vars(chunk).items()}
    return parts | {"x": pack(parts["x"])}


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_per_process() -> int:
    """One, unless OMP_NUM_THREADS says otherwise."""
    number = os.environ.get("OMP_NUM_THREADS", "")
    return int(number) if number.isdigit() and int(number) > 0 else 1
