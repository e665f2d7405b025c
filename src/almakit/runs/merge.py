"""Merges shards into one run that equals the run of one process bit for bit. A merge is all-or-nothing. No torch
here."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import folder
from .failures import Corrupt, SpecChanged, StoreError, explained, understood
from .spec import RunSpec
from .store import ATTACK, CLEAN, ChunkKey, ChunkRow, Store, database_name, fields, files, only_writer
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
"""Names of facts that are equal in all shards of a run."""


def merge(sources: Sequence[str | Path], out: str | Path | None = None) -> tuple[Path, int]:
    """Merge shards.

    Shards of another spec, of other weights or data, or with other numbers for the same chunk are refused, and every
    file is checked by its hash. First all rows are read and compared, then files are copied, and renaming the joined
    database makes the result visible. A refused merge leaves ``out`` unchanged. One that is killed or fails while it
    copies leaves at most files without rows, and the same call completes it. Missing chunks can be computed afterwards
    by running the folder's own config.

    Args:
        sources: folders with shards.
        out: folder to join them in, by default the only source.

    Returns:
        The folder, and the number of chunks that no shard has done.
    """
    places = [Path(source) for source in sources]
    if out is None and len(places) != 1:
        raise StoreError("several folders are joined in a new one: name it with --out.")
    target = Path(out) if out is not None else places[0]
    main, joined = target / database_name(), target / f".{database_name()}.part"
    found = [database for place in places for database in _databases(place) if database.resolve() != main.resolve()]
    if not found:
        raise StoreError(f"there are no shards (records-0-of-4.sqlite, ...) in {', '.join(map(str, places))}.")
    held = {path.name for path in target.iterdir()} if target.is_dir() else set()
    if held - {main.with_suffix(".lock").name} and not held & {folder.SPEC, joined.name}:
        raise StoreError(f"{target} is neither empty nor a run folder; choose a new one with --out.")
    with ExitStack() as opened:
        databases = [main] * main.is_file() + found
        shards = [opened.enter_context(Store(database, read_only=True)) for database in databases]
        spec = _one_spec(shards, target)
        for shard in shards:
            _check_files(shard)
        with only_writer(main):
            _remove(joined)
            with Store(joined) as store:
                try:
                    _join(store, shards, target)
                except BaseException:
                    opened.callback(_remove, joined)
                    raise
                with understood(target):
                    missing = _missing(store, spec)
            for shard in shards:
                for row in shard.chunks():
                    _copy_file(row, shard.path.parent, target)
            if not (target / folder.SPEC).is_file():
                _write(target / folder.SPEC, (places[0] / folder.SPEC).read_bytes())
            opened.close()
            _put_in_place(joined, main)
    return target, missing


def _databases(place: Path) -> list[Path]:
    if not place.is_dir():
        raise StoreError(f"there is no run folder {place}.")
    return [*sorted(place.glob("records-*-of-*.sqlite")), *place.glob(database_name())]


def _one_spec(shards: Sequence[Store], target: Path) -> RunSpec:
    """The spec of all folders, which each must match its databases; a target that holds another run is refused."""
    specs = [(shard.path.parent, folder.spec_of(shard.path.parent, shard)) for shard in shards]
    first, spec = specs[0]
    if (target / folder.SPEC).is_file():
        specs.append((target, RunSpec.from_toml(target / folder.SPEC)))
    for place, other in specs[1:]:
        for name, here, there in other.differences(spec):
            raise SpecChanged(f"{place} and {first} are of different runs: {name} is {here!r} and {there!r}.")
    return spec


def _check_files(shard: Store) -> None:
    """Raise an error if files of a shard do not match their hashes."""
    for row in shard.chunks():
        if fault := files.fault_of(shard.path.parent, row):
            raise Corrupt(f"{shard.path.parent / str(row.file)} {fault}. Run that shard's command again.")


# Rows.


def _join(store: Store, shards: Sequence[Store], target: Path) -> None:
    """Insert the rows of all shards into an empty database. If two have done the same chunk, they must agree."""
    facts: dict[str, str | None] = {}
    sessions: dict[tuple[Any, ...], int] = {}
    done: dict[ChunkKey, tuple[Any, ...]] = {}
    with store.transaction():
        for shard in shards:
            with understood(shard.path):
                for name, value in shard.all_meta().items():
                    if facts.setdefault(name, value) != value and name in SAME:
                        raise SpecChanged(f"{shard.path} is not of {target}: its {name} is {value}, not {facts[name]}.")
                store.insert([*shard.attacks(), *shard.findings()])
                renumbered = {}
                for session in shard.sessions():
                    number = sessions.setdefault(fields.row(session)[1:], len(sessions) + 1)
                    renumbered[session.session] = number
                    store.insert([replace(session, session=number)])
                rows = _rows(shard)
                for chunk in shard.chunks():
                    own = rows.get(chunk.key, [])
                    content = (chunk.file, chunk.sha256, chunk.images, own)
                    if done.setdefault(chunk.key, content) != content:
                        raise SpecChanged(
                            f"{shard.path} and {target} disagree about chunk {chunk.key.chunk} of attack "
                            f"{chunk.key.attack}: they are of different runs or kinds of machines. Keep one of them."
                        )
                    store.insert([*own, replace(chunk, session=renumbered.get(chunk.session, 0))])
    store.set_meta(**facts | {"shard": None})


def _rows(shard: Store) -> dict[ChunkKey, list[Any]]:
    """The images, records and traces of each chunk."""
    found: dict[ChunkKey, list[Any]] = {}
    chunk_of = {info.index: info.chunk for info in shard.images()}
    for info in shard.images():
        found.setdefault(ChunkKey(CLEAN, -1, info.chunk), []).append(info)
    for record in shard.records():
        key = ChunkKey(ATTACK, record.attack, chunk_of[record.image], record.round)
        found.setdefault(key, []).append(replace(record, seconds=0.0))
    for trace in shard.traces():  # of the first round
        found.setdefault(ChunkKey(ATTACK, trace.attack, chunk_of[trace.image]), []).append(trace)
    return found


def _missing(store: Store, spec: RunSpec) -> int:
    """Number of chunks that no shard has done."""
    images, size = int(store.meta("images") or 0), int(spec.batch_size)
    turns = int(store.meta("classes") or 2) - 1 if spec.targets == "all" else 1
    return -(-images // size) * (1 + turns * len(spec.attacks)) - len(store.chunks())


# Files.


def _copy_file(row: ChunkRow, source: Path, target: Path) -> None:
    """Copy a chunk's file to the target folder unless it is there with its recorded contents."""
    if row.file is None or source.resolve() == target.resolve() or files.fault_of(target, row) is None:
        return
    with explained(source / row.file):
        content = (source / row.file).read_bytes()
    if hashlib.sha256(content).hexdigest() != row.sha256:
        raise Corrupt(f"{source / row.file} changed while it was copied; let the shard's run finish first.")
    _write(files.inside(target, row.file), content)


def _write(place: Path, content: bytes) -> None:
    for left in place.parent.glob(f".{place.name}.*"):  # left by a merge that was killed
        left.unlink()
    write_bytes(place, content)


def _put_in_place(joined: Path, main: Path) -> None:
    if main.is_file():
        Store(main).close()  # remove the write-ahead log of the database that is replaced
    for database in (joined, main):
        if database.with_name(f"{database.name}-wal").exists():
            raise StoreError(f"another process is reading {database}; run the same command again.")
    with explained(main):
        os.replace(joined, main)


def _remove(database: Path) -> None:
    for end in ("", "-wal", "-shm", "-journal"):
        database.with_name(database.name + end).unlink(missing_ok=True)
