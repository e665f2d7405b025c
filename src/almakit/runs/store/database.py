"""What a run's database holds: facts of the run and finished work, one chunk per transaction; no torch here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ..failures import StoreError, understood
from . import fields, rows
from .connection import Database
from .records import AttackInfo, ImageInfo, Record, Trace
from .rows import Place

CLEAN, ATTACK = "clean", "attack"
CHUNK_COLUMNS = "kind, attack, chunk, round, file, sha256, images, batch, seconds"


@dataclass(frozen=True)
class ChunkKey:
    """A piece of work: the clean pass over a chunk (attack -1), or an attack on it; ``round`` counts the targets of
    targets=all."""

    kind: str
    attack: int
    chunk: int
    round: int = 0


@dataclass(frozen=True)
class FailureRow:
    """A piece of work that was given up, and why."""

    key: ChunkKey
    images: int
    tries: int
    reason: str


@dataclass(frozen=True)
class ChunkRow:
    """A finished piece of work and the file that belongs to it."""

    key: ChunkKey
    file: str | None
    sha256: str | None
    images: int
    batch: int
    seconds: float


def database_name(shard: tuple[int, int] | None = None) -> str:
    """The database's file name in a run folder; each shard has its own."""
    return "records.sqlite" if shard is None else f"records-{shard[0]}-of-{shard[1]}.sqlite"


