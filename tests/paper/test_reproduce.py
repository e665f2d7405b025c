"""`almakit reproduce`: runs, resumes, grows, joins its shards, leaves out what is not at hand with a sentence, and ends
in the paper's tables."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from almakit.cli.main import main
from almakit.data import load
from almakit.errors import Unavailable
from almakit.paper.entries import from_json
from almakit.paper.plan import Settings, plan
from almakit.paper.sample import images_of, numbers

FLAGS = [
    *["reproduce", "mnist", "--limit", "3", "--budget", "small", "--quiet"],
    *["--model", "mnist/smallcnn-tiny", "--model", "mnist/smallcnn"],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reproduced")
    assert main([*FLAGS, "--attacks", "alma,fmn", "--out", str(out)]) == 0
    return out


@pytest.mark.shared_data
def test_it_ends_in_the_papers_tables(folder: Path) -> None:
    entries, rest = from_json(folder / "report" / "reproduce.json")
    assert [(e.label, e.distance, e.attack) for e in entries] == [
        (label, distance, attack)
        for distance in ("l1", "l2")
        for attack in ("fmn", "alma")
        for label in ("mnist/smallcnn-tiny", "SmallCNN")
    ]
    assert all(e.images == 3 and e.complete and (e.paper is not None) == (e.label == "SmallCNN") for e in entries)
    assert rest["machine"]["torch"]
    text = (folder / "report" / "paper.md").read_text()
    assert "### ℓ2, geometric mean" in text and "### ℓ1, SmallCNN" in text
    page = (folder / "report" / "paper.html").read_text()
    assert page.count("data:image/png;base64,") == 1 and "<h2>Geometric means</h2>" in page and "https://" not in page
    for name in ("index.html", "curves.pdf", "paper.tex", "paper.csv"):
        assert (folder / "report" / name).stat().st_size > 500


@pytest.mark.shared_data
def test_the_same_command_does_nothing_and_another_adds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/*/adversarials/*/*")}
    assert before
    again = [flag for flag in FLAGS if flag != "--quiet"]
    assert main([*again, "--attacks", "alma,fmn,ddn", "--no-figures", "--out", str(folder)]) == 0
    said = capsys.readouterr().err
    assert said.count("Nothing is left to do") == len(before) and "[1/10]" in said
    assert {path: path.stat().st_mtime_ns for path in before} == before
    entries, _ = from_json(folder / "report" / "reproduce.json")
    assert len(entries) == 10 and len(list(folder.glob("runs/*/*"))) == 10


def test_a_network_trained_with_interval_bounds_gets_its_band_and_others_none(tmp_path: Path) -> None:
    flags = ["reproduce", "mnist", "--limit", "2", "--attacks", "alma", "--budget", "small", "--distances", "l2"]
    flags += ["--no-figures", "--quiet"]
    flags += ["--model", "mnist/smallcnn-tiny-ibp", "--model", "mnist/smallcnn-tiny", "--out", str(tmp_path)]
    assert main(flags) == 0
    (certified,) = tmp_path.glob("runs/*/*/certificates/*.json")
    assert (certified.parts[-4], certified.name) == ("smallcnn-tiny-ibp", "l2-ibp.json")
    page = (tmp_path / "report" / "index.html").read_text()
    bands = json.loads("[" + page.partition('"certified":[')[2].partition("]")[0] + "]")
    assert [(band["model"], band["group"]) for band in bands] == [(0, "l2")] and 'id="brackets"' in page


@pytest.mark.shared_data
def test_what_is_not_at_hand_is_left_out_with_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = plan(Settings("mnist", tmp_path, "small", limit=20))
    assert any("CROWN-IBP (mnist/crown-ibp-large) is missing and left out" in sentence for sentence in made.skipped)
    assert {task.network.model for task in made.tasks} == {"smallcnn", "smallcnn-ddn", "smallcnn-trades"}
    counts = {(task.cell.attack, task.spec.limit) for task in made.tasks}
    assert {("cw", 4), ("apgd-t-dlr+search", 4), ("alma", 20), ("ead", 20)} <= counts
    costly = [task.cell.costly for task in made.tasks]
    assert costly == sorted(costly) and made.tasks[0].cell.attack == "fmn", "cheap attacks come first"
    whole = plan(Settings("mnist", tmp_path, "both"))
    assert {task.spec.limit for task in whole.tasks} == {10_000} and len(whole.tasks) == 3 * 27
    with pytest.raises(
        Unavailable, match=r"none of the networks for cifar10 is available.*--model cifar10/wrn-28-10@<file>"
    ):
        plan(Settings("cifar10", tmp_path))
    assert main(["reproduce", "mnist", "--attacks", "none"]) == 2 and "no attack 'none'" in capsys.readouterr().err
    assert main(["reproduce", "mnist", "--report-only", "--limit", "2", "--out", str(tmp_path / "empty")]) == 1
    assert "has been run yet" in capsys.readouterr().err


@pytest.mark.shared_data
def test_imagenets_validation_images_are_those_of_the_list(tmp_path: Path) -> None:
    assert len(numbers()) == 1000 and min(numbers()) >= 1 and max(numbers()) <= 50_000
    listed = sorted(numbers())[:3]
    other = next(number for number in range(1, 50_000) if number not in numbers())
    for place, number in enumerate([*listed, other]):
        inside = tmp_path / "val" / ("n01440764" if place % 2 else "n01443537")
        inside.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((20, 30, 3), place, dtype=np.uint8)).save(inside / f"ILSVRC2012_val_{number:08d}.JPEG")
    uri, count, note = images_of("imagenet", f"imagenet:{tmp_path}", tmp_path / "out")
    assert count == 3 and note == "997 of the 1000 listed validation images are missing."
    found = load(uri, size=16)
    assert found.labels.tolist() == [1, 0, 1] and [Path(name).stem[-8:] for name in found.ids] == [
        f"{number:08d}" for number in listed
    ]
    # The photos beside the project are not the validation set, and it says so.
    uri, count, note = images_of("imagenet", None, tmp_path / "out")
    assert uri == "imagenet" and count == 64 and note is not None and "64 photos are used instead" in note


def test_the_report_is_written_from_what_is_there(folder: Path) -> None:
    (folder / "report" / "paper.md").unlink()
    assert main([*FLAGS, "--attacks", "alma", "--report-only", "--no-figures", "--out", str(folder)]) == 0
    stored = json.loads((folder / "report" / "reproduce.json").read_text())
    assert {row["attack"] for row in stored["entries"]} >= {"alma", "fmn"} and (
        folder / "report" / "paper.md"
    ).is_file()
