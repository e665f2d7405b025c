"""The database of a run folder: an SQLite file in WAL mode with one writer at a time. It contains facts of the run and
finished work, one chunk per transaction. No torch here."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ..failures import Corrupt, StoreError, explained, understood
from . import fields
from .fields import Built
from .records import (
    STATUSES,
    AttackInfo,
    ChunkKey,
    ChunkRow,
    FailureRow,
    FindingRow,
    ImageInfo,
    Record,
    SessionRow,
    Trace,
)

try:
    import fcntl
except ImportError:  # pragma: no cover (Windows has no flock; SQLite's own locks still keep the data whole)
    fcntl = None  # type: ignore[assignment]

Row = tuple[Any, ...]
LOCK_PATIENCE = 20.0  # seconds to wait for another process's lock before giving up
OPENINGS = 4  # tries to open a database for reading before it is taken for one on a read-only medium

VERSION = 1
_UNIT = "PRIMARY KEY (kind, attack, chunk, round)) WITHOUT ROWID"
_TARGET = "PRIMARY KEY (attack, image, target)) WITHOUT ROWID"
STORED: dict[Any, tuple[str, str, str]] = {
    SessionRow: ("sessions", "every start of the program on this run", "PRIMARY KEY (session))"),
    FindingRow: ("findings", "what preflight said before the run", "PRIMARY KEY (name))"),
    AttackInfo: ("attacks", "the run's attacks", "PRIMARY KEY (attack), UNIQUE (text))"),
    ImageInfo: ("images", "the clean images", "PRIMARY KEY (image))"),
    Record: ("results", "one row per attack, image and target", _TARGET),
    ChunkRow: ("chunks", "finished units of work; a row appears only after its file is in place", _UNIT),
    Trace: ("traces", "the history of an attack on a few images", _TARGET),
    FailureRow: ("failures", "units of work that were given up; the next start of the program tries them again", _UNIT),
}
"""The dataclasses that have a table: its name, its description, and the constraints at the end of its definition."""
META = """CREATE TABLE IF NOT EXISTS meta (  -- facts of the run
  key   TEXT PRIMARY KEY,      -- schema_version, spec_sha256, spec (TOML), weights_sha256, data_sha256, images, ...
  value TEXT NOT NULL
);"""
TABLES = [META, *(fields.table(name, about, rules, of) for of, (name, about, rules) in STORED.items())]
"""The comments are part of the database: ``sqlite3 records.sqlite .schema`` shows them. Only ``sessions`` and
``chunks`` hold times: ``images``, ``results`` and ``traces`` of two runs of one spec are equal bit for bit."""

_KEY = "kind = ? AND attack = ? AND chunk = ? AND round = ?"
_SLOT = fields.names(Record).index("slot")


def database_name(shard: tuple[int, int] | None = None) -> str:
    """The database's file name in a run folder; each shard has its own."""
    return "records.sqlite" if shard is None else f"records-{shard[0]}-of-{shard[1]}.sqlite"


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


