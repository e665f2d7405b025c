"""Shards joined into one run, bit for bit what one process would have made; all of them or none. No torch here."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from . import folder
from .failures import Corrupt, SpecChanged, StoreError, explained
from .spec import RunSpec
from .store import ChunkRow, Store, database_name, files, only_writer
from .store.files import write_bytes

SAME = (
    "schema_version",
    "spec_sha256",
    "weights_sha256",
    "code_sha256",
    "imports_sha256",
    "data_sha256",
    "features",
    "images",
    "classes",
)
TABLES = ("images", "results", "traces", "findings")


def merge(sources: Sequence[str | Path], out: str | Path | None = None) -> tuple[Path, int]:
    """Joins the shards in the folders ``sources`` in the folder ``out`` (by default the only source); returns it and
    the missing chunks.

    Shards of another spec, of other weights or data, or with other numbers for the same image are refused; files are
    checked by hash on the way. Whatever is refused or goes wrong, the folder stays as it was: first all rows are
    compared, then files are copied, and one transaction, or one rename where there was nothing before, makes the whole
    visible. What is missing can be computed afterwards by running the folder's own config.
    """
    places = [Path(source) for source in sources]
    if out is None and len(places) != 1:
        raise StoreError("several folders are joined in a new one: name it with --out.")
    target = Path(out) if out is not None else places[0]
    databases = [database for place in places for database in _databases(place, target)]
    if not databases:
        raise StoreError(
            f"there are no shards in {', '.join(map(str, places))}; they are called records-0-of-4.sqlite and so on."
        )
    with ExitStack() as stack:
        shards = [stack.enter_context(Store(database, read_only=True)) for database in databases]
        spec = _one_spec(shards, target)
        for shard in shards:
            _check(shard)
        with _made(target) as place, _joined(place) as store, _undone_files() as written:
            with store.transaction():
                for shard in shards:
                    _join(store, shard, target)
                _one_content(store)
                missing = _missing(store, spec)
                for shard in shards:
                    for row in shard.chunks():
                        _bring(row, shard.path.parent, place, written)
            if not (place / folder.SPEC).is_file():
                write_bytes(place / folder.SPEC, (places[0] / folder.SPEC).read_bytes())
    return target, missing


def _databases(place: Path, target: Path) -> list[Path]:
    if not place.is_dir():
        raise StoreError(f"there is no run folder {place}.")
    found = sorted(place.glob("records-*-of-*.sqlite"))
    whole = place / database_name()
    return [*found, whole] if whole.is_file() and place.resolve() != target.resolve() else found


def _one_spec(shards: Sequence[Store], target: Path) -> RunSpec:
    """The spec all folders share, each the one its databases were made with; a target that holds another run's is
    refused."""
    first, begun = shards[0].path.parent, target / folder.SPEC
    spec = folder.spec_of(first, shards[0])
    others = [(shard.path.parent, folder.spec_of(shard.path.parent, shard)) for shard in shards[1:]]
    for place, other in [*others, *([(target, RunSpec.from_toml(begun))] if begun.is_file() else [])]:
        for name, here, there in other.differences(spec):
            raise SpecChanged(
                f"{place} and {first} are of different runs: {name} is {here!r} in one and {there!r} in the other."
            )
    return spec


def _check(shard: Store) -> None:
    """Refuses a shard whose facts, rows or files are not the ones that were written."""
    shard.check_facts()
    for key in shard.damaged():
        raise shard.refuse(key)
    for row in shard.chunks():
        if fault := files.fault_of(shard.path.parent, row):
            raise Corrupt(
                f"{shard.path.parent / str(row.file)} {fault}. Run that shard's command again: it recomputes this "
                "chunk and keeps the rest."
            )


# Where it is joined: nothing is seen of it before it is whole.


@contextmanager
def _made(target: Path) -> Iterator[Path]:
    """The folder to join in: ``target`` where it holds this run already, else one beside it that takes its place at the
    end."""
    if (target / folder.SPEC).is_file():
        with only_writer(target / database_name()):
            yield target
        return
    if target.is_dir() and any(target.iterdir()):
        raise StoreError(
            f"{target} is neither empty nor this run's (it has no {folder.SPEC}); choose a new folder with --out."
        )
    place = target.resolve()
    beside = place.with_name(f".{place.name}.merging")
    with explained(beside), only_writer(beside / database_name()):
        for left in beside.iterdir():  # by a merge that was killed: the lock is ours now
            if left.suffix != ".lock":
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        try:
            yield beside
            os.replace(beside, place)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise


@contextmanager
def _joined(place: Path) -> Iterator[Store]:
    """The folder's database; a new one has another name until all is in it, for a folder with an empty one would look
    like a run without results."""
    main, new = place / database_name(), place / f".{database_name()}.part"
    if main.is_file():
        with Store(main) as store:
            yield store
        return
    _remove(new)
    try:
        with Store(new) as store:
            yield store
        with explained(main):
            if new.with_name(f"{new.name}-wal").exists():
                raise StoreError(
                    f"somebody is reading {new}, so it cannot be put in its place; run the same command again."
                )
            os.replace(new, main)
    finally:
        _remove(new)


def _remove(database: Path) -> None:
    for end in ("", "-wal", "-shm", "-journal"):
        database.with_name(database.name + end).unlink(missing_ok=True)


@contextmanager
def _undone_files() -> Iterator[list[Path]]:
    """A list of files that were not there before; they go again where the block does not end well."""
    written: list[Path] = []
    try:
        yield written
    except BaseException:
        for path in written:
            path.unlink(missing_ok=True)
        raise


# Rows and files.


def _join(store: Store, shard: Store, target: Path) -> None:
    """Takes over what a shard has, inside the caller's transaction."""
    facts, known = shard.all_meta(), store.all_meta()
    for key in SAME:
        if key in facts and key in known and facts[key] != known[key]:
            raise SpecChanged(f"{shard.path} does not belong to {target}: its {key} is {facts[key]}, not {known[key]}.")
    for key, value in facts.items():
        if key not in ("shard", "facts_sha256"):
            store.db.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (key, value))
    _copy(store, shard, "attacks", ("attack", "text", "distance", "minimal", "targeted"))
    store.sum_facts()
    for table in TABLES:
        _copy(store, shard, table)
    sessions = _sessions(store, shard)
    _copy(store, shard, "chunks", ("kind", "attack", "chunk", "round", "file", "sha256", "images"), sessions)


