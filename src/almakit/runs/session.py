"""One start of the program on a run: work is done chunk after chunk, and each is stored before the next begins. A
signal ends it at once, but never in the middle of writing; experiment trackers hear how it goes."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

from ..errors import BadInput, BadModel
from ..trackers import Track
from .environment import changed, environment
from .failures import Interrupted, NothingWorks
from .images import rounds
from .job import Outcome
from .plan import Job, Progress
from .progress import Silent
from .store import CLEAN, ChunkKey, ChunkRow, FailureRow, Store, files
from .store.fields import finite
from .threat import named

MOST_ROUNDS = 99
HOPELESS = 3  # so many chunks that fail before any is done mean a mistake, which more chunks would not mend
Engine = Callable[[Job, Progress, Iterable[ChunkKey]], Iterator[Outcome | FailureRow]]
"""Does pieces of work: yields their outcomes as they are done, and those it gave up."""


@dataclass(eq=False)
class Session:
    """A run under way in the folder ``out``."""

    store: Store
    job: Job
    progress: Progress
    out: Path
    shard: tuple[int, int] | None
    stop: Stop
    show: Silent
    engine: Engine
    number: int = 0  # of the session, in the database

    def run(self) -> None:
        """Does and stores what is left: the clean passes, then attack after attack."""
        self.progress.tell = None if type(self.show) is Silent else self.show.inside
        self._begin_session()
        ending = "done"
        try:
            for attack in (-1, *(info.index for info in self.job.infos)):
                self._stage(attack)
        except KeyboardInterrupt as signal:
            # Mostly ``Interrupted``; a library that waits in C may make a plain one of it, without the signal's name.
            ending = f"interrupted by {signal}" if str(signal) else "interrupted"
            raise
        except BaseException as error:
            ending = f"{type(error).__name__}: {error}"
            raise
        finally:
            self.show.end()
            self._end_session(ending)

    def _begin_session(self) -> None:
        facts = environment(str(self.job.subject.device)) | {"engine": getattr(self.engine, "name", "local")}
        earlier = self.store.sessions()
        if earlier and (differing := changed(earlier[0]["environment"], facts)):
            self.show.note(
                f"This run began in another environment ({'; '.join(differing)}): the last digits of its numbers may "
                "differ."
            )
        self.number = self.store.begin_session(facts)

    def _end_session(self, ending: str) -> None:
        try:
            self.store.end_session(self.number, ending)
        except Exception:
            # The database refuses even this row (full disk, lock): the error under way says so, and must not be hidden
            # by a second one.
            if ending == "done":
                raise

    def _stage(self, attack: int) -> None:
        """One attack (-1: the clean passes) on all chunks that lack it."""
        job = self.job
        done = {row.key for row in self.store.chunks()}
        mine = [key for key in job.keys(self.shard, self.progress.classes) if key.attack == attack]
        # A chunk whose clean pass was given up cannot be attacked.
        left = [key for key in mine if key not in done and (attack < 0 or ChunkKey(CLEAN, -1, key.chunk) in done)]
        if not left:
            return
        sizes = {key: len(job.positions(key.chunk)) for key in mine}
        title = f"[{attack + 1}/{len(job.infos)}] {job.infos[attack].text}" if attack >= 0 else "clean images"
        self.show.begin(title, sum(sizes[key] for key in mine if key in done), sum(sizes.values()))
        fooled = seen = 0
        given_up: list[FailureRow] = []
        nodes: Counter[str] = Counter()
        outcomes = self.engine(job, self.progress, left)
        try:
            for outcome in outcomes:
                if isinstance(outcome, FailureRow):
                    given_up.append(outcome)
                    self._give_up(outcome, title)
                    if len(given_up) >= HOPELESS and not done.intersection(mine) and not nodes.total():
                        break
                    continue
                if outcome.batch < min(job.chunk_size, outcome.images):
                    self.show.note(
                        f"Memory ran out: chunk {outcome.key.chunk} went through the model {outcome.batch} images at "
                        "a time."
                    )
                with self.stop.shielded():
                    self._keep(outcome)
                fooled += sum(record.claimed and record.fooled for record in outcome.records)
                seen += len(outcome.records)
                nodes[outcome.node] += outcome.images
                share = f"{100 * fooled / seen:.1f} % fooled" if seen else ""
                self.show.advance(outcome.images, "; ".join(filter(None, [share, _by_node(nodes)])))
        finally:
            # At once and not when the garbage is collected: work that others still do is called off while they can be
            # reached.
            if isinstance(outcomes, Generator):
                outcomes.close()
        if given_up and not done.intersection(mine) and not nodes.total():
            raise NothingWorks(
                f"{title}: none of the first {len(given_up)} chunks could be computed, the last because: "
                f"{given_up[-1].reason} Mend that; the same command tries again."
            )

    def _give_up(self, failure: FailureRow, title: str) -> None:
        """Records that a chunk could not be done; the run goes on with the others."""
        rows = self.job.positions(failure.key.chunk)
        self.show.note(
            f"{title}: chunk {failure.key.chunk} (images {rows[0]} to {rows[-1]}) is given up after {failure.tries} "
            f"tries: {failure.reason} The run goes on without it; the same command tries it again."
        )
        with self.stop.shielded():
            self.store.give_up(failure, self.number)

    def _keep(self, outcome: Outcome) -> None:
        """Stores an outcome: first its file, whole and in place, then in one transaction its rows and the file's
        hash."""
        key, progress = outcome.key, self.progress
        if key.kind == CLEAN and progress.classes and outcome.classes != progress.classes:
            raise BadModel(
                f"the model has {outcome.classes} classes now and had {progress.classes} when this run began; choose "
                "another folder (--out)."
            )
        if key.kind == CLEAN and not progress.classes:
            if self.job.spec.targets == "all" and rounds("all", outcome.classes) > MOST_ROUNDS:
                raise BadInput(
                    f"targets=all would mean {outcome.classes - 1} attacks on every image; choose random, "
                    "least-likely or next."
                )
            progress.classes = outcome.classes
            self.store.set_meta(classes=str(outcome.classes))
        file = sha256 = None
        if outcome.stored is not None:
            file = (
                files.original_file(key.chunk)
                if key.kind == CLEAN
                else files.adversarial_file(self.job.infos[key.attack], key)
            )
            sha256 = files.write(self.out / file, {"images": files.pack(outcome.stored), **outcome.beside})
        progress.known.update({info.index: info for info in outcome.infos})
        row = ChunkRow(key, file, sha256, outcome.images, outcome.batch, outcome.seconds)
        self.store.finish(row, self.number, outcome.infos, outcome.records, outcome.traces)


def _by_node(nodes: Counter[str]) -> str:
    """Images done by each node, where there are nodes, the busiest first."""
    named = [(name, count) for name, count in nodes.most_common() if name]
    more = f", {len(named) - 4} more" if len(named) > 4 else ""
    return ", ".join(f"{name} {count}" for name, count in named[:4]) + more


# Signals.


class Stop:
    """Turns SIGINT and SIGTERM into ``Interrupted``, held back inside ``shielded()`` blocks."""

    def __init__(self) -> None:
        self._shielded = False
        self._pending: str | None = None

    @contextmanager
    def watching(self) -> Iterator[Stop]:
        """Installs the handlers for the time of the block; outside the main thread, where that is impossible, does
        nothing."""
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
        """A signal during the block waits for its end."""
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


# Trackers: the courses of attacks, and where each attack stands after every chunk.


def told(engine: Engine, trackers: Sequence[Track]) -> Engine:
    """The engine, with each outcome told to the trackers once the caller has stored it and asks for the next."""
    if not trackers:
        return engine

    def outcomes(job: Job, progress: Progress, keys: Iterable[ChunkKey]) -> Iterator[Outcome | FailureRow]:
        distances: list[float] = []
        for outcome in engine(job, progress, keys):
            yield outcome
            if isinstance(outcome, Outcome) and outcome.records:
                distances += [record.verified for record in outcome.records]
                tell(trackers, *_events(job, outcome, distances))

    outcomes.name = getattr(engine, "name", "local")  # type: ignore[attr-defined]
    return outcomes


def tell(trackers: Sequence[Track], *events: dict[str, Any]) -> None:
    """Hands events to all trackers, in order."""
    for track in trackers:
        for event in events:
            track(event)


def _events(job: Job, outcome: Outcome, distances: list[float]) -> Iterator[dict[str, Any]]:
    """``distances`` are the verified ones of this attack so far."""
    attack = named(job.infos[outcome.key.attack].text, job.spec)
    for trace in outcome.traces:
        for place, step in enumerate(trace.values["step"]):
            values = {name: column[place] for name, column in trace.values.items() if name != "step"}
            yield {
                "event": "trace",
                "attack": attack,
                "image": job.dataset.ids[trace.image],
                "step": step,
                "values": values,
            }
    yield {
        "event": "progress",
        "attack": attack,
        "images": len(distances),
        "fooled": sum(map(isfinite, distances)) / len(distances),
        "median": finite(median(distances)),
    }
