"""Run folders as reports read them: joined where they belong together, one sentence where they are damaged."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from report.made_runs import FOUR, MadeAttack, make_run

from almakit.cli.main import main
from almakit.report import subjects
from almakit.report.page import render
from almakit.report.trust import checks, counts_of
from almakit.runs.store import Store, database_name


def test_runs_of_the_same_weights_and_images_are_one_subject(tmp_path: Path) -> None:
    a, b = make_run(tmp_path / "a", 40, FOUR[:2]), make_run(tmp_path / "b", 40, FOUR[2:], seed=1)
    (subject,) = subjects.load([a, b])
    assert [column.info.title for column in subject.columns] == ["ALMA", "ALMA", "DDN", "DDN"]
    # d* is now what either run found, so nobody is better off than alone, and the best of all is close to 1.
    alone = [
        column.numbers["optimality"]["value"]
        for folder in (a, b)
        for subject_ in subjects.load([folder])
        for column in subject_.columns
    ]
    joined = [column.numbers["optimality"]["value"] for column in subject.columns]
    assert all(new <= old + 1e-12 for new, old in zip(joined, alone, strict=True)) and min(joined) < min(alone)
    assert max(joined) > 0.9


def test_other_weights_or_images_are_other_subjects(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "a", 20), make_run(tmp_path / "b", 20, weights="e" * 64), make_run(tmp_path / "c", 21)]
    names = [subject.name for subject in subjects.load(runs)]
    assert names == ["mnist/smallcnn (a)", "mnist/smallcnn (b)", "mnist/smallcnn (c)"]


def test_distances_tell_missing_from_not_found(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", 64, (MadeAttack(failing=0.5), MadeAttack("ddn", "DDN")), unfinished=1)
    (subject,) = subjects.load([run])
    alma, ddn = (column.by_image for column in subject.columns)
    assert np.isinf(alma).any() and (alma == 0).any() and not np.isnan(alma).any()
    assert np.isnan(ddn[32:]).all() and not np.isnan(ddn[:32]).any()
    assert not subject.complete
    assert checks(subject.summaries, subject.worst_cases)[0].level == "warn"


def test_refuted_claims_are_counted_and_not_believed(tmp_path: Path) -> None:
    (subject,) = subjects.load([make_run(tmp_path / "a", 30, (MadeAttack(refuted=2), MadeAttack("ddn", "DDN")))])
    assert counts_of(subject.summaries[0]["attacks"])["refuted"] == 2
    assert np.isinf(subject.columns[0].by_image).sum() == 2
    verdict = next(check for check in checks(subject.summaries, subject.worst_cases) if check.what == "Verdict")
    assert verdict.level == "bad" and verdict.sentence.startswith("2 of ")
    assert "refuted by the verdict" in render([subject])


def test_the_same_folder_twice_counts_once(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", 5)
    (subject,) = subjects.load([run, tmp_path / "a" / ".." / "a"])
    assert len(subject.runs) == 1


def _truncated(run: Path) -> None:
    file = run / database_name()
    file.write_bytes(file.read_bytes()[:5000])


def _zeros_in_the_middle(run: Path) -> None:
    file = run / database_name()
    content = bytearray(file.read_bytes())
    content[4096 : len(content) - 4096] = bytes(len(content) - 8192)
    file.write_bytes(bytes(content))


def _bad_json(run: Path) -> None:
    with sqlite3.connect(run / database_name()) as db:
        db.execute("UPDATE images SET top = '[[1, '")


def _other_image_file(run: Path) -> None:
    file = next((run / "adversarials").rglob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-1] + b"x")


DAMAGE = (_truncated, _zeros_in_the_middle, _bad_json, _other_image_file)


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_a_damaged_folder_is_one_sentence(damage, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "a", 40)
    damage(run)
    assert main(["report", str(run), "--out", str(tmp_path / "out"), "--no-figures"]) == 1
    said = capsys.readouterr().err.strip()
    assert said.startswith("almakit: ") and "\n" not in said and said.endswith(".") and "unexpected" not in said, said
    assert not (tmp_path / "out" / "index.html").exists()


def test_a_run_that_has_only_begun(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", 10, unfinished=4)
    (subject,) = subjects.load([run])
    page = render([subject])
    assert "No image has been attacked yet" in page and "0 of 40 results are there" in page
    with Store(run / database_name()) as store, store.transaction():
        store.db.execute("DELETE FROM images")
        store.db.execute("DELETE FROM chunks")
    (subject,) = subjects.load([run])
    assert subject.summaries[0]["clean_accuracy"]["value"] is None
    assert "0 of 40 results" in render([subject])
