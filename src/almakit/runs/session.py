"""Carries out a run: submits the steps of each chunk to an executor and stores each outcome before the next step of its
chunk begins.

Retries, memory that runs out, order, signals, progress and experiment trackers are handled here for every executor.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

import torch
from torch import nn

from ..core.oracle import borrowed, out_of_memory
from ..errors import BadInput, BadModel
from ..models import is_foreign
from ..radius import readable
from ..trackers import Track
from . import folder
from .attack_text import build_all
from .checks import check, settle
from .environment import environment
from .executors import Executor, InProcess, Lost, Processes, cores, threads_per_process
from .failures import Interrupted, NothingWorks
from .images import side_of
from .job import Outcome
from .plan import Job, Request, State, Task, own_code, plan
from .progress import Progress
from .ray import RayExecutor
from .resume import agree, continue_in, extended, facts_of, same_answers, state_of
from .spec import AUTO
from .store import CLEAN, ChunkKey, ChunkRow, FailureRow, Store, database_name, files, only_writer
from .store.fields import finite
from .store.records import AttackInfo
from .threat import named

SMALL_WEIGHTS, SMALL_IMAGE = 20_000_000, 3 * 96 * 96
"""The largest number of weights and of values per image of a small model, which gains more from several processes than
from threads."""
CHUNKS_EACH = 4
"""Number of chunks for which starting a worker process, which imports torch, pays off."""
MOST_ROUNDS = 99
HOPELESS = 3
"""If an attack fails on this many chunks before one succeeds, the run ends, because more chunks would fail too."""
BACKOFF = 1.0
"""Seconds before the second try of a step, doubled for each further try."""


@contextmanager
def prepared(request: Request) -> Iterator[tuple[Job, Session | None]]:
    """The job of a request, checked against its folder, and the session for the remaining steps; None if no step
    remains."""
    if request.add:
        spec, attacks = extended(request.spec, list(request.attacks), request.out)
        request = replace(request, spec=spec, attacks=attacks)
        request.check_radii()
    out, shard, progress = request.out, request.shard, request.progress
    spec, recorded = continue_in(request.spec, out, request.add)
    job, findings = plan(request, spec), None
    with ExitStack() as stack:
        stop = stack.enter_context(Stop().watching())
        if recorded is None:
            _note_preprocessing(job, request)
            findings = check(job, request)
            job = settle(job, progress)
        tell(request.trackers, {"event": "begin", "settings": job.spec.to_dict(), "folder": str(out)})
        stack.enter_context(only_writer(out / database_name(shard)))
        recorded = continue_in(job.spec, out, request.add)[1]  # again, now that this process holds the lock
        # The spec is written first, so that a run that is killed in between resumes with the same chunks and attacks.
        if recorded is None or (recorded.attacks, recorded.epsilon) != (job.spec.attacks, job.spec.epsilon):
            files.write_bytes(out / folder.SPEC, job.spec.to_toml().encode())
        store = stack.enter_context(Store(out / database_name(shard)))
        agree(store, job, facts_of(job, shard))
        state = state_of(store, job, out, progress)
        same_answers(job, state)
        if all(state.next(job, chunk) is None for chunk in job.chunks(shard)):
            progress.note("Nothing is left to do: every chunk of this run is stored.")
            yield job, None
            return
        store.set_findings(check(job, request) if findings is None else findings)
        stack.enter_context(borrowed(job.subject.model))
        executor, threads = executor_for(request, job)
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(threads)
        if isinstance(request.engine, str):
            stack.callback(executor.close)
        yield job, Session(store, job, state, out, shard, stop, progress, executor, request.trackers)


def _note_preprocessing(job: Job, request: Request) -> None:
    side = side_of(job.subject.model, job.spec.data if request.data is None else request.data)
    if (side or is_foreign(job.spec.model)) and (sentence := getattr(job.subject.model, "preprocessing", None)):
        request.progress.note(sentence)
    if side:
        request.progress.note(f"Photos are cut to {side} x {side}, the size the model was made for.")


def executor_for(request: Request, job: Job) -> tuple[Executor, int]:
    """The executor of a request, and the number of threads of each process. With ``workers`` given, that number is the
    same for any number of workers, because the last bits of results depend on it."""
    workers, threads, chunks = request.workers, torch.get_num_threads(), len(job.chunks(request.shard))
    if not isinstance(request.engine, str):
        return request.engine, threads
    if request.engine == "ray":
        return RayExecutor(request.address, workers if isinstance(workers, int) else None, request.progress), threads
    if workers is None:
        return InProcess(), threads
    if reason := _only_here(job):
        if workers not in (AUTO, 1):
            request.progress.note(f"This run stays in one process: {reason}.")
        return InProcess(), threads
    if not isinstance(workers, int):
        if not _small(job):
            return InProcess(), threads
        workers = min(cores() // threads_per_process(), chunks // CHUNKS_EACH)
    count = min(workers, chunks)
    return Processes(count) if count > 1 else InProcess(), threads_per_process()


def _only_here(job: Job) -> str:
    """Why worker processes cannot compute a run; empty if they can."""
    subjects = [subject for subject in (job.subject, job.surrogate) if subject is not None]
    if job.subject.device.type != "cpu":
        return f"its model is on {job.subject.device}"
    if own_code(job.spec.goal):
        return "its goal is code of your own, which worker processes do not have"
    if not all(subject.by_name for subject in subjects):
        return "its model was given in Python; worker processes can only load one by name or from a file"
    try:
        same = build_all(job.spec.attacks) == list(job.attacks)
    except Exception:  # its text names a function or class that exists only in this process
        same = False
    return "" if same else "an attack was given in Python; worker processes can only build one from text"


def _small(job: Job) -> bool:
    """Whether several processes are faster for a model than threads inside its layers."""
    model = job.subject.model
    weights = sum(part.numel() for part in model.parameters()) if isinstance(model, nn.Module) else 0
    return weights <= SMALL_WEIGHTS and job.dataset.chunk([0]).x[0].numel() <= SMALL_IMAGE


@dataclass(eq=False)
class Session:
    """Carries out a run in the folder ``out``."""

    store: Store
    job: Job
    state: State
    out: Path
    shard: tuple[int, int] | None
    stop: Stop
    progress: Progress
    executor: Executor
    trackers: Sequence[Track] = ()
    number: int = 0  # row of the session in the database
    tries: Counter[ChunkKey] = field(default_factory=Counter)
    distances: dict[int, list[float]] = field(default_factory=dict)  # verified distances of this session, by attack

    def run(self) -> None:
        """Compute and store the remaining steps."""
        self._begin()
        ending, notify = "done", None if type(self.progress) is Progress else self.progress.inside
        waiting = deque(self.job.chunks(self.shard))
        ready: list[tuple[float, Task]] = []  # steps of begun chunks, with their earliest start
        running: dict[Future[Outcome], Task] = {}
        try:
            while waiting or ready or running:
                while len(running) < self.executor.capacity and (task := self._take(ready, waiting)) is not None:
                    running[self.executor.submit(self.job, task, notify)] = task
                if ready and not running:
                    time.sleep(0.05)
                # the timeout lets Python handle signals
                for future in wait(running, 0.2, FIRST_COMPLETED).done:
                    pause, following = self._finish(running.pop(future), future)
                    if following is not None:
                        ready.append((time.monotonic() + pause, following))
            for attack in sorted({key.attack for key in self.state.failed}):
                self._refuse_hopeless(attack, 1)
        except KeyboardInterrupt as signal:
            # Usually ``Interrupted``; a library that waits in C may turn it into a plain KeyboardInterrupt.
            ending = f"interrupted by {signal}" if str(signal) else "interrupted"
            raise
        except BaseException as error:
            ending = f"{type(error).__name__}: {error}"
            raise
        finally:
            self.progress.end()
            # An error while writing this row (full disk, lock) must not hide the original error.
            with suppress(Exception) if ending != "done" else nullcontext():
                self.store.end_session(self.number, ending)

    def _begin(self) -> None:
        facts = environment(str(self.job.subject.device)) | {"engine": self.executor.name}
        self.number = self.store.begin_session(facts)
        if self.state.classes:
            self._begin_progress()

    # Order of steps.

    def _take(self, ready: list[tuple[float, Task]], waiting: deque[int]) -> Task | None:
        """The next step to submit: of a chunk in progress, or else of the next chunk."""
        for place, (start, task) in enumerate(ready):
            if start <= time.monotonic():
                del ready[place]
                return task
        while waiting:
            if (following := self.state.next(self.job, waiting.popleft())) is not None:
                return following
        return None

    def _finish(self, task: Task, future: Future[Outcome]) -> tuple[float, Task | None]:
        """Store the outcome of a step. Returns the seconds to wait, and the next step of its chunk."""
        try:
            self._keep(future.result())
        except Lost as lost:
            return self._again(task, lost)
        except Exception as error:
            if not out_of_memory(error):
                raise
            return 0.0, self._smaller(task, error)
        return 0.0, self.state.next(self.job, task.key.chunk)

    def _again(self, task: Task, lost: Lost) -> tuple[float, Task | None]:
        """The same step again, or the next one if this one has failed too often."""
        key = task.key
        self.tries[key] += 1
        tries = self.tries[key]
        if tries < lost.limit:
            self.progress.note(f"chunk {key.chunk}: {lost} It is tried again.")
            return BACKOFF * 2 ** min(tries - 1, 5), task
        rows = self.job.positions(key.chunk)
        self.progress.note(
            f"{self._title(key.attack)}: chunk {key.chunk} (images {rows[0]} to {rows[-1]}) is given up after "
            f"{tries} tries: {lost} The run continues without it; the same command tries it again."
        )
        self.state.failed[key] = FailureRow(key, len(rows), tries, str(lost))
        with self.stop.shielded():
            self.store.give_up(self.state.failed[key], self.number)
        self._refuse_hopeless(key.attack, HOPELESS)
        return 0.0, self.state.next(self.job, key.chunk)

    def _smaller(self, task: Task, error: Exception) -> Task:
        """The same step with less memory: without keeping the clean pass, then with half the batch size."""
        size = min(task.batch, len(self.job.positions(task.key.chunk)))
        if task.share:
            self.state.share = False
            return replace(task, share=False)
        if size == 1:
            raise BadModel("memory runs out even with one image at a time; use another device.") from error
        return replace(task, batch=max(1, size // 2))

    def _refuse_hopeless(self, attack: int, failures: int) -> None:
        """End the run if many chunks of an attack (-1: clean passes) failed and none succeeded."""
        reasons = [failure.reason for key, failure in self.state.failed.items() if key.attack == attack]
        if len(reasons) >= failures and not any(key.attack == attack for key in self.state.done):
            raise NothingWorks(
                f"{self._title(attack)}: none of the first {len(reasons)} chunks could be computed, the last because: "
                f"{reasons[-1]} Correct this; the same command tries again."
            )

    def _title(self, attack: int) -> str:
        infos = self.job.infos
        return f"[{attack + 1}/{len(infos)}] {_shown(infos[attack])}" if attack >= 0 else "clean images"

    # Storing and showing outcomes.

    def _keep(self, outcome: Outcome) -> None:
        """Store an outcome: first its complete file, then its rows and the file's hash in one transaction."""
        key, state = outcome.key, self.state
        if outcome.batch < min(state.batch, outcome.images):  # also for the following chunks
            state.batch = outcome.batch
            self.progress.note(
                f"Memory ran out: chunk {key.chunk} went through the model {outcome.batch} images at a time."
            )
        with self.stop.shielded():
            if key.kind == CLEAN:
                self._learn_classes(outcome.classes)
            file = sha256 = None
            if outcome.stored is not None:
                info = self.job.infos[key.attack]
                file = files.original_file(key.chunk) if key.kind == CLEAN else files.adversarial_file(info, key)
                sha256 = files.write(self.out / file, {"images": files.pack(outcome.stored), **outcome.beside})
            row = ChunkRow(key, file, sha256, outcome.images, outcome.batch, outcome.seconds)
            self.store.finish(row, self.number, outcome.infos, outcome.records, outcome.traces)
        state.known.update({info.index: info for info in outcome.infos})
        state.done.add(key)
        if key.kind != CLEAN:
            self._show(outcome)

    def _learn_classes(self, classes: int) -> None:
        if self.state.classes:  # then a resumed run's model has given the same answers already
            return
        if self.job.rounds(classes) > MOST_ROUNDS:
            raise BadInput(
                f"targets=all would mean {classes - 1} attacks on every image; choose a rule such as random."
            )
        self.state.classes = classes
        self.store.set_meta(classes=str(classes))
        self._begin_progress()

    def _begin_progress(self) -> None:
        """Show the number of stored results and of all results: one per image, attack and target."""
        job, rounds = self.job, self.job.rounds(self.state.classes)
        chunks = {chunk: len(job.positions(chunk)) for chunk in job.chunks(self.shard)}
        stored = sum(chunks.get(key.chunk, 0) for key in self.state.done if key.kind != CLEAN)
        several = len(job.infos) > 1
        title = f"{len(job.infos)} attacks" if several else _shown(job.infos[0])
        total = sum(chunks.values()) * rounds * len(job.infos)
        self.progress.begin(title, stored, total, "results" if several or rounds > 1 else "images")

    def _show(self, outcome: Outcome) -> None:
        """Show the share of successes, and send events to the trackers."""
        attack = outcome.key.attack
        distances = self.distances.setdefault(attack, [])
        distances += [record.verified for record in outcome.records]
        share = f"{100 * sum(map(isfinite, distances)) / max(len(distances), 1):.1f} % fooled"
        share = f"{self._title(attack)}: {share}" if len(self.job.infos) > 1 else share
        self.progress.advance(outcome.images, share)
        if outcome.records and self.trackers:
            tell(self.trackers, *_events(self.job, outcome, distances))


