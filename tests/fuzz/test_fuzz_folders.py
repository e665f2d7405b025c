"""Run folders damaged at random: readers find the numbers that were written or say that they cannot, and a resume mends
what it can. A number that changed inside the database is found by verify alone (test_trust_verify.py)."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from fuzz.amount import examples, outcome
from hypothesis import example, given
from hypothesis import strategies as st
from runs.small_runs import Net, images, small_run

from almakit import Run
from almakit.errors import AlmakitError
from almakit.report import subjects
from almakit.report.page import render
from almakit.runs.export import flat_rows
from almakit.runs.store.records import Record
from almakit.runs.verify import damaged_files

SMALL = {"attacks": ["alma(distance=l2, steps=6)"], "batch_size": 4, "data": images(12)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Run:
    return small_run(tmp_path_factory.mktemp("whole") / "run", **SMALL)


def numbers(run: Run) -> list[object]:
    """What a report shows: every record and every image, times left out."""
    from dataclasses import replace

    found: list[Record] = [replace(record, seconds=0.0) for record in run.records]
    return [*found, *run.images]


harms = st.tuples(
    st.sampled_from(["flip", "cut", "grow", "gone", "swap", "empty", "cell", "row"]),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
)


def damage(folder: Path, kind: str, a: int, b: int) -> bool:
    """Does the damage; returns whether the database may hold other rows now."""
    files = sorted(
        path for path in folder.rglob("*") if path.is_file() and path.name not in ("records.lock", "summary.json")
    )
    file = files[a % len(files)]
    if kind in ("cell", "row"):
        edit(folder / "records.sqlite", kind, a, b)
    elif kind == "gone":
        file.unlink()
    elif kind == "swap":
        shutil.copyfile(files[b % len(files)], folder / "other")
        shutil.move(folder / "other", file)
    else:
        content = bytearray(file.read_bytes())
        if kind == "flip" and content:
            content[b % len(content)] ^= 1 << (a % 8)
        file.write_bytes(
            {"cut": content[: b % (len(content) + 1)], "grow": content + b"\x00more", "empty": b""}.get(kind, content)
        )
    return kind in ("cell", "row") or file.name == "records.sqlite"


def edit(database: Path, kind: str, a: int, b: int) -> None:
    """Changes a cell, or takes a row away, behind almakit's back."""
    if not database.is_file():
        return
    db = sqlite3.connect(database, isolation_level=None)
    try:
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")]
        table = tables[a % len(tables)]
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        rows = db.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
        if not rows:
            return
        row, column = rows[b % len(rows)], columns[(a // 7) % len(columns)]
        where = " AND ".join(f"{name} IS ?" for name in columns)
        if kind == "row":
            db.execute(f"DELETE FROM {table} WHERE {where}", row)
        else:
            value = [0, -1, 1e300, "", "x", "[]", "{}", "success", b"\xff\xfe", 10**12][(a // 3) % 10]
            db.execute(f"UPDATE OR IGNORE {table} SET {column} = ? WHERE {where}", (value, *row))
    except sqlite3.DatabaseError:
        pass  # the database was damaged beyond editing before: so be it
    finally:
        db.close()


def readable(folder: Path, expected: list[object], edited: bool) -> None:
    """Reads the folder as reports and exports do."""
    try:
        run = Run(folder)
        assert edited or set(map(repr, numbers(run))) <= set(map(repr, expected)), "a wrong number could be read"
        run.table()
        flat_rows(run)
        damaged_files(run)
        render(subjects.load([folder]), 2)
    except AlmakitError as error:
        assert len(str(error)) > 20, error


@examples(60)
@example(damages=[("cell", 703, 0)])  # a word where a chunk's number was
@example(damages=[("row", 0, 0)])  # the row of an attack is gone
@given(damages=st.lists(harms, min_size=1, max_size=2))
def test_any_damage_to_a_run_folder(damages, whole, tmp_path_factory):
    expected = numbers(whole)
    folder = tmp_path_factory.mktemp("harmed") / "run"
    shutil.copytree(whole.folder, folder)
    edited = any([damage(folder, kind, a, b) for kind, a, b in damages])
    readable(folder, expected, edited)
    model = Net()
    try:
        run = small_run(folder, model=model, **SMALL)
    except AlmakitError as error:
        assert len(str(error)) > 20, error
        outcome("damaged run folders", "sentence")
    else:
        assert edited or numbers(run) == expected, "the resume did not mend it"
        outcome("damaged run folders", "result")
    shutil.rmtree(folder)
