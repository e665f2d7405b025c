"""Attacks at a fixed epsilon are one marker there, have neither median nor optimality, and what they
do not break is robust."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

import numpy as np
import pytest
from runs.small_runs import small_run

from almakit.cli.run import exit_code
from almakit.radius import readable
from almakit.report import subjects, tables
from almakit.report.page import build, render
from almakit.report.results import Results, Together
from almakit.report.trust import checks, counts_of
from almakit.runs.export import flat_rows
from almakit.runs.store.records import AttackInfo, Record, reach_of

FIXED = "apgd(distance=l2, steps=10, epsilon=0.2)"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("fixed") / "run", attacks=[FIXED, "alma(distance=l2, steps=12)"])


def test_the_summary_speaks_of_its_epsilon_alone(run):
    near, anywhere = run.summary["attacks"]
    assert near["epsilon"] == 0.2 and anywhere["epsilon"] is None
    (row,) = near["robust_accuracy"]
    assert row["epsilon"] == 0.2
    assert row["value"] == pytest.approx(1 - near["success_rate"]["value"])
    assert row["low"] < row["value"] < row["high"]
    assert len(anywhere["robust_accuracy"]) > 5
    assert near["median_all"]["value"] is None and near["quantiles_all"] == [] and "optimality" not in near
    assert near["status"]["robust"] > 0 and "failed" not in near["status"] and "failed" in anywhere["status"]
    assert exit_code(run.summary) == 0, "nothing failed"


def test_tables_have_no_median_and_nothing_failed(run):
    table = run.table()
    assert "Nothing was found" not in table
    found = subjects.load([run.folder])
    blocks = tables.tables_of(found)
    label = "APGD 10, ε = 0.2"
    (line,) = (row for row in csv.DictReader(io.StringIO(tables.written(blocks, "csv"))) if row["attack"] == label)
    assert line["median"] == line["optimality"] == "" != line["success_rate"]
    assert counts_of(run.summary["attacks"])["failed"] == 0
    assert not any(check.what == "Failures" for check in checks([run.summary], run.summary["worst_case"]))
    assert {row["status"] for row in flat_rows(run) if row["attack"].startswith("apgd")} == {
        "already-wrong",
        "success",
        "robust",
    }
    assert {row["epsilon"] for row in flat_rows(run)} == {0.2, None}


def test_one_marker_and_no_curve(run):
    (subject,) = subjects.load([run.folder])
    data = build([subject], 1)
    assert data["attacks"][0]["fixed"]["epsilon"] == 0.2 and data["attacks"][1]["fixed"] is None
    alone = replace(subject, columns=subject.columns[:1])
    assert build([alone], 1)["envelopes"] == []
    assert "one mark there" in render([subject])


def results(distances, epsilon=None):
    settings = {} if epsilon is None else {"epsilon": epsilon}
    info = AttackInfo(0, "x", "X", "l2", epsilon is None, False, "", "", settings)
    ends = {0.0: "already-wrong", math.inf: "failed"}
    records = [
        Record(
            0, place, None, ends.get(d, "success"), None, d, 1, 0, 1, (), math.isfinite(d), d if d < math.inf else None
        )
        for place, d in enumerate(distances)
    ]
    return Results(info, records, None)


def test_the_arithmetic():
    found = np.array([0.0, 0.1, 0.2 * (1 + 1e-7), math.inf])
    fixed, minimal = results(found, 0.2), results([0.0, 0.3, 0.4, 0.05])
    alone, both = Together([fixed]), Together([fixed, minimal])
    assert alone.resisting(0.2).tolist() == [0, 0, 0, 1] == Together([results(found)]).resisting(5.0).tolist()
    assert np.isnan(alone.resisting(0.1)).all() and np.isnan(alone.resisting(0.21)).all()
    assert both.resisting(0.1).tolist() == [0, 1, 1, 0], "below its epsilon the fixed attack does not count"
    assert both.resisting(0.2).tolist() == both.resisting(0.35).tolist() == [0, 0, 0, 0]
    info = AttackInfo(0, "x", "X", "l2", False, False, "", "", {"epsilon": 0.2})
    assert reach_of(info, found) == 0.2 and reach_of(replace(info, minimal=True), found) == math.inf
    nested = {"attacks": [{"attack": "apgd", "epsilon": 0.1}, {"attack": "pgd", "epsilon": 0.3}]}
    assert reach_of(replace(info, settings=nested), found) == 0.3
    assert reach_of(replace(info, settings={}), found) == found[2]
    assert (
        readable(8 / 255, "linf") == "8/255"
        and readable(0.3, "linf") == "0.3"
        and readable(8 / 255, "l2") == "0.0313725"
    )