def _shown(info: AttackInfo) -> str:
    """The text of an attack with its radius as people write it: 8/255, not its decimals."""
    epsilon = info.settings.get("epsilon")
    if not isinstance(epsilon, float):
        return info.text
    return info.text.replace(f"epsilon={epsilon!r}", f"epsilon={readable(epsilon, info.distance)}")


class Stop:
    """Turns SIGINT and SIGTERM into ``Interrupted``, which is delayed inside ``shielded()`` blocks."""

    def __init__(self) -> None:
        self._shielded = False
        self._pending: str | None = None

    @contextmanager
    def watching(self) -> Iterator[Stop]:
        """Install the signal handlers during the block. Does nothing outside the main thread, where this is
        impossible."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Delay signals until the end of the block."""
        self._shielded = True
        try:
            yield
        finally:
            self._shielded = False
        if self._pending is not None:
            raise Interrupted(self._pending)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self._shielded:
            self._pending = name
            return
        raise Interrupted(name)


# Trackers get the history of attacks, and the progress of each attack after every chunk.


def tell(trackers: Sequence[Track], *events: dict[str, Any]) -> None:
    """Send events to all trackers, in order."""
    for track in trackers:
        for event in events:
            track(event)


def _events(job: Job, outcome: Outcome, distances: list[float]) -> Iterator[dict[str, Any]]:
    """``distances``: all verified distances of this attack until now."""
    attack = named(job.infos[outcome.key.attack].text, job.spec)
    for trace in outcome.traces:
        image = job.dataset.ids[trace.image]
        for place, step in enumerate(trace.values["step"]):
            values = {name: column[place] for name, column in trace.values.items() if name != "step"}
            yield {"event": "trace", "attack": attack, "image": image, "step": step, "values": values}
    yield {
        "event": "progress",
        "attack": attack,
        "images": len(distances),
        "fooled": sum(map(isfinite, distances)) / len(distances),
        "median": finite(median(distances)),
    }
