"""The run folder's database file: one SQLite file in WAL mode, opened, made, brought up to date and closed, with one
writer at a time; no torch here."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ..failures import StoreError, explained
from . import schema

try:
    import fcntl
except ImportError:  # pragma: no cover (Windows has no flock; SQLite's own locks still keep the data whole)
    fcntl = None  # type: ignore[assignment]

Kind = TypeVar("Kind", bound="Database")
LOCK_PATIENCE = 20.0  # seconds to wait for another process's lock before giving up
OPENINGS = 4  # tries to open a database for reading before it is taken for one on a read-only medium


class Database:
    """A connection: ``Database(path)`` makes or continues a file, ``Database(path, read_only=True)`` never writes and
    sees one moment of it."""

    def __init__(self, path: str | Path, read_only: bool = False):
        self.path, self.read_only = Path(path), read_only
        if read_only and not self.path.is_file():
            raise StoreError(
                f"{self.path.parent} has no {self.path.name}; it is no run folder, or its run has not begun."
            )
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
        for tries_left in reversed(range(OPENINGS)):
            try:
                return _reading(f"{place}?mode=ro")
            except sqlite3.OperationalError as error:
                if "locked" in str(error):
                    raise
                if tries_left:
                    time.sleep(0.05)  # a writer may be about to make its WAL, or to fold it in
        # A WAL database on a read-only medium: readable as it lies, for nobody can be writing it.
        return _reading(f"{place}?mode=ro&immutable=1")

    def _prepare(self) -> None:
        self.db.execute("PRAGMA trusted_schema = OFF")
        alive = (
            "SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'view') OR (type = 'table' AND sql "
            "NOT LIKE 'CREATE TABLE %')"
        )
        for kind, name in self.db.execute(alive):
            raise StoreError(
                f"{self.path} holds a {kind} called {name!r} of a kind that almakit never makes and that would run by "
                "itself; do not use it."
            )
        made = self.db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'meta'").fetchone()[0]
        if made and not self.read_only and (fault := self.db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(f"malformed: {fault}")
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
        elif not self.read_only:
            self._bring_up_to_date()
        found = self.meta("schema_version")
        if found != str(schema.VERSION):
            raise StoreError(
                f"{self.path} has schema version {found}; this almakit reads version {schema.VERSION}. Use the "
                "almakit that wrote it."
            )

    def _bring_up_to_date(self) -> None:
        """Gives a database that an earlier almakit began the tables and columns that came later; nothing in it
        changes."""
        with self.transaction():
            for statement in filter(str.strip, schema.TABLES.split(";\n")):
                self.db.execute(statement.replace("CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ", 1))
            for table, column, kind in schema.LATER:
                if not self.has(table, column):
                    self.db.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")

    def has(self, table: str, column: str) -> bool:
        """Whether the database knows a column (one begun by an earlier almakit and opened for reading may not)."""
        return any(row[1] == column for row in self.rows(f"PRAGMA table_info({table})"))

    def check_kinds(self) -> None:
        """Refuses cells of another kind than their column's, which SQLite keeps as it is given them, and rows that
        cannot be."""
        tests = {
            table: [f"({test})" for name, test in cells if self.has(table, name)]
            for table, cells in schema.cells().items()
        }
        queries = [f"SELECT 1 FROM {table} WHERE {' OR '.join(wrong)}" for table, wrong in tests.items() if wrong]
        with explained(self.path):
            for query in (*queries, *schema.RULES):
                if self.db.execute(f"{query} LIMIT 1").fetchone():
                    what = query.split()[3]
                    raise StoreError(
                        f"{self.path} holds something in its table {what} that almakit never writes there; do not use "
                        "it."
                    )

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing: another process sees either none of the block's rows or all of them, and so does a resume."""
        with explained(self.path):
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.db.execute("COMMIT")
                # The WAL never holds more than one transaction, whatever happens to it: what is in it is in the
                # database too.
                self.db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            except BaseException:
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Ends the connection; a writer folds the WAL into the one file, which can then be copied, and read from a
        read-only disk."""
        if not self.read_only:
            try:
                self.db.execute("PRAGMA busy_timeout = 1000")
                self.db.execute("PRAGMA journal_mode = DELETE")
            except sqlite3.DatabaseError:
                pass  # somebody is reading: the WAL stays beside the database and is read with it
        self.db.close()

    def __enter__(self: Kind) -> Kind:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with explained(self.path):
            return self.db.execute(query, values).fetchall()

    def meta(self, key: str) -> str | None:
        """A fact of the run, or None."""
        found = self.rows("SELECT value FROM meta WHERE key = ?", (key,))
        return None if not found else str(found[0][0])


def _reading(place: str) -> sqlite3.Connection:
    """A connection that reads, all of one moment: a run that goes on may finish a chunk between rows and their sum."""
    db = sqlite3.connect(place, uri=True, timeout=LOCK_PATIENCE, isolation_level=None)
    try:
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        db.close()
        raise
    return db


@contextmanager
def only_writer(database: Path) -> Iterator[None]:
    """Holds the folder's lock for one database, so that a second process is told at once instead of doing the same work
    again; the system lets go of it when the process ends, however it ends."""
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
                f"another almakit process is writing {database}; wait until it has finished, or choose another folder "
                "(--out)."
            ) from None
        except OSError:  # pragma: no cover (a network file system without locks)
            pass
        yield
    finally:
        os.close(handle)
