"""The loop of a run: work is done chunk after chunk, and each is stored before the next begins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import BadInput, BadModel
from . import chunkfiles, folder
from .environment import changed, environment
from .failures import NothingWorks
from .interrupt import Stop
from .progress import Silent
from .store import CLEAN, ChunkKey, ChunkRow, FailureRow, Store
from .targets import rounds
from .work import Bench, Outcome

MOST_ROUNDS = 99
HOPELESS = 3  # so many chunks that fail before any is done mean a mistake, which more chunks would not mend
Engine = Callable[[Bench, Iterable[ChunkKey]], Iterator[Outcome | FailureRow]]
"""Does pieces of work: yields their outcomes as they are done, and those it gave up."""


@dataclass(eq=False)
class Loop:
    """A run under way in the folder ``out``."""

    store: Store
    bench: Bench
    out: Path
    shard: tuple[int, int] | None
    stop: Stop
    show: Silent
    engine: Engine
    session: int = 0

    def run(self) -> None:
        """Does and stores what is left: the clean passes, then attack after attack."""
        self.bench.at_call = None if type(self.show) is Silent else self.show.inside
        self._begin_session()
        ending = "done"
        try:
            for attack in (-1, *(info.index for info in self.bench.infos)):
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
        facts = environment(str(self.bench.subject.device)) | {"engine": getattr(self.engine, "name", "local")}
        earlier = self.store.sessions()
        if earlier and (differing := changed(earlier[0]["environment"], facts)):
            self.show.note(
                f"This run began in another environment ({'; '.join(differing)}): the last digits of its numbers may "
                "differ."
            )
        self.session = self.store.begin_session(facts)

    def _end_session(self, ending: str) -> None:
        try:
            self.store.end_session(self.session, ending)
        except Exception:
            # The database refuses even this row (full disk, lock): the error under way says so, and must not be hidden
            # by a second one.
            if ending == "done":
                raise

    def _stage(self, attack: int) -> None:
        """One attack (-1: the clean passes) on all chunks that lack it."""
        bench = self.bench
        done = {row.key for row in self.store.chunks()}
        mine = [key for key in bench.keys(self.shard) if key.attack == attack]
        # A chunk whose clean pass was given up cannot be attacked.
        left = [key for key in mine if key not in done and (attack < 0 or ChunkKey(CLEAN, -1, key.chunk) in done)]
        if not left:
            return
        sizes = {key: len(bench.positions(key.chunk)) for key in mine}
        title = f"[{attack + 1}/{len(bench.infos)}] {bench.infos[attack].text}" if attack >= 0 else "clean images"
        self.show.begin(title, sum(sizes[key] for key in mine if key in done), sum(sizes.values()))
        fooled = seen = 0
        given_up: list[FailureRow] = []
        nodes: Counter[str] = Counter()
        outcomes = self.engine(bench, left)
        try:
            for outcome in outcomes:
                if isinstance(outcome, FailureRow):
                    given_up.append(outcome)
                    self._give_up(outcome, title)
                    if len(given_up) >= HOPELESS and not done.intersection(mine) and not nodes.total():
                        break
                    continue
                if outcome.batch < min(bench.chunk_size, outcome.images):
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
                f"{given_up[-1].reason} "
                "Mend that; the same command tries again."
            )

    def _give_up(self, failure: FailureRow, title: str) -> None:
        """Records that a chunk could not be done; the run goes on with the others."""
        rows = self.bench.positions(failure.key.chunk)
        self.show.note(
            f"{title}: chunk {failure.key.chunk} (images {rows[0]} to {rows[-1]}) is given up after {failure.tries} "
            f"tries: {failure.reason} "
            "The run goes on without it; the same command tries it again."
        )
        with self.stop.shielded():
            self.store.give_up(failure, self.session)

    def _keep(self, outcome: Outcome) -> None:
        """Stores an outcome: first its file, whole and in place, then in one transaction its rows and the file's
        hash."""
        key, bench = outcome.key, self.bench
        if key.kind == CLEAN and bench.classes and outcome.classes != bench.classes:
            raise BadModel(
                f"the model has {outcome.classes} classes now and had {bench.classes} when this run began; choose "
                "another folder (--out)."
            )
        if key.kind == CLEAN and not bench.classes:
            if bench.spec.targets == "all" and rounds("all", outcome.classes) > MOST_ROUNDS:
                raise BadInput(
                    f"targets=all would mean {outcome.classes - 1} attacks on every image; choose random, "
                    "least-likely or next."
                )
            bench.classes = outcome.classes
            self.store.set_meta(classes=str(outcome.classes))
        file = sha256 = None
        if outcome.stored is not None:
            file = (
                folder.original_file(key.chunk)
                if key.kind == CLEAN
                else folder.adversarial_file(bench.infos[key.attack], key)
            )
            sha256 = chunkfiles.write(self.out / file, {"images": chunkfiles.pack(outcome.stored), **outcome.beside})
        bench.known.update({info.index: info for info in outcome.infos})
        row = ChunkRow(key, file, sha256, outcome.images, outcome.batch, outcome.seconds)
        self.store.finish(row, self.session, outcome.infos, outcome.records, outcome.traces)


def _by_node(nodes: Counter[str]) -> str:
    """Images done by each node, where there are nodes, the busiest first."""
    named = [(name, count) for name, count in nodes.most_common() if name]
    more = f", {len(named) - 4} more" if len(named) > 4 else ""
    return ", ".join(f"{name} {count}" for name, count in named[:4]) + more
