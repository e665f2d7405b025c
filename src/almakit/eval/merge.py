"""Shards joined into one run, bit for bit what one process would have made. No torch here."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from . import chunkfiles, folder
from .chunkfiles import write_bytes
from .failures import Corrupt, SpecChanged, StoreError, explained
from .lock import only_writer
from .rowsums import refuse
from .spec import RunSpec
from .store import CHUNK_COLUMNS, ChunkRow, Store, database_name

SAME = ("schema_version", "spec_sha256", "weights_sha256", "code_sha256", "data_sha256", "images", "classes")
TABLES = ("images", "results", "traces", "findings")


def merge(sources: Sequence[str | Path], out: str | Path | None = None) -> tuple[Path, int]:
    """Joins the shards in the folders ``sources`` in the folder ``out`` (by default the only source); returns it and the missing chunks.

    Shards of another spec, of other weights or data, or with other numbers for the same image are refused; files are checked by
    hash on the way. What is missing can be computed afterwards by running the folder's own config.
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
    main = target / database_name()
    with only_writer(main):
        spec = _one_spec(places, target)
        with Store(main) as store:
            for database in databases:
                with Store(database, read_only=True) as shard:
                    _join(store, shard, target)
            return target, _missing(store, spec)


def _databases(place: Path, target: Path) -> list[Path]:
    if not place.is_dir():
        raise StoreError(f"there is no run folder {place}.")
    found = sorted(place.glob("records-*-of-*.sqlite"))
    whole = place / database_name()
    return [*found, whole] if whole.is_file() and place.resolve() != target.resolve() else found


def _one_spec(places: Sequence[Path], target: Path) -> RunSpec:
    """The spec all folders share; the target gets a copy."""
    specs = {place: RunSpec.from_toml(place / folder.SPEC) for place in places}
    first = specs[places[0]]
    for place, spec in specs.items():
        for name, here, there in spec.differences(first):
            raise SpecChanged(
                f"{place} and {places[0]} are shards of different runs: {name} is {here!r} in one and {there!r} in the other."
            )
    if not (target / folder.SPEC).is_file():
        write_bytes(target / folder.SPEC, (places[0] / folder.SPEC).read_bytes())
    return first


def _join(store: Store, shard: Store, target: Path) -> None:
    """Takes over what a shard has; all of it or nothing."""
    shard.check_facts()
    facts, known = shard.all_meta(), store.all_meta()
    for key in SAME:
        if key in facts and key in known and facts[key] != known[key]:
            raise SpecChanged(f"{shard.path} does not belong to {target}: its {key} is {facts[key]}, not {known[key]}.")
    for row in shard.chunks():
        _bring(row, shard.path.parent, target)
    for damaged in shard.damaged():
        raise refuse(shard.path, (damaged.attack, damaged.chunk, damaged.round))
    if not store.attacks():
        store.set_attacks(shard.attacks())
    sessions = _sessions(store, shard)
    with store.transaction():
        for key, value in facts.items():
            if key not in ("shard", "facts_sha256"):
                store.db.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (key, value))
        store.sum_facts()
        for table in TABLES:
            _copy(store, shard, table)
        sums = "rows_sha256" if shard.has("chunks", "rows_sha256") else "NULL"
        for *done, number, total in shard.rows(f"SELECT {CHUNK_COLUMNS}, session, {sums} FROM chunks"):
            store.db.execute("INSERT OR IGNORE INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*done, sessions[number], total))


def _sessions(store: Store, shard: Store) -> dict[int, int]:
    """The shard's sessions in the joined database: old number -> new one. Joining twice adds none."""
    known = {(row[1], row[2], row[3], row[4]): row[0] for row in store.rows("SELECT * FROM sessions")}
    numbers = {}
    with store.transaction():
        for row in shard.rows("SELECT * FROM sessions ORDER BY session"):
            facts = (row[1], row[2], row[3], row[4])
            if facts not in known:
                store.db.execute("INSERT INTO sessions (started, ended, outcome, environment) VALUES (?, ?, ?, ?)", facts)
                known[facts] = int(store.db.execute("SELECT last_insert_rowid()").fetchone()[0])
            numbers[int(row[0])] = known[facts]
    return numbers


def _copy(store: Store, shard: Store, table: str) -> None:
    """Copies a table's rows; a row that is there already must be the same."""
    columns = [row[1] for row in shard.rows(f"PRAGMA table_info({table})")]
    keys = [row[1] for row in shard.rows(f"PRAGMA table_info({table})") if row[5]]
    places = ", ".join("?" * len(columns))
    wanted = " AND ".join(f"{key} = ?" for key in keys)
    for row in shard.rows(f"SELECT * FROM {table}"):
        own = [row[columns.index(key)] for key in keys]
        there = store.db.execute(f"SELECT * FROM {table} WHERE {wanted}", own).fetchone()
        if there is None:
            store.db.execute(f"INSERT INTO {table} VALUES ({places})", row)
        elif there != row and table != "findings":
            where = ", ".join(f"{key} {value}" for key, value in zip(keys, own, strict=True))
            raise SpecChanged(
                f"{shard.path} and {store.path} disagree about the row {where} of {table}; they were not made by the same run "
                "on the same kind of machine. Keep one of them."
            )


def _bring(row: ChunkRow, source: Path, target: Path) -> None:
    """Makes sure that a chunk's file lies, whole, in the target folder."""
    if row.file is None:
        return
    if fault := chunkfiles.fault_of(chunkfiles.inside(source, row.file), str(row.sha256)):
        raise Corrupt(
            f"{source / row.file} {fault}. Run that shard's command again: it recomputes this chunk and keeps the rest."
        )
    place = target / row.file
    if source.resolve() == target.resolve() or chunkfiles.fault_of(place, str(row.sha256)) is None:
        return
    with explained(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        partial = place.with_name(f".{place.name}.part")
        shutil.copyfile(source / row.file, partial)
        partial.replace(place)


def _missing(store: Store, spec: RunSpec) -> int:
    """How many chunks no shard has done."""
    images, size = int(store.meta("images") or 0), int(spec.batch_size)
    turns = int(store.meta("classes") or 2) - 1 if spec.targets == "all" else 1
    return -(-images // size) * (1 + turns * len(spec.attacks)) - len(store.chunks())