def _sessions(store: Store, shard: Store) -> dict[int, int]:
    """The shard's sessions in the joined database: old number -> new one. Joining twice adds none."""
    known = {(row[1], row[2], row[3], row[4]): row[0] for row in store.rows("SELECT * FROM sessions")}
    numbers = {}
    for row in shard.rows("SELECT * FROM sessions ORDER BY session"):
        facts = (row[1], row[2], row[3], row[4])
        if facts not in known:
            store.db.execute("INSERT INTO sessions (started, ended, outcome, environment) VALUES (?, ?, ?, ?)", facts)
            known[facts] = int(store.db.execute("SELECT last_insert_rowid()").fetchone()[0])
        numbers[int(row[0])] = known[facts]
    return numbers


def _copy(
    store: Store, shard: Store, table: str, compared: Sequence[str] = (), sessions: dict[int, int] | None = None
) -> None:
    """Copies a table's rows; one that is there already must be the same, in the columns ``compared`` (all of them by
    default)."""
    described = shard.rows(f"PRAGMA table_info({table})")
    columns, keys = [row[1] for row in described], [row[1] for row in described if row[5]]
    places = ", ".join("?" * len(columns))
    wanted = " AND ".join(f"{key} = ?" for key in keys)
    held = [columns.index(name) for name in compared or columns]
    for row in shard.rows(f"SELECT * FROM {table}"):
        own = [row[columns.index(key)] for key in keys]
        there = store.db.execute(f"SELECT {', '.join(columns)} FROM {table} WHERE {wanted}", own).fetchone()
        if there is None:
            values = [
                sessions[value] if sessions and name == "session" else value
                for name, value in zip(columns, row, strict=True)
            ]
            store.db.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", values)
        elif table != "findings" and any(there[place] != row[place] for place in held):
            where = ", ".join(f"{key} {value}" for key, value in zip(keys, own, strict=True))
            raise SpecChanged(
                f"{shard.path} and {store.path} disagree about the row {where} of {table}; they were not made by the "
                "same run on the same kind of machine. Keep one of them."
            )


def _one_content(store: Store) -> None:
    """Refuses a file that two pieces of work want with different contents: copying one would destroy the other's."""
    for (file,) in store.rows(
        "SELECT file FROM chunks WHERE file IS NOT NULL GROUP BY file HAVING count(DISTINCT sha256) > 1"
    ):
        raise Corrupt(
            f"two chunks name the file {file} with different contents; almakit never writes that. Do not use these "
            "folders."
        )


def _bring(row: ChunkRow, source: Path, target: Path, written: list[Path]) -> None:
    """Makes sure that a chunk's file lies, whole, in the target folder; one that was not there is ``written`` down."""
    if row.file is None or source.resolve() == target.resolve():
        return
    if files.fault_of(target, row) is None:
        return
    place = files.inside(target, row.file)
    with explained(source / row.file):
        content = (source / row.file).read_bytes()
    if hashlib.sha256(content).hexdigest() != row.sha256:
        raise Corrupt(f"{source / row.file} changed while it was copied; let the shard's run finish first.")
    for left in place.parent.glob(f".{place.name}.*"):  # by a merge that was killed while it wrote
        left.unlink()
    if not place.exists():
        written.append(place)
    write_bytes(place, content)


def _missing(store: Store, spec: RunSpec) -> int:
    """How many chunks no shard has done."""
    images, size = int(store.meta("images") or 0), int(spec.batch_size)
    turns = int(store.meta("classes") or 2) - 1 if spec.targets == "all" else 1
    return -(-images // size) * (1 + turns * len(spec.attacks)) - len(store.chunks())
