"""A worker process of a run: reads pieces of work from its standard input, writes their outcomes to what was its
standard output.

Started by ``workers``; it ends when its input does, so that it never outlives the run that started it, however that
ended.
"""

from __future__ import annotations

import os
import pickle
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import torch

from ...errors import AlmakitError
from ..attacktext import build_all
from ..chunkfiles import Array
from ..failures import SpecChanged
from ..records import ImageInfo
from ..store import ChunkKey
from ..subject import open_model
from ..work import Bench
from .shipping import bare, holding, left_behind

START = "from almakit.runs.engines.helper import main; main()"


@dataclass(frozen=True, eq=False)
class Order:
    """A piece of work with the chunk's images (B, ...) and what is known of them; or, with ``bench``, the run it and
    all that follow belong to."""

    bench: Bench | None = None
    threads: int = 1
    key: ChunkKey | None = None
    images: Array | None = None
    infos: Sequence[ImageInfo] = ()
    classes: int = 0


def run_of(bench: Bench, threads: int) -> Order:
    """The order that names a run: its model and attacks by their texts, none of its images."""
    subject = replace(bench.subject, model=left_behind, steady=left_behind)
    return Order(replace(bare(bench), subject=subject, attacks=[]), threads)


def main() -> None:
    """The process of a run: the order that names it, then chunk after chunk."""
    bench: Bench | None = None

    def answer(order: Order) -> object:
        nonlocal bench
        if order.bench is not None:
            bench = _opened(order.bench, order.threads)
            return None
        assert bench is not None and order.key is not None and order.images is not None
        bench.known, bench.classes = {info.index: info for info in order.infos}, order.classes
        bench.dataset = holding(bench.dataset, bench.positions(order.key.chunk), order.images)
        return bench.compute(order.key)

    serve(answer)


def serve(answer: Callable[[Any], object]) -> None:
    """Orders in, answers out, one for each; an error is an answer too."""
    # Whatever a model prints goes to standard error: standard output is for answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    orders: queue.Queue[Any] = queue.Queue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, orders), daemon=True).start()
    while True:
        order = orders.get()
        found: object
        try:
            found = answer(order)
        except Exception as error:
            found = _portable(error)
        pickle.dump(found, answers, protocol=pickle.HIGHEST_PROTOCOL)
        answers.flush()


def _listen(source: BinaryIO, orders: queue.Queue[Any]) -> None:
    """Reads orders beside the work: the end of them, when whoever gave them is gone, ends the process at once."""
    try:
        while True:
            orders.put(pickle.load(source))  # from the process that started this one
    except Exception:
        os._exit(0)


def _opened(bench: Bench, threads: int) -> Bench:
    torch.set_num_threads(threads)
    subject = open_model(bench.spec.model, replace(bench.spec, device=str(bench.subject.device)))
    then = bench.subject
    if (subject.weights_sha256, subject.code_sha256, subject.imports_sha256) != (
        then.weights_sha256,
        then.code_sha256,
        then.imports_sha256,
    ):
        raise SpecChanged(
            f"{bench.spec.model} changed while the run was going on; bring back what it was, or choose another folder "
            "(--out)."
        )
    return replace(bench, subject=subject, attacks=build_all(bench.spec.attacks))


def _portable(error: Exception) -> Exception:
    """The error as another process can raise it: itself where it survives the way, else its name and message."""
    try:
        same: Any = pickle.loads(pickle.dumps(error))
        if type(same) is type(error) and str(same) == str(error):
            return error
    except Exception:
        pass
    return (
        AlmakitError(str(error))
        if isinstance(error, AlmakitError)
        else RuntimeError(f"{type(error).__name__}: {error}")
    )
