"""Robust accuracy at the radii asked for, in every format, with intervals and the worst case."""

from __future__ import annotations

import csv
import io
import json
import math

import numpy as np
import pytest
from runs.small_runs import ATTACKS, Net, images, small_run, source_file

from almakit import Run
from almakit.cli.main import main
from almakit.report import subjects, tables
from almakit.report.page import render
from almakit.report.run import write_report
from almakit.runs.radii import for_distances, number, texts_of
from almakit.runs.spec import RunSpec
from almakit.trackers import numbers

RADII = {"l2": ["1/8", 0.25], "l1": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    attacks = [*ATTACKS, "pgd(distance=l2, epsilon=0.25, steps=5)"]
    return small_run(tmp_path_factory.mktemp("robust") / "run", attacks=attacks, epsilons=RADII)


def verified(run, attack):
    return np.array([record.verified for record in run.records_of(attack)])


def worst(run, epsilon):
    broken = verified(run, 0) <= epsilon
    return float((~(broken | np.isfinite(verified(run, 2))) if epsilon >= 0.25 else ~broken).mean())


def test_the_summary_has_the_radii_and_the_worst_case(run):
    summary = json.loads((run.folder / "summary.json").read_text())
    assert summary["radii"] == {"l2": [0.125, 0.25], "l1": [1.0]}
    two, one = summary["worst_case"]
    assert [row["epsilon"] for row in two["robust_accuracy"]] == [0.125, 0.25]
    assert two["attacks"] == 2
    assert one["attacks"] == 1
    for row in two["robust_accuracy"]:
        assert row["value"] == pytest.approx(worst(run, row["epsilon"])) and row["low"] <= row["value"] <= row["high"]
    at = {row["epsilon"]: row["value"] for row in summary["attacks"][0]["robust_accuracy"]}
    assert at[0.125] == pytest.approx(float((verified(run, 0) > 0.125).mean()))


def test_every_format_has_the_worst_case(run, tmp_path):
    write_report([run.folder], tmp_path, with_figures=False)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "tables.csv").read_text())))
    (fixed,) = (row for row in rows if row["attack"].startswith("PGD"))
    assert fixed["robust_accuracy_1"] == "" != fixed["robust_accuracy_2"], "at its own radius alone"
    for file in ("tables.md", "tables.tex", "index.html"):
        text = (tmp_path / file).read_text()
        assert "all attacks" in text and f"{100 * worst(run, 0.25):.1f}" in text, file
    assert "Robust accuracy against all attacks" in text and "ℓ2 ≤ 0.125" in text and "robust % at 0.25" in text
    assert "all attacks" in run.table() and "at 0.125" in run.table()


def test_from_python(run):
    assert run.robust_accuracy({"l2": 0.125}) == run.robust_accuracy({"l2": "1/8"}) == pytest.approx(worst(run, 0.125))
    both = (verified(run, 0) > 0.125) & (verified(run, 1) > 1)
    assert run.robust_accuracy({"l2": 0.125, "l1": 1}) == pytest.approx(float(both.mean()))
    only = small_run(None, attacks=["pgd(distance=l2, epsilon=0.25, steps=5)"])
    assert math.isnan(only.robust_accuracy(0.1)), "an attack at a fixed radius speaks of that one alone"
    assert (
        only.robust_accuracy("1/4")
        == only.robust_accuracy({"l2": 0.25})
        == pytest.approx(float(np.isinf(verified(only, 0)).mean()))
    )


def test_a_report_may_ask_for_others(run, tmp_path, capsys):
    assert main(["report", str(run.folder), "--out", str(tmp_path), "--no-figures", "--epsilon", "l2=1/4"]) == 0
    text = (tmp_path / "tables.md").read_text()
    assert "robust % at 0.25" in text and "robust at 0.125" not in text
    assert (
        main(["report", str(run.folder), "--out", str(tmp_path / "b"), "--no-figures", "--epsilon", "linf=8/255"]) == 1
    )
    assert "no attack here is in it; they have l1, l2" in capsys.readouterr().err


