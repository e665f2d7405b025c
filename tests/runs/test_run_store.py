"""The store: a commented schema anyone can read, transactions that hold, and no torch on the way to a report."""

from __future__ import annotations

import sqlite3
import subprocess
import sys

import pytest
from runs.small_runs import small_run

from almakit import Run
from almakit.runs.failures import StoreError
from almakit.runs.store import ATTACK, CLEAN, ChunkKey, ChunkRow, Store
from almakit.runs.store.records import ImageInfo, Record


def record(image: int, distance: float = 1.5) -> Record:
    top = ((3, 0.5), (1, 0.25))
    more = {"prediction": 3, "top": top, "fooled": True, "measured": distance, "measures": {"l2": distance}}
    return Record(0, image, None, "success", None, distance, 10, 9, **more, slot=image)


def filled(path):
    store = Store(path)
    infos = [ImageInfo(i, f"name{i}", "ab" * 32, 1, None, 0, 1, ((1, 1.0),)) for i in range(2)]
    store.finish(ChunkRow(ChunkKey(CLEAN, -1, 0), "o", "h", 2, 2, 0.5), 1, images=infos)
    store.finish(ChunkRow(ChunkKey(ATTACK, 0, 0), "f", "h", 2, 2, 4.0), 1, records=[record(0), record(1, float("inf"))])
    return store


def test_rows_come_back_and_a_repeat_changes_nothing(tmp_path):
    with filled(tmp_path / "records.sqlite") as store:
        first = store.records()
        assert [r.distance for r in first] == [1.5, float("inf")] and first[0].seconds == 2.0
        assert first[0].top == ((3, 0.5), (1, 0.25))
        again = [record(0), record(1, float("inf"))]
        store.finish(ChunkRow(ChunkKey(ATTACK, 0, 0), "f", "h", 2, 2, 4.0), 1, records=again)
        assert store.records() == first


def test_a_discarded_chunk_is_not_read(tmp_path):
    with filled(tmp_path / "records.sqlite") as store:
        store.discard(ChunkKey(ATTACK, 0, 0))
        assert store.records() == [] and len(store.chunks()) == 1


def test_a_transaction_is_all_or_nothing(tmp_path):
    with filled(tmp_path / "records.sqlite") as store:
        before = store.records()
        with pytest.raises(ZeroDivisionError), store.transaction():
            store.db.execute("DELETE FROM results")
            raise ZeroDivisionError
        assert store.records() == before


def test_the_finished_database_is_one_plain_file_with_comments(tmp_path):
    run = small_run(tmp_path)
    names = "adversarials originals records.lock records.sqlite run.toml summary.json"
    assert sorted(p.name for p in tmp_path.iterdir()) == names.split()
    with sqlite3.connect(tmp_path / "records.sqlite") as db:
        schema = {name: sql for name, sql in db.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")}
        tables = "meta sessions findings attacks images chunks results traces failures"
        assert set(schema) == {*tables.split()}
        for sql in schema.values():
            rows = [line.strip() for line in sql.splitlines()[1:]]
            columns = [line for line in rows if line and not line.startswith((")", "PRIMARY"))]
            assert sum("--" in line for line in columns) >= len(columns) / 2, sql
        assert all("--" in line for line in schema["results"].splitlines()[1:-2])
        assert db.execute("SELECT count(*), sum(distance IS NULL) FROM results").fetchone() == (80, 0)
        assert db.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone() == ("1",)
    db.close()
    assert run.sessions[0]["environment"]["torch"]


def test_a_run_can_be_read_while_it_is_written(tmp_path):
    small_run(tmp_path)
    with Store(tmp_path / "records.sqlite") as writer, writer.transaction():
        writer.db.execute("DELETE FROM results")
        assert len(Run(tmp_path).records) == 80


@pytest.mark.parametrize("moment", ["FROM images", "FROM results", "FROM attacks"])
def test_a_chunk_finished_while_the_run_is_read_is_no_damage(tmp_path, monkeypatch, moment):
    """Images and records are two readings: a run that goes on must not look damaged between them."""
    small_run(tmp_path)
    read, written = Store.rows, []

    def and_then_a_chunk_is_finished(self, query, values=()):
        found = read(self, query, values)
        if self.read_only and moment in f"{query} {values}" and not written:
            written.append(query)
            with Store(tmp_path / "records.sqlite") as writer:
                writer.set_meta(model="renamed")
                infos = [ImageInfo(80 + i, f"more{i}", "ab" * 32, 1, None, 99, 1, ((1, 1.0),)) for i in range(2)]
                writer.finish(ChunkRow(ChunkKey(CLEAN, -1, 99), "o", "h", 2, 2, 0.5), 1, images=infos)
                more = [record(80 + i) for i in range(2)]
                writer.finish(ChunkRow(ChunkKey(ATTACK, 0, 99), "f", "h", 2, 2, 4.0), 1, records=more)
        return found

    with Store(tmp_path / "records.sqlite") as running:  # as in a run that goes on: the database is in WAL mode
        images, records = len(running.images()), len(running.records())
        monkeypatch.setattr(Store, "rows", and_then_a_chunk_is_finished)
        run = Run(tmp_path)
        done = len(run.images), len(run.records)
    before, after = (images, records), (images + 2, records + 2)
    assert written and done == (after if moment == "FROM attacks" else before)
    assert {one.image for one in run.records} <= {one.index for one in run.images}


def test_what_is_no_run_is_said(tmp_path):
    with pytest.raises(StoreError, match="no run folder"):
        Run(tmp_path / "nothing")
    with pytest.raises(StoreError, match=r"no records\.sqlite"):
        Run(tmp_path)
    sqlite3.connect(tmp_path / "records.sqlite").close()
    with pytest.raises(StoreError, match="not a database of almakit"):
        Run(tmp_path)


def test_another_schema_version_is_refused(tmp_path):
    with filled(tmp_path / "records.sqlite") as store:
        store.set_meta(schema_version="99")
    with pytest.raises(StoreError, match="version 99"):
        Store(tmp_path / "records.sqlite")


def test_reports_need_no_torch(tmp_path):
    small_run(tmp_path)
    code = """
import sys
from almakit.runs import merge, spec, store
from almakit.runs import export
from almakit.runs.store import records
from almakit.report import numbers, summary, tables
from almakit.report.run import finish
run = finish(__import__("pathlib").Path(sys.argv[1]))
run.table(); run.originals([0]); export.flat_rows(run)
run.adversarials([r for r in run.records if r.slot is not None][:1])
assert "torch" not in sys.modules, "torch was imported"
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
