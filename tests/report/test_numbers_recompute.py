"""Issue 19: every number of a report is what the exported records say, recomputed by code that shares nothing with almakit; and that notices a wrong one."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from eval.small_runs import ATTACKS, small_run

from almakit.eval.export import export_csv
from almakit.report.write import write_report

FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "recompute.py"


@pytest.fixture(scope="module")
def recompute():
    spec = importlib.util.spec_from_file_location("recompute", FILE)
    module = sys.modules["recompute"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    root = tmp_path_factory.mktemp("recompute")
    fixed = "pgd(distance=l2, epsilon=0.25, steps=5)"
    runs = [small_run(root / "a", attacks=[*ATTACKS, fixed]), small_run(root / "b", attacks=ATTACKS[:1], targets="next"),
            small_run(root / "c", attacks=ATTACKS[:1], bits=8)]
    for run in runs:
        export_csv(run, run.folder / "records.csv")
    write_report([run.folder for run in runs], root / "report", with_figures=False)
    return root / "report", [run.folder for run in runs]


def differences(recompute, place, folders):
    check = recompute.Check()
    recompute.check_report(check, place, [recompute.read(folder) for folder in folders])
    assert sum(check.compared.values()) > 400 and set(check.compared) == {"summary.json", "tables.csv", "tables.md", "tables.tex", "page"}
    return check.differences


def test_every_number_is_what_the_records_say(recompute, report):
    assert differences(recompute, *report) == []


def test_a_wrong_number_is_noticed(recompute, report):
    place, folders = report
    kept = {name: (place / name).read_text() for name in ("summary.json", "tables.csv", "index.html")}
    summary = json.loads(kept["summary.json"])
    summary["worst_case"][0]["robust_accuracy"][0]["value"] += 0.025
    (place / "summary.json").write_text(json.dumps(summary))
    assert differences(recompute, place, folders)
    (place / "summary.json").write_text(kept["summary.json"])
    rate = str(summary["runs"][0]["attacks"][0]["median_all"]["value"])
    for name in ("tables.csv", "index.html"):
        assert rate in kept[name]
        (place / name).write_text(kept[name].replace(rate, rate[:4] + "5" + rate[5:] if rate[4] != "5" else rate[:4] + "6" + rate[5:]))
        assert differences(recompute, place, folders), name
        (place / name).write_text(kept[name])