class Store:
    """A connection. ``Store(path)`` creates or opens a database for writing; ``Store(path, read_only=True)`` never
    writes and reads one snapshot."""

    def __init__(self, path: str | Path, read_only: bool = False):
        self.path, self.read_only = Path(path), read_only
        if read_only and not self.path.is_file():
            raise StoreError(
                f"{self.path.parent} has no {self.path.name}; it is no run folder, or its run has not begun."
            )
        with explained(self.path):
            self.db = _reader(self.path) if read_only else _writer(self.path)
            try:
                self._prepare()
            except BaseException:
                self.db.close()
                raise

    def _prepare(self) -> None:
        self.db.execute("PRAGMA trusted_schema = OFF")
        made = False
        for kind, name, sql in self.db.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"):
            made |= name == "meta"
            if kind in ("trigger", "view") or (kind == "table" and not sql.startswith("CREATE TABLE ")):
                raise StoreError(
                    f"{self.path} holds a {kind} {name!r} that would run by itself; do not use this folder."
                )
        if self.read_only and not made:
            raise StoreError(f"{self.path} is not a database of almakit.")
        if not self.read_only:
            if made and (fault := self.db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise sqlite3.DatabaseError(f"malformed: {fault}")
            self.db.execute("PRAGMA journal_mode = WAL")
            self.db.execute("PRAGMA synchronous = FULL")
            with self.transaction():
                self._make_tables()
        found = self.meta("schema_version")
        if found != str(VERSION):
            raise StoreError(f"{self.path} has schema version {found}; this almakit reads version {VERSION}.")

    def _make_tables(self) -> None:
        """Add missing tables and columns, for example to a database of an earlier version."""
        for statement in TABLES:
            self.db.execute(statement)
        for of, (table, *_) in STORED.items():
            known = self._known(table)
            for column in fields.columns(of):
                if column.name not in known:
                    self.db.execute(f"ALTER TABLE {table} ADD COLUMN {column.name} {column.kind}")
        if not self.rows("SELECT 1 FROM meta LIMIT 1"):
            self.db.execute("INSERT INTO meta VALUES ('schema_version', ?)", (str(VERSION),))

    def _known(self, table: str) -> set[str]:
        """The columns of the database; one of an earlier version that is opened for reading may lack some."""
        return {row[1] for row in self.rows(f"PRAGMA table_info({table})")}

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction: other processes and a resume see either all rows of the block or none."""
        with explained(self.path):
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.db.execute("COMMIT")
                # The WAL never contains more than one transaction: its contents are in the database too.
                self.db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            except BaseException:
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the connection. A writer first merges the WAL into the database file, which can then be copied and read
        from a read-only disk."""
        if not self.read_only:
            try:
                self.db.execute("PRAGMA busy_timeout = 1000")
                self.db.execute("PRAGMA journal_mode = DELETE")
            except sqlite3.DatabaseError:
                pass  # another process is reading: the WAL stays and is read together with the database
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
        """The fact of the run with this key, or None."""
        return self.all_meta().get(key)

    def all_meta(self) -> dict[str, str]:
        return {str(key): str(value) for key, value in self.rows("SELECT key, value FROM meta ORDER BY key")}

    def set_meta(self, **values: str | None) -> None:
        """Set these facts in one transaction; None removes a fact."""
        with self.transaction():
            self.db.executemany("DELETE FROM meta WHERE key = ?", [(key,) for key in values])
            kept = [(key, value) for key, value in values.items() if value is not None]
            self.db.executemany("INSERT INTO meta VALUES (?, ?)", kept)

    def set_attacks(self, attacks: Iterable[AttackInfo]) -> None:
        with self.transaction():
            self.insert(attacks)

    def attacks(self) -> list[AttackInfo]:
        return self._read(AttackInfo, "attack")

    def set_findings(self, findings: Iterable[tuple[str, str, str, str]]) -> None:
        with self.transaction():
            self.db.execute("DELETE FROM findings")
            self.insert(FindingRow(*finding) for finding in findings)

    def findings(self) -> list[FindingRow]:
        return self._read(FindingRow, "name")

    def begin_session(self, environment: dict[str, Any]) -> int:
        with self.transaction():
            number = 1 + max((session.session for session in self.sessions()), default=0)
            self.insert([SessionRow(number, _now(), None, None, environment)])
        return number

    def end_session(self, session: int, outcome: str) -> None:
        with self.transaction():
            self.db.execute("UPDATE sessions SET ended = ?, outcome = ? WHERE session = ?", (_now(), outcome, session))

    def sessions(self) -> list[SessionRow]:
        return self._read(SessionRow, "session")

    # Rows of the dataclasses.

    def insert(self, values: Iterable[Any]) -> None:
        """Insert rows inside a transaction. Columns are named, because their order may differ in earlier versions."""
        rows = [(type(value), fields.row(value)) for value in values]
        for of in dict.fromkeys(of for of, _ in rows):
            names = fields.names(of)
            self.db.executemany(
                f"INSERT OR REPLACE INTO {STORED[of][0]} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})",
                [cells for kind, cells in rows if kind is of],
            )

    def _columns(self, of: Any, prefix: str = "") -> str:
        """The columns to read; those that the database of an earlier version lacks are empty."""
        known = self._known(STORED[of][0])
        return ", ".join(f"{prefix}{name}" if name in known else "NULL" for name in fields.names(of))

    def _read(self, of: Callable[..., Built], order: str) -> list[Built]:
        found = self.rows(f"SELECT {self._columns(of)} FROM {STORED[of][0]} ORDER BY {order}")
        with understood(self.path):
            return [fields.build(of, cells) for cells in found]

    # Finished work.

    def finish(
        self,
        row: ChunkRow,
        session: int,
        images: Iterable[ImageInfo] = (),
        records: Iterable[Record] = (),
        traces: Iterable[Trace] = (),
    ) -> None:
        """Record a unit of work whose file has been written. Recording it twice changes nothing."""
        found = [replace(record, round=row.key.round) for record in records]
        with self.transaction():
            self.insert([*images, *found, *traces, replace(row, session=session)])
            self.db.execute(f"DELETE FROM failures WHERE {_KEY}", fields.row(row.key))

    def give_up(self, failure: FailureRow, session: int) -> None:
        """Record that a unit of work was given up in this session. The next session tries it again."""
        with self.transaction():
            self.insert([replace(failure, session=session)])

    def failures(self) -> list[FailureRow]:
        """The units of work that were given up and have not been done since."""
        return self._read(FailureRow, "kind DESC, attack, chunk, round") if self._known("failures") else []

    def discard(self, key: ChunkKey) -> None:
        """Discard a unit of work, so that a resume computes it again. Rows without their chunk are not read and will be
        replaced."""
        with self.transaction():
            self.db.execute(f"DELETE FROM chunks WHERE {_KEY}", fields.row(key))

    def chunks(self) -> list[ChunkRow]:
        """Finished chunks: clean passes first, then by attack."""
        return self._read(ChunkRow, "kind DESC, attack, chunk, round")

    def images(self) -> list[ImageInfo]:
        return self._read(ImageInfo, "image")

    def records(self) -> list[Record]:
        """The results of finished chunks, by attack, image and target. Rows of discarded chunks are not read."""
        # CROSS JOIN fixes the order of the tables; otherwise SQLite scans all results of an attack for each chunk.
        found = self.rows(
            f"SELECT {self._columns(Record, 'r.')}, c.file, c.seconds / c.images "
            "FROM results r CROSS JOIN images i ON i.image = r.image CROSS JOIN chunks c ON c.kind = 'attack' "
            "AND c.attack = r.attack AND c.chunk = i.chunk AND c.round = r.round ORDER BY r.attack, r.image, r.target"
        )
        with understood(self.path):
            return [_record(row) for row in found]

    def traces(self) -> list[Trace]:
        return self._read(Trace, "attack, image, target")


def _reader(path: Path) -> sqlite3.Connection:
    place = path.resolve().as_uri()
    for tries_left in reversed(range(OPENINGS)):
        try:
            return _reading(f"{place}?mode=ro")
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise
            if tries_left:
                time.sleep(0.05)  # a writer may be creating its WAL or merging it
    # A WAL database on a read-only medium can be read without locks, because no process can write it.
    return _reading(f"{place}?mode=ro&immutable=1")


def _reading(place: str) -> sqlite3.Connection:
    """A connection that reads one snapshot, because a running process may finish a chunk between two reads."""
    db = sqlite3.connect(place, uri=True, timeout=LOCK_PATIENCE, isolation_level=None)
    try:
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        db.close()
        raise
    return db


def _writer(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    return sqlite3.connect(path, timeout=LOCK_PATIENCE, isolation_level=None)


def _record(row: Row) -> Record:
    *own, file, seconds = row
    found = fields.build(Record, own, file=None if own[_SLOT] is None else file, seconds=float(seconds))
    if found.status not in STATUSES:
        raise Corrupt(f"the database holds a status {found.status!r} that this almakit does not know.")
    return found


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


@contextmanager
def only_writer(database: Path) -> Iterator[None]:
    """Hold the lock of a database, so that a second process gets an error. The system releases it when the process
    ends."""
    if fcntl is None:  # pragma: no cover
        yield
        return
    with explained(database):
        database.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(database.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(
                f"another almakit process is writing {database}; wait, or choose another folder (--out)."
            ) from None
        except OSError:  # pragma: no cover (a network file system without locks)
            pass
        yield
    finally:
        os.close(handle)
