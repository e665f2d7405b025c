"""A run with certified radii: written chunk by chunk, shown beside what was found, and an alarm where a success lies
below one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from almakit import Run
from almakit.cli.arguments import ERROR, USAGE
from almakit.cli.main import main
from almakit.errors import BadInput
from almakit.runs.certify import certify_run
from almakit.runs.model import open_model
from almakit.runs.store.derived import Certificate, Contradiction, check_radii

RUN = ["run", "--model", "mnist/smallcnn-tiny-ibp", "--data", "mnist", "--limit", "6", "--batch-size", "3", "--quiet"]
LINF = ["--attack", "fmn(distance=linf, steps=30)"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "a"
    assert main([*RUN, *LINF, "--certify", "ibp", "--out", str(out)]) == 0
    return out


def test_a_certified_run_holds_a_radius_below_every_distance_and_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(folder)
    radii = run.certified["linf"]
    assert sorted(radii) == list(range(6))
    assert all(0 < radii[record.image] <= record.verified for record in run.records if record.attacked)
    part = json.loads((folder / "summary.json").read_text())["attacks"][0]["certified"]
    assert part["images"] == 6 and 0.5 < part["share"] <= 1 and part["not_certified"] == 0
    robust = {row["epsilon"]: row["value"] for row in run.summary["attacks"][0]["robust_accuracy"]}
    for row in part["accuracy"]:
        assert row["value"] <= robust[row["epsilon"]], "certified accuracy above robust accuracy"
    assert main(["certify", str(folder), "--method", "ibp", "--quiet"]) == 0
    said = capsys.readouterr().out
    assert "certified" in said and "radius" in said and "/ found" in said


def test_the_page_shows_the_bracket(folder: Path, tmp_path: Path) -> None:
    assert main(["report", str(folder), "--out", str(tmp_path), "--no-figures"]) == 0
    page = next(tmp_path.rglob("*.html")).read_text()
    assert 'id="brackets"' in page and "certified" in page


def test_what_was_certified_is_not_certified_again(folder: Path) -> None:
    place = folder / "certificates" / "linf-ibp.json"
    content = json.loads(place.read_text())
    kept = dict(content["radii"])
    content["radii"] = {"0": 0.001, **{image: kept[image] for image in ("1", "2")}}
    place.write_text(json.dumps(content))
    assert main(["certify", str(folder), "--method", "ibp", "--quiet"]) == 0
    again = json.loads(place.read_text())["radii"]
    assert again["0"] == 0.001, "a stored radius was computed again"
    assert all(again[image] == pytest.approx(kept[image], rel=2e-3) for image in kept if image != "0")
    place.write_text(json.dumps({**content, "radii": kept}))


def test_a_success_below_a_certified_radius_is_an_alarm_with_both_witnesses(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(folder)
    nearest = min(record.verified for record in run.records if record.attacked)
    bad = Certificate("linf", "crown", run.model_sha256, {info.index: nearest * 1.01 for info in run.images})
    with pytest.raises(
        Contradiction, match=r"is certified within linf .*linf-crown.json.*holds a verified success at linf"
    ):
        check_radii(folder, [bad], run.records, run.image)
    bad.write(folder)
    try:
        assert main(["certify", str(folder), "--method", "ibp", "--quiet"]) == ERROR
        assert "one of the two is wrong" in capsys.readouterr().err
    finally:
        bad.file(folder).unlink()


def test_certificates_of_another_model_and_torn_files_are_refused(folder: Path) -> None:
    place = Certificate("l2", "ibp", "another").file(folder)
    for content, sentence in (
        ('{"radii": 3}', "is not a file of certificates"),
        (json.dumps({"norm": "l2", "method": "ibp", "weights_sha256": "another", "radii": {}}), "about another model"),
    ):
        place.write_text(content)
        with pytest.raises(Exception, match=sentence):
            _ = Run(folder).certificates
        place.unlink()


def test_what_cannot_be_certified_is_refused_before_anything_is_attacked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "b"
    assert main([*RUN, *LINF, "--certify", "ibp", "--targets", "next", "--out", str(out)]) == USAGE
    assert "leave targets out" in capsys.readouterr().err
    assert main([*RUN, *LINF, "--certify", "ibp", "--shard", "0/2", "--out", str(out)]) == USAGE
    assert "shards are certified together" in capsys.readouterr().err
    assert not out.exists()
    assert main(["certify", str(tmp_path)]) == ERROR
    assert "no run folder" in capsys.readouterr().err


def test_a_goal_that_is_no_difference_of_logits_is_refused(folder: Path) -> None:
    run = Run(folder)
    run.spec = replace(run.spec, goal="pixels(share=0.99)")
    with pytest.raises(
        BadInput, match=r"the goal of this run is pixels\(share=0.99\), which is no difference of two logits"
    ):
        certify_run(run, open_model("mnist/smallcnn-tiny-ibp", run.spec), "ibp")


def test_a_run_in_a_distance_without_bounds_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--attack", "sigma-zero(steps=5)", "--certify", "ibp", "--out", str(tmp_path / "c")]) == ERROR
    assert "certified radii are in linf, l2, l1: give --distance" in capsys.readouterr().err
