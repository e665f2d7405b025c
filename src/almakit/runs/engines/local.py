"""The engine of one process: one piece of work after the other, and on a GPU one ahead."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator

import torch

from ..failures import CalledOff
from ..job import Attacked, Outcome, compute, judged, start
from ..plan import Job, Progress
from ..store import ChunkKey

Done = Outcome | Attacked | BaseException | None
"""What the thread hands over: a piece of work, an error, or the end."""
PATIENCE = 30.0  # seconds an attack that was called off may take for the pass it is in


def outcomes(job: Job, progress: Progress, keys: Iterable[ChunkKey]) -> Iterator[Outcome]:
    """The outcome of each piece of work, in order; each is stored by the caller before the next begins, or on a GPU
    while the next goes on."""
    if job.subject.device.type == "cuda":
        yield from ahead(job, progress, keys)
        return
    for key in keys:
        outcome = compute(job, progress.task(job, key), progress.tell)
        progress.learn(outcome.batch, outcome.images)
        yield outcome


def ahead(job: Job, progress: Progress, keys: Iterable[ChunkKey]) -> Iterator[Outcome]:
    """The outcome of each piece of work, in order: a thread attacks the next chunk while the caller judges and stores
    the last one.

    The device would otherwise stand still meanwhile (not measured on a GPU yet). The numbers are the same: pieces of
    work do not know of each other.
    """
    done: queue.Queue[Done] = queue.Queue(maxsize=1)
    called_off = threading.Event()
    # The number of threads belongs to a thread, and bits depend on it.
    worker = threading.Thread(
        target=_work,
        args=(job, progress, list(keys), done, called_off, torch.get_num_threads()),
        name="almakit-ahead",
        daemon=True,
    )
    worker.start()
    try:
        while True:
            # With a timeout, so that a signal is heard while an attack goes on.
            found = _next(done)
            if found is None:
                return
            if isinstance(found, BaseException):
                raise found
            with _own_stream(job.subject.device):
                outcome = judged(job, found)
            yield outcome
    finally:
        called_off.set()
        _drain(done)
        worker.join(PATIENCE)


def _next(done: queue.Queue[Done]) -> Done:
    while True:
        try:
            return done.get(timeout=0.2)
        except queue.Empty:
            continue


def _drain(done: queue.Queue[Done]) -> None:
    """Makes room, so that a worker which waits to hand something over can end."""
    while not done.empty():
        done.get_nowait()


def _work(
    job: Job,
    progress: Progress,
    keys: list[ChunkKey],
    done: queue.Queue[Done],
    called_off: threading.Event,
    threads: int,
) -> None:
    torch.set_num_threads(threads)
    try:
        for key in keys:
            if called_off.is_set():
                return
            found = start(job, progress.task(job, key), progress.tell, called_off)
            progress.learn(found.batch, found.images)
            if not called_off.is_set():
                done.put(found)
        done.put(None)
    except CalledOff:
        return
    except BaseException as error:
        if not called_off.is_set():
            done.put(error)


def _own_stream(device: torch.device) -> torch.cuda.StreamContext:
    """A stream of its own for the verdict, so that it does not queue behind the next attack; nothing where there is no
    CUDA."""
    return torch.cuda.stream(torch.cuda.Stream(device) if device.type == "cuda" else None)