def test_without_a_wish_usual_radii_are_chosen(tmp_path):
    run = small_run(tmp_path / "run")
    assert run.summary["radii"]["l2"] and run.summary["radii"] == small_run(tmp_path / "again").summary["radii"]
    (subject,) = subjects.load([run.folder])
    assert subject.radii == run.summary["radii"]
    for table in tables.tables_of([subject])[subject.name]:
        names = {name for row in table.rows for name in row if name.startswith("robust_accuracy")}
        assert len(names) == len(subject.radii[table.rows[0]["distance"]])


@pytest.mark.parametrize("text", ["8/0", "-1", "l2=-0.5", "l2=", "l2=inf", "l2=1,,2"])
def test_bad_radii_are_refused_before_anything_runs(text, tmp_path, capsys):
    source = source_file(tmp_path)
    flags = ["run", "--model", f"{source}:model", "--data", f"{source}:data", "--attack", "ddn(steps=3)"]
    flags += ["--out", str(tmp_path / "out")]
    assert main([*flags, f"--epsilon={text}"]) == 2
    assert "epsilon" in capsys.readouterr().err and not (tmp_path / "out").exists()
    assert main([*flags, "--epsilon", "linf=8/255"]) == 2 and "they have l2" in capsys.readouterr().err


def test_radii_are_kept_with_the_run_and_may_change(tmp_path):
    small_run(tmp_path / "run", attacks=["ddn(steps=3)"], epsilons={"l2": "1/8"})
    before = Run(tmp_path / "run").meta["spec_sha256"]
    assert Run(tmp_path / "run").summary["radii"] == {"l2": [0.125]}
    small_run(tmp_path / "run", attacks=["ddn(steps=3)"])
    assert Run(tmp_path / "run").summary["radii"] == {"l2": [0.125]}, "the same command without radii keeps them"
    small_run(tmp_path / "run", attacks=["ddn(steps=3)"], epsilons=0.5)
    assert Run(tmp_path / "run").summary["radii"] == {"l2": [0.5]}
    assert Run(tmp_path / "run").meta["spec_sha256"] == before


def test_the_words():
    assert number("8/255") == 8 / 255 and number(" 0.5 ") == 0.5 and number(2) == 2.0 and number("1e-3") == 1e-3
    assert texts_of({"linf": ["8/255", 0.1], "l2": 1}) == ("linf=8/255,0.1", "l2=1") and texts_of(0.5) == ("0.5",)
    assert for_distances(["linf=8/255,4/255", "0.5"], ["linf", "l2"]) == {"linf": [4 / 255, 8 / 255, 0.5], "l2": [0.5]}
    assert RunSpec(epsilon="l2=1/2").sha256 == RunSpec().sha256
    assert 'epsilon = ["l2=1/2"]' in RunSpec(epsilon="l2=1/2").to_toml()


def test_trackers_get_it_under_the_names_of_the_threat_model(tmp_path):
    found = {}
    attacks = ["ddn(steps=5)", "alma(distance=l2, steps=5)"]
    options = {"epsilons": {"l2": 0.125}, "bits": 8, "track": lambda event: found.update(numbers(event)[0])}
    run = small_run(tmp_path, attacks=attacks, **options)
    assert found["all attacks, 8-bit/summary/robust accuracy at l2 0.125"] == run.robust_accuracy({"l2": 0.125})
    assert "ddn(steps=5), 8-bit/summary/robust accuracy at l2 0.125" in found


def test_targeted_rows_are_targets_not_reached(tmp_path):
    run = small_run(
        tmp_path / "run", attacks=["ddn(steps=5)"], targets="all", epsilons={"l2": 0.25}, model=Net(), data=images(16)
    )
    assert "targeted (all)" in run.table() and "targets not reached" in " ".join(run.table().split())
    share = np.mean([record.verified > 0.25 for record in run.records])
    assert run.summary["worst_case"][0]["robust_accuracy"][0]["value"] == pytest.approx(share), (
        "over records, as the attack's own row"
    )
    found = subjects.load([run.folder])
    assert "ℓ2, targeted (all) ≤ 0.25" in render(found)
    assert "targeted (all)" in tables.written(tables.tables_of(found), "csv")
