"""One piece of work ahead: a thread attacks the next chunk while the caller judges and stores the last one.

What a local run does where the model is on another device than the CPU, which would otherwise stand still meanwhile
(not measured on a GPU yet). The numbers are those of the plain engine: pieces of work do not know of each other, and
outcomes come in order.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator

import torch

from ..failures import CalledOff
from ..store import ChunkKey
from ..work import Bench, Outcome

PATIENCE = 30.0  # seconds an attack that was called off may take for the pass it is in


def outcomes(bench: Bench, keys: Iterable[ChunkKey]) -> Iterator[Outcome]:
    """The outcome of each piece of work, in order; the verdict is made here, in the caller's thread."""
    done: queue.Queue[Callable[[], Outcome] | BaseException | None] = queue.Queue(maxsize=1)
    bench.called_off = called_off = threading.Event()
    # The number of threads belongs to a thread, and bits depend on it.
    worker = threading.Thread(
        target=_work,
        args=(bench, list(keys), done, called_off, torch.get_num_threads()),
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
            with _own_stream(bench.subject.device):
                outcome = found()
            yield outcome
    finally:
        called_off.set()
        _drain(done)
        worker.join(PATIENCE)
        bench.called_off = None


def _next(
    done: queue.Queue[Callable[[], Outcome] | BaseException | None],
) -> Callable[[], Outcome] | BaseException | None:
    while True:
        try:
            return done.get(timeout=0.2)
        except queue.Empty:
            continue


def _drain(done: queue.Queue[Callable[[], Outcome] | BaseException | None]) -> None:
    """Makes room, so that a worker which waits to hand something over can end."""
    while not done.empty():
        done.get_nowait()


def _work(
    bench: Bench,
    keys: list[ChunkKey],
    done: queue.Queue[Callable[[], Outcome] | BaseException | None],
    called_off: threading.Event,
    threads: int,
) -> None:
    torch.set_num_threads(threads)
    try:
        for key in keys:
            if called_off.is_set():
                return
            finish = bench.start(key)
            if not called_off.is_set():
                done.put(finish)
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
