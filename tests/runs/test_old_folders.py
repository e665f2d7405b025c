"""Run folders that version 0.1 wrote: later versions open, report, verify and resume them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import almakit
from almakit.cli.main import main

KEPT = Path(__file__).resolve().parents[1] / "fixtures" / "runs-0.1"
WHOLE = ("untargeted", "targeted-8bit")


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(KEPT / request.param, tmp_path / "run"))


@pytest.mark.parametrize("folder", WHOLE, indirect=True)
def test_an_old_run_opens_with_the_numbers_it_was_written_with(folder: Path) -> None:
    then = json.loads((folder / "summary.json").read_text())
    now = almakit.open(folder).summary
    assert len(then["attacks"]) == len(now["attacks"]) == 2
    for before, after in zip(then["attacks"], now["attacks"], strict=True):
        # 0.1 gave attacks at a fixed radius a median too; since 0.2 only those have one that look for the smallest
        # change.
        minimal = before["minimal"]
        for name in ("success_rate", *(["median_all"] if minimal else []), "forwards", "backwards"):
            changed = {key for key, value in before[name].items() if value != after[name].get(key)}
            # 0.1 resampled the images for the interval of a share; since 0.2 it is Wilson's.
            assert changed <= ({"low", "high"} if name == "success_rate" else set()), name
            assert name != "success_rate" or after[name]["low"] <= after[name]["value"] <= after[name]["high"]
        # What nothing was found for at a fixed radius was "failed" in 0.1 and is "robust" now.
        assert all(after["status"].get(name) == count for name, count in before["status"].items() if minimal)


@pytest.mark.parametrize("folder", WHOLE, indirect=True)
def test_an_old_run_is_verified_and_reported(folder: Path, tmp_path: Path) -> None:
    assert main(["verify", str(folder)]) == 0
    assert main(["report", str(folder), "--out", str(tmp_path / "report")]) == 0
    page = (tmp_path / "report" / "index.html").read_text()
    assert "mnist/smallcnn-tiny" in page and "mnist-demo" in page


@pytest.mark.parametrize("folder", ["untargeted"], indirect=True)
def test_a_finished_old_run_has_nothing_left_to_do(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*.safetensors")}
    assert main(["run", "--config", str(folder / "run.toml"), "--quiet"]) == 0
    assert {path: path.read_bytes() for path in folder.rglob("*.safetensors")} == before and before


@pytest.mark.parametrize("folder", ["stopped"], indirect=True)
def test_a_stopped_old_run_goes_on_to_what_the_whole_one_found(folder: Path) -> None:
    stored = {path: path.read_bytes() for path in folder.rglob("*.safetensors")}
    assert len(stored) == 3, "two chunks of clean images and one of DDN"
    assert main(["run", "--config", str(folder / "run.toml"), "--quiet"]) == 0
    assert all(path.read_bytes() == content for path, content in stored.items()), "what was stored stays"
    resumed, whole = almakit.open(folder), almakit.open(KEPT / "untargeted")
    assert [(record.status, record.forwards, record.fooled) for record in resumed.records] == [
        (record.status, record.forwards, record.fooled) for record in whole.records
    ]
    assert [record.distance for record in resumed.records] == pytest.approx(
        [record.distance for record in whole.records], rel=1e-5
    )
