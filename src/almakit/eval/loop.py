"""The loop of a run: work is done chunk after chunk, and each is stored before the next begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import BadInput
from . import chunkfiles, folder
from .environment import changed, environment
from .failures import Interrupted
from .interrupt import Stop
from .progress import Silent
from .store import CLEAN, ChunkKey, ChunkRow, Store
from .targets import rounds
from .work import Bench, Outcome

MOST_ROUNDS = 99
Engine = Callable[[Bench, Iterable[ChunkKey]], Iterator[Outcome]]
"""Does pieces of work: yields their outcomes, in order."""


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
        self._begin_session()
        ending = "done"
        try:
            for attack in (-1, *(info.index for info in self.bench.infos)):
                self._stage(attack)
        except Interrupted as signal:
            ending = f"interrupted by {signal}"
            raise
        except BaseException as error:
            ending = f"{type(error).__name__}: {error}"
            raise
        finally:
            self.show.end()
            self._end_session(ending)

    def _begin_session(self) -> None:
        facts = environment(str(self.bench.subject.device))
        earlier = self.store.sessions()
        if earlier and (differing := changed(earlier[0]["environment"], facts)):
            self.show.note(
                f"This run began in another environment ({'; '.join(differing)}): the last digits of its numbers may differ."
            )
        self.session = self.store.begin_session(facts)

    def _end_session(self, ending: str) -> None:
        try:
            self.store.end_session(self.session, ending)
        except Exception:
            # The database refuses even this row (full disk, lock): the error under way says so, and must not be hidden by a second one.
            if ending == "done":
                raise

    def _stage(self, attack: int) -> None:
        """One attack (-1: the clean passes) on all chunks that lack it."""
        bench = self.bench
        done = {row.key for row in self.store.chunks()}
        mine = [key for key in bench.keys(self.shard) if key.attack == attack]
        left = [key for key in mine if key not in done]
        if not left:
            return
        sizes = {key: len(bench.positions(key.chunk)) for key in mine}
        title = f"[{attack + 1}/{len(bench.infos)}] {bench.infos[attack].text}" if attack >= 0 else "clean images"
        self.show.begin(title, sum(sizes[key] for key in mine if key in done), sum(sizes.values()))
        fooled = seen = 0
        for outcome in self.engine(bench, left):
            if outcome.batch < min(bench.chunk_size, outcome.images):
                self.show.note(
                    f"Memory ran out: chunk {outcome.key.chunk} went through the model {outcome.batch} images at a time."
                )
            with self.stop.shielded():
                self._keep(outcome)
            fooled += sum(record.claimed and record.fooled for record in outcome.records)
            seen += len(outcome.records)
            self.show.advance(outcome.images, f"{100 * fooled / seen:.1f} % fooled" if seen else "")

    def _keep(self, outcome: Outcome) -> None:
        """Stores an outcome: first its file, whole and in place, then in one transaction its rows and the file's hash."""
        key, bench = outcome.key, self.bench
        if key.kind == CLEAN and not bench.classes:
            if bench.spec.targets == "all" and rounds("all", outcome.classes) > MOST_ROUNDS:
                raise BadInput(
                    f"targets=all would mean {outcome.classes - 1} attacks on every image; choose random, least-likely or next."
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
            sha256 = chunkfiles.write(self.out / file, {"images": chunkfiles.pack(outcome.stored)})
        bench.known.update({info.index: info for info in outcome.infos})
        row = ChunkRow(key, file, sha256, outcome.images, outcome.batch, outcome.seconds)
        self.store.finish(row, self.session, outcome.infos, outcome.records, outcome.traces)
