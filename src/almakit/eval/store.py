"""The run folder's database: one SQLite file in WAL mode, written one finished chunk per transaction; no torch here."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from . import rows, schema
from .failures import StoreError, explained
from .records import AttackInfo, ImageInfo, Record, Trace

LOCK_PATIENCE = 20.0  # seconds to wait for another process's lock before giving up
CLEAN, ATTACK = "clean", "attack"


@dataclass(frozen=True)
class ChunkKey:
    """A piece of work: the clean pass over a chunk (attack -1), or an attack on it; ``round`` counts the targets of targets=all."""

    kind: str
    attack: int
    chunk: int
    round: int = 0


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


class Store:
    """A database of a run; ``Store(path)`` makes or continues one, ``Store(path, read_only=True)`` never writes."""

    def __init__(self, path: str | Path, read_only: bool = False):
        self.path, self.read_only = Path(path), read_only
        if read_only and not self.path.is_file():
            raise StoreError(f"{self.path.parent} has no {self.path.name}; it is no run folder, or its run has not begun.")
        with explained(self.path):
            self.db = self._connect()
            try:
                self._prepare()
            except BaseException:
                self.db.close()
                raise

    def _connect(self) -> sqlite3.Connection:
        if not self.read_only:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return sqlite3.connect(self.path, timeout=LOCK_PATIENCE, isolation_level=None)
        place = self.path.resolve().as_uri()
        try:
            db = sqlite3.connect(f"{place}?mode=ro", uri=True, timeout=LOCK_PATIENCE, isolation_level=None)
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise
            # A WAL database on a read-only medium: readable as it lies, for nobody can be writing it.
            db = sqlite3.connect(f"{place}?mode=ro&immutable=1", uri=True, isolation_level=None)
        return db

    def _prepare(self) -> None:
        made = self.db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'meta'").fetchone()[0]
        if not self.read_only:
            self.db.execute("PRAGMA journal_mode = WAL")
            self.db.execute("PRAGMA synchronous = FULL")
        if not made:
            if self.read_only:
                raise StoreError(f"{self.path} is not a database of almakit.")
            with self.transaction():
                for statement in filter(str.strip, schema.TABLES.split(";\n")):
                    self.db.execute(statement)
                self.db.execute("INSERT INTO meta VALUES ('schema_version', ?)", (str(schema.VERSION),))
        found = self.meta("schema_version")
        if found != str(schema.VERSION):
            raise StoreError(
                f"{self.path} has schema version {found}; this almakit reads version {schema.VERSION}. Use the almakit that wrote it."
            )

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing: another process sees either none of the block's rows or all of them, and so does a resume."""
        with explained(self.path):
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.db.execute("COMMIT")
            except BaseException:
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Ends the connection; a writer folds the WAL into the one file, which can then be copied, and read from a read-only disk."""
        if not self.read_only:
            try:
                self.db.execute("PRAGMA busy_timeout = 1000")
                self.db.execute("PRAGMA journal_mode = DELETE")
            except sqlite3.DatabaseError:
                pass  # somebody is reading: the WAL stays beside the database and is read with it
        self.db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with explained(self.path):
            return self.db.execute(query, values).fetchall()

    # Facts of the run.

    def meta(self, key: str) -> str | None:
        found = self.rows("SELECT value FROM meta WHERE key = ?", (key,))
        return None if not found else str(found[0][0])

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

    def set_attacks(self, attacks: Iterable[AttackInfo]) -> None:
        with self.transaction():
            self._insert("attacks", [rows.attack_row(info) for info in attacks])

    def attacks(self) -> list[AttackInfo]:
        return [rows.attack_info(row) for row in self.rows(f"SELECT {rows.ATTACK_COLUMNS} FROM attacks ORDER BY attack")]

    def set_findings(self, findings: Iterable[tuple[str, str, str, str]]) -> None:
        with self.transaction():
            self.db.execute("DELETE FROM findings")
            self.db.executemany("INSERT OR REPLACE INTO findings VALUES (?, ?, ?, ?)", list(findings))

    def findings(self) -> list[tuple[str, str, str, str]]:
        return [
            (r[0], r[1], r[2], r[3])
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
        return [
            {"session": r[0], "started": r[1], "ended": r[2], "outcome": r[3], "environment": json.loads(r[4])}
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
        with self.transaction():
            self._insert("images", [rows.image_row(info) for info in images])
            self._insert("results", [rows.result_row(record, key.round) for record in records])
            self._insert("traces", [rows.trace_row(trace) for trace in traces])
            self._insert("chunks", [(*_key(key), row.file, row.sha256, row.images, row.batch, row.seconds, session)])

    def _insert(self, table: str, values: list[tuple[Any, ...]]) -> None:
        if values:
            places = ", ".join("?" * len(values[0]))
            self.db.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({places})", values)

    def discard(self, key: ChunkKey) -> None:
        """Takes a piece of work back, so that a resume does it again; rows without their chunk are not read, and are replaced then."""
        with self.transaction():
            self.db.execute("DELETE FROM chunks WHERE kind = ? AND attack = ? AND chunk = ? AND round = ?", _key(key))

    def chunks(self) -> list[ChunkRow]:
        """Finished work: clean passes first, then attack by attack."""
        columns = "kind, attack, chunk, round, file, sha256, images, batch, seconds"
        found = self.rows(f"SELECT {columns} FROM chunks ORDER BY kind DESC, attack, chunk, round")
        return [ChunkRow(ChunkKey(*row[:4]), *row[4:]) for row in found]

    def images(self) -> list[ImageInfo]:
        return [rows.image_info(row) for row in self.rows(f"SELECT {rows.IMAGE_COLUMNS} FROM images ORDER BY image")]

    def records(self, attack: int | None = None) -> list[Record]:
        """The results of finished chunks, by attack, image and target."""
        where, values = ("", ()) if attack is None else ("WHERE r.attack = ?", (attack,))
        return [
            rows.record(row) for row in self.rows(f"{rows.RECORDS} {where} ORDER BY r.attack, r.image, r.target", values)
        ]

    def traces(self) -> list[Trace]:
        found = self.rows("SELECT attack, image, target, data FROM traces ORDER BY attack, image, target")
        return [rows.trace(row) for row in found]


def _key(key: ChunkKey) -> tuple[str, int, int, int]:
    return key.kind, key.attack, key.chunk, key.round


def open_folder(folder: str | Path) -> Store:
    """The database of a run folder, to be read only."""
    place = Path(folder)
    if not place.is_dir():
        raise StoreError(f"there is no run folder {place}.")
    shards = sorted(place.glob("records-*-of-*.sqlite"))
    if shards and not (place / database_name()).is_file():
        raise StoreError(f"{place} holds {len(shards)} shards that are not joined yet; run `almakit merge {place}` first.")
    return Store(place / database_name(), read_only=True)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
