"""The leaderboard's numbers, what it says of folders that differ, are half done or cannot be read,
and that it is made anew."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest
from report.made_runs import FOUR, MadeAttack, make_run
from report.test_brackets import certify

from almakit import Run
from almakit.cli.main import main
from almakit.report import board
from almakit.report.board import write_board

THREE = (*FOUR[:1], FOUR[2], MadeAttack("apgd", "APGD", "l2", 20, settings={"epsilon": 0.9}, failing=0.4))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("board")
    made = {
        name: make_run(root / name, 30, THREE, model=f"mnist/{name}", weights=name * 64, seed=place)
        for place, name in enumerate("ab")
    }
    made["more"] = make_run(
        root / "more", 30, (MadeAttack("fmn", "FMN", strength=1.3),), model="mnist/a", weights="a" * 64
    )
    made["other"] = make_run(root / "other", 20, FOUR[:1], model="mnist/a", weights="a" * 64, data="mnist-other")
    made["half"] = make_run(root / "half", 30, THREE, model="mnist/half", weights="c" * 64, chunk=8, unfinished=5)
    return made


def proven(run, attack):
    return np.array([record.verified for record in Run(run).records_of(attack)])


def test_the_cells_are_the_runs_numbers(runs, tmp_path):
    _, written = write_board([runs["a"], runs["b"], runs["more"]], tmp_path, {"l2": [0.9, "3/2"]})
    (table,) = json.loads((tmp_path / "board.json").read_text())["tables"]
    assert [model["name"] for model in table["models"]] == ["mnist/a", "mnist/b"]
    assert len(table["runs"]) == 3
    assert table["models"][0]["runs"] == [0, 1]
    (block,) = table["blocks"]
    assert [head["label"] for head in block["attacks"]] == ["ALMA 100", "DDN 100", "APGD 20, ε = 0.9", "FMN 100"]
    assert [row["text"] for row in block["radii"]] == ["0.9", "1.5"]
    first, second = block["rows"]
    assert second["cells"][3] is None and second["all"]["attacks"] == 3 and first["all"]["attacks"] == 4
    summary = Run(runs["a"]).summary["attacks"]
    alma, fixed, fmn = first["cells"][0], first["cells"][2], first["cells"][3]
    assert alma["median"] == summary[0]["median_all"]
    assert alma["passes"] == summary[0]["forwards"]["mean"] + summary[0]["backwards"]["mean"]
    assert [row["value"] for row in alma["robust_accuracy"]] == pytest.approx(
        [float((proven(runs["a"], 0) > at).mean()) for at in (0.9, 1.5)]
    )
    assert [row["epsilon"] for row in fixed["robust_accuracy"]] == [0.9] and fixed["median"]["value"] is None
    assert fixed["robust_accuracy"][0]["value"] == pytest.approx(float(np.isinf(proven(runs["a"], 2)).mean()))
    assert table["runs"][fmn["run"]]["folder"] == "more"
    assert table["runs"][alma["run"]]["sha256"] == Run(runs["a"]).sha256
    smallest = np.min([proven(runs["a"], 0), proven(runs["a"], 1), proven(runs["more"], 0)], axis=0)
    assert first["all"]["median"]["value"] == pytest.approx(float(np.median(smallest)))
    broken = (smallest <= 1.5) | np.isfinite(proven(runs["a"], 2))
    assert first["all"]["robust_accuracy"][1]["value"] == pytest.approx(float((~broken).mean()))
    pages = [path for path in written if path.parent.name == "models"]
    assert len(pages) == 2 and all(
        'href="../index.html"' in page.read_text() and "Robust accuracy against all attacks" in page.read_text()
        for page in pages
    )


def test_different_data_half_done_and_unreadable_folders_are_said(runs, tmp_path, capsys):
    (tmp_path / "not a run").mkdir()
    (tmp_path / "notes.txt").write_text("hello")
    broken = tmp_path / "broken"
    shutil.copytree(runs["a"], broken)
    (broken / "run.toml").write_text("model = 3")
    folders = [*runs.values(), tmp_path / "not a run", tmp_path / "notes.txt", broken, tmp_path / "site"]
    assert main(["board", *map(str, folders), "--out", str(tmp_path / "site")]) == 0
    said = capsys.readouterr().out
    assert (
        "2 different sets of images, each with tables of its own: mnist, 30 images (3 models); mnist-other, 20 images "
        "(1 models)" in said
    )
    assert "half is not finished" in said
    assert said.count("Left out:") == 3
    assert "site" not in re.findall(r"Left out: (.*?):", said)
    page = (tmp_path / "site" / "index.html").read_text()
    assert "2 sets of images." in page and "cannot be compared" in page and page.count('class="matrix"') == 2
    there = len(Run(runs["half"]).records)
    assert f"half ({there} of 90 results)" in page and "not finished</small>" in page
    assert "not a run: not a run has no records.sqlite" in page and str(tmp_path) not in page
    assert main(["board", str(tmp_path / "not a run"), "--out", str(tmp_path / "none")]) == 1
    assert "none of these folders has results" in capsys.readouterr().err and not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("8/0", 2, "'8/0' is no radius; write a finite number"),
        ("linf=8/255", 1, "no attack here is in it; they have l2"),
    ],
)
@pytest.mark.parametrize("verb", ["board", "report"])
def test_bad_radii_are_sentences(runs, tmp_path, capsys, verb, text, code, words):
    assert main([verb, str(runs["a"]), "--out", str(tmp_path / "site"), f"--epsilon={text}"]) == code
    assert words in capsys.readouterr().err and not (tmp_path / "site").exists()


def test_a_radius_for_the_distance_of_one_table_only(tmp_path):
    folders = [make_run(tmp_path / "a", 20, FOUR[:1]), make_run(tmp_path / "b", 30, (MadeAttack(distance="linf"),))]
    write_board(folders, tmp_path / "site", {"linf": "8/255"})
    tables = json.loads((tmp_path / "site" / "board.json").read_text())["tables"]
    assert {table["blocks"][0]["distance"]: [row["text"] for row in table["blocks"][0]["radii"]] for table in tables}[
        "linf"
    ] == ["8/255"]


def test_it_is_made_anew(runs, tmp_path):
    write_board([runs["a"], runs["b"]], tmp_path)
    page = (tmp_path / "index.html").read_bytes()
    write_board([runs["a"], runs["b"]], tmp_path)
    assert (tmp_path / "index.html").read_bytes() == page, "the same folders make the same page"


def test_a_curve_of_many_images_is_thinned(monkeypatch):
    monkeypatch.setattr(board, "CURVE", 50)
    distances = np.random.default_rng(0).exponential(size=300)
    thinned = board._thinned(np.append(distances, np.nan))
    assert len(thinned) == 50
    for epsilon in (0.3, 0.8, 1.2, 2.0):
        assert abs((thinned > epsilon).mean() - (distances > epsilon).mean()) <= 1 / 50


def test_the_hash_of_a_folder_is_of_its_contents(runs, tmp_path):
    copy = tmp_path / "elsewhere"
    shutil.copytree(runs["a"], copy)
    assert Run(copy).sha256 == Run(runs["a"]).sha256 != Run(runs["b"]).sha256
    other = make_run(tmp_path / "again", 30, THREE, model="mnist/a", weights="a" * 64, seed=5)
    assert Run(other).sha256 != Run(copy).sha256


def test_targeted_and_untargeted_stand_apart(tmp_path):
    from runs.small_runs import small_run

    folders = [
        small_run(tmp_path / name, attacks=["ddn(steps=5)"], targets=targets).folder
        for name, targets in (("plain", None), ("random", "random"))
    ]
    write_board(folders, tmp_path / "site")
    (table,) = json.loads((tmp_path / "site" / "board.json").read_text())["tables"]
    assert [block["name"] for block in table["blocks"]] == ["ℓ2 norm", "ℓ2 norm, targeted (random)"]
    assert "Targets not reached" in (tmp_path / "site" / "index.html").read_text()


def test_certified_radii_stand_beside_all_attacks(runs, tmp_path):
    folder = tmp_path / "certified"
    shutil.copytree(runs["a"], folder)
    radii = np.array(list(certify(folder, 0.5).values()))
    write_board([folder, runs["b"]], tmp_path / "site", {"l2": [0.5]})
    (table,) = json.loads((tmp_path / "site" / "board.json").read_text())["tables"]
    bound, none = (row["all"]["certified"] for row in table["blocks"][0]["rows"])
    assert none is None and bound["images"] == len(radii) and bound["median"] == pytest.approx(float(np.median(radii)))
    assert [(row["epsilon"], row["value"]) for row in bound["accuracy"]] == [
        (0.5, pytest.approx(float((radii >= 0.5).mean())))
    ]
