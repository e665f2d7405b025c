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
    others = ({"targets": "next"}, {"bits": 8}, {"targets": "all"})
    runs = [small_run(root / "a", attacks=[*ATTACKS, fixed])]
    runs += [small_run(root / str(n), attacks=ATTACKS[:1], **more) for n, more in enumerate(others)]
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


def test_wrong_numbers_are_noticed(report):
    place, folders = report
    kept = {name: (place / name).read_text() for name in ("summary.json", "tables.csv", "index.html")}
    kept |= {name: (place / name).read_text() for name in ("site/board.json", "site/index.html")}
    summary = json.loads(kept["summary.json"])
    median = str(summary["runs"][0]["attacks"][0]["median_all"]["value"])
    other = median[:4] + ("5" if median[4] != "5" else "6") + median[5:]
    summary["worst_case"][0]["robust_accuracy"][0]["value"] += 0.025
    wrong = {name: text.replace(median, other) for name, text in kept.items()} | {"summary.json": json.dumps(summary)}
    shown = re.search(r'<td data-v="([^"]+)">', kept["site/index.html"])[1]
    page = kept["site/index.html"].replace(f'<td data-v="{shown}">', '<td data-v="0.987">', 1)
    wrong["site/index.html"] = page.replace('"curve":"', '"curve":"AAAAAAAAAAAAAAAA', 1)
    for name, text in wrong.items():
        assert text != kept[name], name
        (place / name).write_text(text)
    found = differences(place, folders)
    for words in ("summary.json: all attacks", "tables.csv", "page", "ALMA 12 median", "as first shown", " curve"):
        assert any(words in line for line in found), (words, found)
