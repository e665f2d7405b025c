"""A worker process of a run and the thread that talks to it: pieces of work go to its standard input, their outcomes
come from what was its standard output.

It ends when its input does, so that it never outlives the run that started it, however that ended.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO

import torch

from ...errors import AlmakitError
from ..attack_text import build_all
from ..environment import kept_memory
from ..failures import SpecChanged
from ..job import Outcome, compute
from ..model import Subject, open_model
from ..plan import Job, Task
from ..spec import RunSpec
from ..store import CLEAN, ChunkKey
from .shipping import Images, bare, holding, images_of, left_behind

if TYPE_CHECKING:
    from .workers import Stage, Workers

TRIES = 3  # a chunk under which so many processes die is given up
START = "from almakit.runs.engines.helper import main; main()"


@dataclass(frozen=True, eq=False)
class Order:
    """A piece of work with the chunk's images (B, ...); or, with ``job``, the run it and all that follow belong to."""

    job: Job | None = None
    threads: int = 1
    task: Task | None = None
    images: Images | None = None


def run_of(job: Job, threads: int) -> Order:
    """The order that names a run: its model and attacks by their texts, none of its images."""
    subject = replace(job.subject, model=left_behind, steady=left_behind)
    lender = None if job.surrogate is None else replace(job.surrogate, model=left_behind, steady=left_behind)
    return Order(replace(bare(job), subject=subject, surrogate=lender, attacks=[]), threads)


def main() -> None:
    """The process of a run: the order that names it, then chunk after chunk."""
    job: Job | None = None

    def answer(order: Order) -> Outcome | None:
        nonlocal job
        if order.job is not None:
            job = _opened(order.job, order.threads)
            return None
        assert job is not None and order.task is not None and order.images is not None
        return compute(holding(job, order.task, order.images), order.task)

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


def _opened(job: Job, threads: int) -> Job:
    torch.set_num_threads(threads)
    lender = None if job.surrogate is None else _again(job.surrogate, job.spec)
    return replace(job, subject=_again(job.subject, job.spec), surrogate=lender, attacks=build_all(job.spec.attacks))


def _again(then: Subject, spec: RunSpec) -> Subject:
    """The model of another process, loaded by its name in this one."""
    here = open_model(then.name, replace(spec, device=str(then.device)))
    if (here.weights_sha256, here.code_sha256, here.imports_sha256) != (
        then.weights_sha256,
        then.code_sha256,
        then.imports_sha256,
    ):
        raise SpecChanged(
            f"{then.name} changed while the run was going on; bring back what it was, or choose another folder (--out)."
        )
    return replace(here.with_features(then.features), maps=then.maps, aim=then.aim, held=then.held)


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


# In the process that started it.


class Helper:
    """A process beside this one and the thread that talks to it."""

    def __init__(self, engine: Workers, number: int):
        self.engine, self.number = engine, number
        self.process: subprocess.Popen[bytes] | None = None
        self.open: Job | None = None  # the run the process has opened
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
                job = engine.job
                if self.open is not job and not self._opened(job):
                    break
                stage = engine.stage
                key = stage.take(helper=True)
                if key is None:
                    with engine.change:
                        engine.change.wait(0.2)
                    continue
                self._do(job, stage, key)
        finally:
            self.over = True
            self._stop()
            with engine.change:
                engine.change.notify_all()
            if all(helper.over for helper in engine.helpers):
                engine.stage.forsaken(engine.job)

    def _do(self, job: Job, stage: Stage, key: ChunkKey) -> None:
        images = len(job.positions(key.chunk))
        try:
            order = Order(task=stage.progress.task(job, key), images=images_of(job, key.chunk))
        except Exception as error:  # the data set's
            stage.done(key, error)
            return
        try:
            found = asked(self.process, order)
            if isinstance(found, Outcome):
                stage.progress.learn(found.batch, found.images)
            stage.done(key, found)
        except (OSError, EOFError, pickle.UnpicklingError):
            if self.over:
                return
            reason = f"the worker process ended under it ({self._stop()})."
            if stage.lost(key, images, reason):
                self.engine.show.note(f"chunk {key.chunk}: {reason} It is tried again.")

    def _opened(self, job: Job) -> bool:
        """Whether there is a process that has opened the run; one that dies at it three times is done without."""
        reason = ""
        for _ in range(TRIES):
            try:
                if self.process is None:
                    self.process = started()
                    if self.over:  # perhaps too late to be ended with the others
                        self._stop()
                        return False
                found = asked(self.process, run_of(job, self.engine.threads))
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
            with self.engine.change:
                self.open = job
                self.engine.change.notify_all()
            return True
        self.engine.show.note(
            f"Worker process {self.number} could not be started ({reason}); the run goes on without it."
        )
        return False

    def _stop(self) -> str:
        """Ends the process, if there is one, and says how it ended."""
        process, self.process, self.open = self.process, None, None
        return "it is gone" if process is None else ended(process)


def started(command: str = START) -> subprocess.Popen[bytes]:
    """A process with this one's modules at hand, which no signal of the terminal reaches; ``command`` is its Python."""
    environment = {
        **os.environ,
        **kept_memory(),
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


def asked(process: subprocess.Popen[bytes] | None, order: object) -> Any:
    """A process's answer to an order."""
    assert process is not None and process.stdin is not None and process.stdout is not None
    pickle.dump(order, process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
    process.stdin.flush()
    return pickle.load(process.stdout)


def ended(process: subprocess.Popen[bytes], patience: float = 1.0) -> str:
    """Ends a process that may be ending by itself, and says how it ended."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    code = process.poll()
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            if pipe is not None:
                pipe.close()
    return "it was ended" if code is None else f"signal {-code}" if code < 0 else f"exit code {code}"