class Store(Database):
    """A database of a run; ``Store(path)`` makes or continues one, ``Store(path, read_only=True)`` never writes and
    sees one moment of it."""

    # Facts of the run.

    def all_meta(self) -> dict[str, str]:
        return {str(key): str(value) for key, value in self.rows("SELECT key, value FROM meta ORDER BY key")}

    def set_meta(self, **values: str | None) -> None:
        """Replaces these facts in one transaction; None removes one."""
        with self.transaction():
            for key, value in values.items():
                if value is None:
                    self.db.execute("DELETE FROM meta WHERE key = ?", (key,))
                else:
                    self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))
            self.sum_facts()

    def set_attacks(self, attacks: Iterable[AttackInfo]) -> None:
        with self.transaction():
            self._insert("attacks", list(map(fields.row, attacks)), fields.names(AttackInfo))
            self.sum_facts()

    def attacks(self) -> list[AttackInfo]:
        with understood(self.path):
            return [
                rows.attack_info(row) for row in self.rows(f"SELECT {rows.ATTACK_COLUMNS} FROM attacks ORDER BY attack")
            ]

    def sum_facts(self) -> None:
        """Writes the sum over the facts and attacks beside them; part of every transaction that changes them."""
        self.db.execute("INSERT OR REPLACE INTO meta VALUES ('facts_sha256', ?)", (self._facts_sum(),))

    def check_facts(self) -> None:
        """Refuses facts and attacks that are not the ones that were written, and cells that almakit never writes."""
        self.check_kinds()
        if (recorded := self.meta("facts_sha256")) is not None and recorded != self._facts_sum():
            raise rows.refuse_facts(self.path)

    def _facts_sum(self) -> str:
        facts = self.rows("SELECT 0, key, value FROM meta WHERE key != 'facts_sha256'")
        return rows.row_sum([*facts, *self.rows(f"SELECT 1, {rows.ATTACK_COLUMNS} FROM attacks")])

    def set_findings(self, findings: Iterable[tuple[str, str, str, str]]) -> None:
        with self.transaction():
            self.db.execute("DELETE FROM findings")
            self.db.executemany("INSERT OR REPLACE INTO findings VALUES (?, ?, ?, ?)", list(findings))

    def findings(self) -> list[tuple[str, str, str, str]]:
        return [
            (str(r[0]), str(r[1]), str(r[2]), str(r[3]))
            for r in self.rows("SELECT name, severity, sentence, way_out FROM findings ORDER BY name")
        ]

    def begin_session(self, environment: dict[str, Any]) -> int:
        with self.transaction():
            self.db.execute(
                "INSERT INTO sessions (started, environment) VALUES (?, ?)",
                (_now(), json.dumps(environment, sort_keys=True)),
            )
            return int(self.db.execute("SELECT last_insert_rowid()").fetchone()[0])

    def end_session(self, session: int, outcome: str) -> None:
        with self.transaction():
            self.db.execute("UPDATE sessions SET ended = ?, outcome = ? WHERE session = ?", (_now(), outcome, session))

    def sessions(self) -> list[dict[str, Any]]:
        found = self.rows("SELECT session, started, ended, outcome, environment FROM sessions ORDER BY session")
        with understood(self.path):
            return [
                {
                    "session": r[0],
                    "started": str(r[1]),
                    "ended": r[2] and str(r[2]),
                    "outcome": r[3] and str(r[3]),
                    "environment": dict(json.loads(r[4])),
                }
                for r in found
            ]

    # Finished work.

    def finish(
        self,
        row: ChunkRow,
        session: int,
        images: Iterable[ImageInfo] = (),
        records: Iterable[Record] = (),
        traces: Iterable[Trace] = (),
    ) -> None:
        """Records a piece of work whose file is already in place; doing it twice changes nothing."""
        key = row.key
        pictured, found = (
            list(map(fields.row, images)),
            [fields.row(replace(record, round=key.round)) for record in records],
        )
        own = (*_key(key), row.file, row.sha256, row.images, row.batch, float(row.seconds))
        total = rows.chunk_sum(
            [fields.summed(ImageInfo, row) for row in pictured] if key.kind == CLEAN else map(rows.summed, found), own
        )
        with self.transaction():
            self._insert("images", pictured, fields.names(ImageInfo))
            self._insert("results", found, fields.names(Record))
            self._insert("traces", [rows.trace_row(trace) for trace in traces])
            self._insert("chunks", [(*own, session, total)])
            self.db.execute(f"DELETE FROM failures WHERE {_KEY}", _key(key))

    def give_up(self, failure: FailureRow, session: int) -> None:
        """Records that a piece of work failed for good in this session; it stays undone, so that the next one tries it
        again."""
        with self.transaction():
            self._insert("failures", [(*_key(failure.key), failure.images, failure.tries, failure.reason, session)])

    def failures(self) -> list[FailureRow]:
        """The pieces of work that were given up and have not been done since."""
        if not self.has("failures", "reason"):
            return []
        found = self.rows(
            "SELECT kind, attack, chunk, round, images, tries, reason FROM failures ORDER BY kind DESC, attack, "
            "chunk, round"
        )
        return [FailureRow(ChunkKey(*row[:4]), *row[4:]) for row in found]

    def _insert(self, table: str, values: list[tuple[Any, ...]], names: Sequence[str] = ()) -> None:
        """By the columns' ``names`` where an earlier almakit may have had them in another order."""
        if values:
            places, named = ", ".join("?" * len(values[0])), f"({', '.join(names)})" if names else ""
            self.db.executemany(f"INSERT OR REPLACE INTO {table} {named} VALUES ({places})", values)

    def discard(self, key: ChunkKey) -> None:
        """Takes a piece of work back, so that a resume does it again; rows without their chunk are not read, and are
        replaced then."""
        with self.transaction():
            self.db.execute(f"DELETE FROM chunks WHERE {_KEY}", _key(key))

    def chunks(self) -> list[ChunkRow]:
        """Finished work: clean passes first, then attack by attack."""
        found = self.rows(f"SELECT {CHUNK_COLUMNS} FROM chunks ORDER BY kind DESC, attack, chunk, round")
        return [ChunkRow(ChunkKey(*row[:4]), *row[4:]) for row in found]

    def images(self, check: bool = False) -> list[ImageInfo]:
        """The clean images; ``check`` refuses rows that are not the ones that were written."""
        found = self.rows(f"{self.images_query()} ORDER BY image")
        if check:
            self._believe(CLEAN, found)
        with understood(self.path):
            return [rows.image_info(row) for row in found]

    def records(self, attack: int | None = None, check: bool = False) -> list[Record]:
        """The results of finished chunks, by attack, image and target; ``check`` refuses rows that are not the ones
        that were written."""
        where, values = ("", ()) if attack is None else ("WHERE r.attack = ?", (attack,))
        found = self.rows(f"{self.records_query()} {where} ORDER BY r.attack, r.image, r.target", values)
        if check:
            self._believe(ATTACK, found, attack)
        with understood(self.path):
            return [rows.record(row) for row in found]

    def images_query(self) -> str:
        return rows.images_query(lambda column: self.has("images", column))

    def records_query(self) -> str:
        """What reads the results of this database, whichever almakit began it."""
        return rows.records_query(lambda column: self.has("results", column))

    def damaged(self) -> list[ChunkKey]:
        """Finished work whose rows are not the ones that were written."""
        images, results = self.rows(self.images_query()), self.rows(self.records_query())
        places = [*self._differing(CLEAN, images), *self._differing(ATTACK, results)]
        return [ChunkKey(CLEAN if place[0] == -1 else ATTACK, *place) for place in places]

    def _believe(self, kind: str, found: list[tuple[Any, ...]], attack: int | None = None) -> None:
        for place in self._differing(kind, found, attack):
            raise rows.refuse(self.path, place)

    def _differing(self, kind: str, found: list[tuple[Any, ...]], attack: int | None = None) -> list[Place]:
        """The chunks of a kind (of one attack) whose rows, as they were read, do not have their recorded sum."""
        if not self.has("chunks", "rows_sha256"):
            return []
        query = f"SELECT {CHUNK_COLUMNS}, rows_sha256 FROM chunks WHERE kind = ? AND attack = coalesce(?, attack)"
        grouped = rows.images_by_chunk(found) if kind == CLEAN else rows.results_by_chunk(found)
        return rows.differing(grouped, self.rows(query, (kind, attack)))

    def traces(self) -> list[Trace]:
        found = self.rows("SELECT attack, image, target, data FROM traces ORDER BY attack, image, target")
        with understood(self.path):
            return [rows.trace(row) for row in found]


_KEY = "kind = ? AND attack = ? AND chunk = ? AND round = ?"


def _key(key: ChunkKey) -> tuple[str, int, int, int]:
    return key.kind, key.attack, key.chunk, key.round


def open_folder(folder: str | Path) -> Store:
    """The database of a run folder, to be read only."""
    place = Path(folder)
    if not place.is_dir():
        raise StoreError(f"there is no run folder {place}.")
    shards = sorted(place.glob("records-*-of-*.sqlite"))
    if shards and not (place / database_name()).is_file():
        raise StoreError(
            f"{place} holds {len(shards)} shards that are not joined yet; run `almakit merge {place}` first."
        )
    return Store(place / database_name(), read_only=True)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
