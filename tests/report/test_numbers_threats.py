"""The threat model is part of every label, and targeted results never share a block or a curve with
untargeted ones."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest
from runs.small_runs import small_run

from almakit.report import subjects, tables
from almakit.report.page import build, render
from almakit.report.run import write_report
from almakit.runs.spec import RunSpec
from almakit.runs.threat import Threat, appended, goal_name, named, resisted, sentence, threat_of

DDN = {"attacks": ["ddn(steps=30)"]}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("threats")
    settings = {
        "plain": {},
        "targeted": {"targets": "random"},
        "next": {"targets": "next"},
        "eight": {"bits": 8},
        "seed": {"seed": 3},
        "again": {},
    }
    return {name: small_run(root / name, **DDN, **more).folder for name, more in settings.items()}


def test_targeted_never_shares_a_block_with_untargeted(folders):
    found = subjects.load([folders["plain"], folders["targeted"]])
    assert len(found) == 1, "the same weights and images: one subject"
    one, two = tables.tables_of(found)[found[0].name]
    assert [row["attack"] for row in (*one.rows, *two.rows)] == ["DDN 30", "DDN 30, targeted"]
    assert one.rows[0]["goal"] == "untargeted" and two.title == "ℓ2 norm, targeted (random)"
    data = build(found, 1)
    assert [group["key"] for group in data["groups"]] == ["l2", "l2/random"] and data["envelopes"] == []
    assert [attack["group"] for attack in data["attacks"]] == ["l2", "l2/random"]
    assert data["attacks"][0]["method"] != data["attacks"][1]["method"], "another colour"


def test_every_format_says_it(folders, tmp_path):
    both = [folders["plain"], folders["targeted"]]
    write_report(both, tmp_path, with_figures=False)
    for file in ("index.html", "tables.md", "tables.csv", "tables.tex", "summary.json"):
        text = (tmp_path / file).read_text()
        assert "DDN 30, targeted" in text and "targeted (random)" in text, file
    rows = list(csv.DictReader(io.StringIO((tmp_path / "tables.csv").read_text())))
    assert [row["goal"] for row in rows] == ["untargeted", "targeted (random)"]
    runs = json.loads((tmp_path / "summary.json").read_text())["runs"]
    assert [run["attacks"][0]["label"] for run in runs] == ["DDN 30", "DDN 30, targeted"]
    assert runs[1]["run"]["threat_model"] == "targeted (random), any value in [0, 1], float32, seed 0"


def test_whatever_differs_is_appended(folders):
    def labels(*names):
        (subject,) = subjects.load([folders[name] for name in names])
        return [column.label.label for column in subject.columns]

    assert labels("plain", "eight") == ["DDN 30", "DDN 30, 8-bit"]
    assert labels("plain", "seed") == ["DDN 30, seed 0", "DDN 30, seed 3"]
    assert labels("targeted", "next") == ["DDN 30, targeted (random)", "DDN 30, targeted (next)"]
    assert labels("plain", "again") == ["DDN 30, plain", "DDN 30, again"], "where nothing else tells them apart"
    assert labels("eight") == ["DDN 30, 8-bit"], "also alone"


def test_the_table_of_a_run_and_its_summary(folders):
    from almakit import Run

    run = Run(folders["targeted"])
    assert "\nDDN 30, targeted " in run.table() and "Threat model: targeted (random)" in run.table()
    assert run.summary["attacks"][0]["label"] == "DDN 30, targeted"
    assert "\nDDN 30, 8-bit " in Run(folders["eight"]).table()


def test_the_page_calls_it_targets_not_reached(folders):
    page = render(subjects.load([folders["targeted"]]))
    assert "Targets not reached" in page and 'data-group="l2/random"' in page
    assert resisted(goal_name("")) == resisted(goal_name("[untargeted]")) == "robust accuracy"
    assert resisted(goal_name("[pixels(share=0.99)]")) == resisted(goal_name("[top-k(k=5)]all")) == "goal not reached"


def test_the_words():
    usual = threat_of(RunSpec())
    assert usual == Threat() and appended([usual]) == [""]
    assert sentence(usual) == "untargeted, any value in [0, 1], float32, seed 0"
    assert appended([usual, replace(usual, dtype="float64")]) == [", float32", ", float64"]
    assert appended([replace(usual, dtype="bfloat16", budget=7)]) == [", budget 7, bfloat16"]
    assert named("ddn(steps=5)", RunSpec(targets="all", seed=2)) == "ddn(steps=5), targeted, seed 2"
