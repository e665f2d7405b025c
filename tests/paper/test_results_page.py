"""docs/figures/results.md: written from kept runs, which can be checked against their folders, and equal to what the
kept files give."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from paper.test_paper_tables import ALL, BASE, FMN

from almakit.cli.main import main
from almakit.paper.entries import from_json, to_json
from benchmarks import RESULTS
from benchmarks.paper import tables

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (tmp_path / "kept").mkdir()
    monkeypatch.setattr(tables, "KEPT", tmp_path / "kept")
    return tables


def test_the_page_in_the_docs_is_what_the_kept_runs_give() -> None:
    kept = list(RESULTS.glob("reproduce-*.json"))
    page = ROOT / "docs" / "figures" / "results.md"
    assert bool(kept) == page.is_file()
    if kept:
        assert page.read_text(encoding="utf-8") == tables.page()


def test_the_claim_in_the_docs_is_what_the_kept_runs_give(writer: ModuleType) -> None:
    text = writer.claim.table(writer.claim.curves(writer.claim.stored().cells))
    assert text in (ROOT / "docs" / "results.md").read_text(encoding="utf-8") and "ALMA" in text


def test_lines_are_judged_as_they_are(writer: ModuleType) -> None:
    far = replace(BASE, median=1.9, low=1.8, high=2.0)
    near = replace(BASE, median=1.40, low=1.39, high=1.41)
    wide = replace(BASE, median=1.5, low=1.3, high=1.7)
    better = replace(BASE, median=1.0, low=0.9, high=1.1)
    text = writer.judged([far, near, wide, better, FMN, replace(BASE, paper=None)]).splitlines()[2:]
    assert [line.rsplit("|", 2)[1].strip() for line in text] == [
        "**larger**",
        "within 3 %",
        "within the interval",
        "smaller",
        "no median: less than half found",
    ]


def test_a_line_on_easy_images_is_judged_by_what_is_left(writer: ModuleType) -> None:
    kept = {"SmallCNN|l2|ALMA 100": {"medians": [1.0, 1.0, 3.0, 2.0], "first": {"20": 1.0}}}
    (writer.KEPT / "reproduce-parts.json").write_text(json.dumps(kept))
    half = replace(BASE, median=0.7, low=0.6, high=0.8)
    assert writer.judged([half]).splitlines()[2].split("|")[-4:-1] == [
        " 0.507 ",
        " 1.014 ",
        " within 3 % but for the images' ease ",
    ]
    assert writer.ease(replace(half, images=7)) is None and writer.ease(replace(half, images=10_000)) == 1
    assert "| SmallCNN | ℓ2 | ALMA 100 | 1.000 | 1.000 | 3.000 | 2.000 | 1.38 | 1.449 |" in writer.easier([half])


def test_runs_are_kept_replaced_and_checked(writer: ModuleType, tmp_path: Path) -> None:
    flags = ["reproduce", "mnist", "--attacks", "alma", "--distances", "l2", "--budget", "small"]
    flags += ["--model", "mnist/smallcnn-tiny", "--no-figures", "--quiet"]
    assert main([*flags, "--limit", "3", "--out", str(tmp_path / "run")]) == 0
    place = writer.keep(tmp_path / "run")
    assert main([*flags, "--limit", "2", "--out", str(tmp_path / "run")]) == 0
    assert [entry.images for entry in from_json(writer.keep(tmp_path / "run"))[0]] == [3], (
        "fewer images do not replace more"
    )
    assert writer.check(tmp_path / "run") == (1, [])
    text = writer.page()
    assert "## MNIST" in text and "First 3 images" in text and "mnist/smallcnn-tiny" in text
    command = (
        "almakit reproduce mnist --limit 3 --costly-limit 3 --budget small --attacks alma --model mnist/smallcnn-tiny"
    )
    assert command in text
    entries, rest = from_json(place)
    place.write_text(to_json([replace(entries[0], median=9.0)], rest["machine"], rest["skipped"]))
    assert len(writer.check(tmp_path / "run")[1]) == 1, "a number nobody measured is found"
    for wrong in ({"success": 0.5}, {"images": 4}, {"weights_sha256": "0"}, {"complete": False}):
        place.write_text(to_json([replace(entries[0], **wrong)], rest["machine"], rest["skipped"]))
        (sentence,) = writer.check(tmp_path / "run")[1]
        assert f"gives {next(iter(wrong))} " in sentence
    for wrong, sentence in (({"low": 0.1}, "gives an interval"), ({"folder_sha256": "0"}, "other files")):
        place.write_text(to_json([replace(entries[0], **wrong)], rest["machine"], rest["skipped"]))
        assert sentence in writer.check(tmp_path / "run")[1][0]
    found, (sentence,) = writer.check(tmp_path)
    assert found == 0 and "nothing was compared" in sentence


def test_the_papers_tables_are_in_the_page(writer: ModuleType) -> None:
    (writer.KEPT / "reproduce-mnist.json").write_text(
        to_json(ALL, {"processor": "a processor", "torch": "2"}, ["CROWN-IBP is not at hand."])
    )
    text = writer.page()
    for part in (
        "### ℓ2, geometric mean",
        "### Line by line against the paper",
        "- CROWN-IBP is not at hand.",
        "seed 0",
    ):
        assert part in text
