"""Issue 19: every number of a report is what the exported records say, recomputed by code that shares nothing with
almakit; and that notices a wrong one."""

from __future__ import annotations

import json
import re

import pytest
from runs.small_runs import ATTACKS, small_run

from almakit import Run
from almakit.report.board import write_board
from almakit.report.run import write_report
from almakit.runs.export import export_table
from benchmarks import recompute


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    root = tmp_path_factory.mktemp("recompute")
    fixed = "pgd(distance=l2, epsilon=0.25, steps=5)"
    runs = [
        small_run(root / "a", attacks=[*ATTACKS, fixed]),
        small_run(root / "b", attacks=ATTACKS[:1], targets="next"),
        small_run(root / "c", attacks=ATTACKS[:1], bits=8),
        small_run(root / "d", attacks=ATTACKS[:1], targets="all"),
    ]
    for run in runs:
        export_table(run, run.folder / "records.csv")
    write_report([run.folder for run in runs], root / "report", with_figures=False)
    write_board([run.folder for run in runs], root / "report" / "site")
    return root / "report", [run.folder for run in runs]


def differences(place, folders):
    check = recompute.Check()
    recompute.check_report(check, place, [recompute.read(folder) for folder in folders])
    recompute.check_board(check, place / "site", {folder.name: recompute.read(folder) for folder in folders})
    for run in map(Run, folders):
        recompute.check_terminal(
            check, run.table(), recompute.read(run.folder), [part["label"] for part in run.summary["attacks"]]
        )
    assert sum(check.compared.values()) > 600
    assert set(check.compared) == {"summary.json", "tables.csv", "tables.md", "tables.tex", "page", "board", "table"}
    return check.differences


def test_every_number_is_what_the_records_say(report):
    assert differences(*report) == []


def test_a_wrong_number_is_noticed(report):
    place, folders = report
    kept = {
        name: (place / name).read_text()
        for name in ("summary.json", "tables.csv", "index.html", "site/board.json", "site/index.html")
    }
    summary = json.loads(kept["summary.json"])
    summary["worst_case"][0]["robust_accuracy"][0]["value"] += 0.025
    (place / "summary.json").write_text(json.dumps(summary))
    assert differences(place, folders)
    (place / "summary.json").write_text(kept["summary.json"])
    rate = str(summary["runs"][0]["attacks"][0]["median_all"]["value"])
    for name in ("tables.csv", "index.html", "site/board.json"):
        assert rate in kept[name]
        (place / name).write_text(
            kept[name].replace(rate, rate[:4] + "5" + rate[5:] if rate[4] != "5" else rate[:4] + "6" + rate[5:])
        )
        assert differences(place, folders), name
        (place / name).write_text(kept[name])
    shown = re.search(r'<td data-v="([^"]+)">', kept["site/index.html"])[1]
    for old, new in ((f'<td data-v="{shown}">', '<td data-v="0.987">'), ('"curve":"', '"curve":"AAAAAAAAAAAAAAAA')):
        (place / "site/index.html").write_text(kept["site/index.html"].replace(old, new, 1))
        assert differences(place, folders), old
