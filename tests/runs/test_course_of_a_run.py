"""Best distances on the way: kept with every record, read from folders that lack them, summed up; and a
budget that ends where nothing improves."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from runs.small_runs import Net, images, small_run

from almakit import Run, attacks
from almakit.report import subjects
from almakit.runs.store.records import PASSES

TEXT = "alma(distance=l2, steps=120)"
BOTH = [TEXT, "pgd(distance=l2, epsilon=0.5, steps=4)"]
NAMES = [f"best_{count}" for count in PASSES]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return small_run(tmp_path_factory.mktemp("course") / "run", attacks=BOTH, data=images(16))


def test_a_record_keeps_what_the_attack_says(run: Run) -> None:
    x, labels = images(16)
    result = attacks.get(TEXT)(Net(), x, labels, batch_size=8)
    for record in run.records_of(0):
        kept = [np.inf if record.course[name] is None else record.course[name] for name in NAMES]
        assert kept == pytest.approx(result.course[record.image].tolist())
        assert kept[-1] == record.distance


def test_the_summary_has_the_medians(run: Run) -> None:
    minimal, fixed = run.summary["attacks"]
    attacked = [record for record in run.records_of(0) if record.attacked]
    assert "course" not in fixed
    assert [row["forwards"] for row in minimal["course"]] == [10, 30, 100, 120], "the last as far as it goes"
    for row, name in zip(minimal["course"], NAMES, strict=False):
        middle = np.median([np.inf if record.course[name] is None else record.course[name] for record in attacked])
        assert (row["median"] is None and np.isinf(middle)) or row["median"] == pytest.approx(middle)
    assert minimal["course"][-1]["median"] == pytest.approx(minimal["median_attacked"]["value"])


def test_a_folder_of_before_is_read_verified_and_has_no_course(run: Run, tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(run.folder, old)
    with sqlite3.connect(old / "records.sqlite", isolation_level=None) as db:
        for name in NAMES:
            db.execute(f"ALTER TABLE results DROP COLUMN {name}")
    db.close()
    again = Run(old)
    assert [record.course for record in again.records] == [dict.fromkeys(NAMES)] * len(again.records)
    assert "course" not in subjects.load([old])[0].columns[0].numbers
    assert small_run(old, attacks=BOTH, data=images(16)).records == again.records
