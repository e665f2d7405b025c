"""The one table of fields: rows and back, and columns that came later."""

from __future__ import annotations

import math
import sqlite3
from dataclasses import fields, replace

import pytest
from runs.small_runs import small_run

from almakit.runs.store import Store
from almakit.runs.store import fields as table
from almakit.runs.store.records import MEASURED, AttackInfo, ChunkKey, ChunkRow, ImageInfo, Record

TOP, MEASURES = ((4, 0.75), (1, 0.25)), dict.fromkeys(MEASURED, 0.25)
RECORD = Record(1, 2, 3, "success", None, 0.5, 7, 6, 4, TOP, True, 0.5, MEASURES, slot=0, round=5)
NOTHING = {"target": None, "distance": math.inf, "prediction": None, "top": (), "fooled": False, "measured": None}


@pytest.mark.parametrize(
    "value",
    [
        RECORD,
        replace(RECORD, **NOTHING, measures=dict.fromkeys(MEASURED), slot=None),
        AttackInfo(0, "ddn", "DDN", "l2", True, False, "a paper", "a step", {"epsilon": math.inf, "steps": 3}),
        ImageInfo(9, "a/b.png", "0" * 64, 3, None, 1, -1, ()),
        ChunkRow(ChunkKey("attack", 1, 2, 3), "a/b", "0" * 64, 8, 4, 0.5, 7),
    ],
)
def test_there_and_back(value) -> None:
    cells = table.row(value)
    assert all(cell is None or type(cell) in (int, float, str) for cell in cells)
    assert table.build(type(value), cells) == value


def test_every_stored_field_of_a_record_has_a_column_and_a_meaning() -> None:
    own = {column.field for column in table.columns(Record)}
    assert own == {field.name for field in fields(Record)} - {"file", "seconds"}
    assert all(column.meaning for kind in (Record, ImageInfo, AttackInfo) for column in table.columns(kind))


def test_a_database_with_other_columns_in_another_order_is_read_and_continued(tmp_path) -> None:
    """Version 0.1 had the round in the fourth place; what is added to Record later will be missing in the databases of
    today."""
    run = small_run(tmp_path / "run")
    before, database = run.records, tmp_path / "run" / "records.sqlite"
    with sqlite3.connect(database) as db:
        names = [name for name in table.names(Record) if name != "round"]
        order = ", ".join([*names[:3], "round", *names[3:]])
        db.execute(f"CREATE TABLE other AS SELECT {order} FROM results")
        db.execute("DROP TABLE results")
        db.execute("ALTER TABLE other RENAME TO results")
        db.execute("CREATE UNIQUE INDEX of_results ON results (attack, image, target)")
    db.close()
    with Store(database, read_only=True) as store:
        assert store.records() == before
    with Store(database) as store:
        chunk = next(row for row in store.chunks() if row.key.kind == "attack")
        again = [
            replace(record, file=None, seconds=0.0)
            for record in before
            if record.attack == chunk.key.attack and run.image[record.image].chunk == chunk.key.chunk
        ]
        store.finish(chunk, 1, records=again)
        assert store.records() == before
