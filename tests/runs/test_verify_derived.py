"""Verify computes certificates and transfers again, or says that they are not checked; reports refuse a certified
radius above a found distance."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import almakit
from almakit.cli.arguments import DONE, ERROR, FAILED_IMAGES
from almakit.cli.main import main
from almakit.report import board, subjects
from almakit.runs.store.derived import Certificate, Contradiction, Transfer

TINY, IBP = "mnist/smallcnn-tiny", "mnist/smallcnn-tiny-ibp"
DATA = ["--data", "mnist-demo", "--limit", "6", "--batch-size", "3", "--quiet"]
HOLDS = "Every number that can be computed again is the stored one"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with certificates, and transfers to a zoo model and to a function."""
    out = tmp_path_factory.mktemp("runs") / "a"
    run = ["run", "--model", IBP, *DATA, "--attack", "fmn(distance=linf, steps=30)", "--out", str(out)]
    assert main([*run, "--certify", "ibp"]) == DONE
    network = almakit.models.load(TINY).network
    almakit.transfer(out, [TINY, IBP, lambda x: network(x)])
    return out


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "a"))


def test_whole_certificates_and_transfers_hold(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*.json")}
    assert main(["verify", str(folder)]) == DONE
    said = capsys.readouterr().out
    assert HOLDS in said and said.count("is not checked") == 1
    assert "The transfer to python:" in said and "is not checked: it was given from Python." in said
    assert {path: path.read_bytes() for path in folder.rglob("*.json")} == before, "verify writes nothing"


@pytest.mark.parametrize("factor", [0.9, 0.99, 1.01])
def test_an_altered_radius_is_named(folder: Path, factor: float, capsys: pytest.CaptureFixture[str]) -> None:
    place = folder / "certificates" / "linf-ibp.json"
    content = json.loads(place.read_text())
    content["radii"]["2"] *= factor
    place.write_text(json.dumps(content))
    assert main(["verify", str(folder)]) == FAILED_IMAGES
    said = capsys.readouterr().out
    assert "a certified radius (linf, ibp) disagrees 1 time" in said and HOLDS not in said


def test_an_altered_answer_of_a_target_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place,) = (folder / "transfers").glob("mnist-smallcnn-tiny-ibp-*.json")
    content = json.loads(place.read_text())
    (rows,) = content["seen"].values()
    image = next(iter(rows))
    rows[image][1] = 1 - rows[image][1]
    rows["77"] = [0, 1]
    place.write_text(json.dumps(content))
    assert main(["verify", str(folder)]) == FAILED_IMAGES
    assert f"an answer of {IBP} disagrees 2 times" in capsys.readouterr().out


def test_what_cannot_be_computed_again_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = almakit.open(folder)
    Certificate("linf", "exact", run.model_sha256, {0: 0.0}).write(folder)
    code = folder.parent / "target.py"
    code.write_text("raise SystemExit('code of a folder was run')\n")
    (place,) = (folder / "transfers").glob("python-*.json")
    content = json.loads(place.read_text())
    place.unlink()
    transfer = Transfer(f"{code}:model", content["model_sha256"])
    transfer.write(folder)
    assert main(["verify", str(folder)]) == DONE
    said = capsys.readouterr().out
    assert "certificates/linf-exact.json is not checked" in said
    assert f"The transfer to {code}:model is not checked: it is Python code" in said
    assert main(["verify", str(folder), "--model", TINY]) == FAILED_IMAGES
    said = capsys.readouterr().out
    assert f"{TINY} is not the model of the run, {IBP}" in said
    assert "certificates/linf-ibp.json is not checked" in said


def test_reports_refuse_a_certified_radius_above_a_found_distance(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = almakit.open(folder)
    record = min((record for record in run.records if record.attacked), key=lambda record: record.verified)
    bad = Certificate("linf", "exact", run.model_sha256, {record.image: record.verified * 1.01})
    bad.write(folder)
    both = rf"certified within linf {record.verified * 1.01:.6g} .*a verified success at linf {record.verified:.6g}"
    for read in (lambda: subjects.load([folder]), lambda: board.read([folder]), lambda: almakit.open(folder).summary):
        with pytest.raises(almakit.AlmakitError, match=both):
            read()
    assert main(["report", str(folder), "--out", str(tmp_path / "page")]) == ERROR
    assert "one of the two is wrong" in capsys.readouterr().err and not (tmp_path / "page").exists()
    assert main(["verify", str(folder)]) == FAILED_IMAGES
    assert "above a found distance" in capsys.readouterr().out


def test_reports_refuse_a_radius_of_one_run_above_a_distance_of_another(folder: Path, tmp_path: Path) -> None:
    run = almakit.open(folder)
    attack = "fmn(distance=linf, steps=60)"
    assert main(["run", "--model", IBP, *DATA, "--attack", attack, "--out", str(tmp_path / "b")]) == DONE
    other = almakit.open(tmp_path / "b")
    nearest = {record.image: record.verified for record in run.records}
    record = next(r for r in other.records if r.attacked and r.verified < nearest[r.image] * (1 - 1e-4))
    between = (record.verified + nearest[record.image]) / 2
    Certificate("linf", "exact", run.model_sha256, {record.image: between}).write(folder)
    assert subjects.load([folder]) and subjects.load([tmp_path / "b"])
    with pytest.raises(Contradiction, match=rf"certified within linf {between:.6g} .*but in {tmp_path / 'b'} "):
        subjects.load([folder, tmp_path / "b"])


def test_an_image_that_is_wrong_already_has_no_certified_radius(folder: Path) -> None:
    run = almakit.open(folder)
    x, labels = almakit.data.load("mnist-demo", limit=6).tensors()
    labels[0] = (labels[0] + 1) % 10
    wrong = almakit.evaluate(IBP, (x, labels), "ddn(distance=l2, steps=5)", out=folder.parent / "w", preflight=False)
    assert wrong.model_sha256 == run.model_sha256
    Certificate("l2", "ibp", wrong.model_sha256, {0: 0.01}).write(wrong.folder)
    with pytest.raises(Contradiction, match="the clean image is a verified success at l2 0:"):
        _ = almakit.open(wrong.folder).summary
