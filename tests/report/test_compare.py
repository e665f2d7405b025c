"""Two runs image by image, and the exit code for CI."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from report.made_runs import FOUR, MadeAttack, make_run
from runs.small_runs import Net, images, small_run

from almakit import Run
from almakit.cli.main import main
from almakit.errors import BadInput
from almakit.report import subjects
from almakit.report.compare import compare, ratio_of_medians, table


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("compare")
    exact = tuple(replace(attack, spread=0.0, failing=0.0) for attack in FOUR[:2])
    return {
        "before": make_run(root / "before", 60, exact),
        "same": make_run(root / "same", 60, exact),
        "worse": make_run(
            root / "worse", 60, tuple(replace(attack, strength=1.05 * attack.strength) for attack in exact)
        ),
        "failing": make_run(root / "failing", 60, tuple(replace(attack, failing=0.2) for attack in exact)),
        "fewer": make_run(root / "fewer", 30, exact),
        "other": make_run(root / "other", 60, (MadeAttack("ddn", "DDN"), MadeAttack("ead", "EAD", "l1"))),
        "elsewhere": make_run(root / "elsewhere", 20, exact, shape=(1, 8, 8)),
    }


def test_a_run_equals_itself(runs: dict[str, Path]) -> None:
    for one in compare(runs["before"], runs["same"])["comparisons"]:
        assert [one[f"ratio_{name}"] for name in ("of_medians", "low", "high")] == [1.0, 1.0, 1.0]
        assert (one["wins"], one["losses"], one["ties"], one["changed"], one["worse_by"]) == (0, 0, 60, [], 0)


def test_ratio_wins_and_changed_images(runs: dict[str, Path]) -> None:
    one = compare(runs["before"], runs["worse"])["comparisons"][0]
    x, y = (np.array([record.verified for record in Run(runs[name]).records_of(0)]) for name in ("before", "worse"))
    ratio, wins, losses, ties = (one[name] for name in ("ratio_of_medians", "wins", "losses", "ties"))
    assert ratio == pytest.approx(np.median(y) / np.median(x)) and one["ratio_low"] <= ratio <= one["ratio_high"]
    assert ratio == pytest.approx(1.05, abs=0.03)
    assert wins + losses + ties == 60 and losses > 50
    assert len(one["changed"]) == wins + losses and ties >= int((x == 0).sum())
    assert one["changed"][0]["ratio"] == max(changed["ratio"] for changed in one["changed"])


def test_paired_intervals_are_narrower_than_unpaired() -> None:
    random = np.random.default_rng(0)
    x = np.exp(random.normal(size=200))
    ratio, (low, high) = ratio_of_medians(x, 1.1 * x)
    assert ratio == pytest.approx(1.1) and low == pytest.approx(1.1) and high == pytest.approx(1.1)


def test_undefined_ratios() -> None:
    none, zero, some = np.full(5, math.inf), np.zeros(5), np.ones(5)
    assert math.isnan(ratio_of_medians(none, none)[0]) and math.isnan(ratio_of_medians(zero, zero)[0])
    assert ratio_of_medians(some, none)[0] == math.inf and ratio_of_medians(none, some)[0] == 0


def test_only_images_in_both_count(runs: dict[str, Path]) -> None:
    assert compare(runs["before"], runs["fewer"])["comparisons"][0]["images"] == 30


def test_what_cannot_be_compared_is_said(runs: dict[str, Path]) -> None:
    with pytest.raises(BadInput, match="no attack in common"):
        compare(runs["before"], runs["other"])
    with pytest.raises(BadInput, match="no image in common"):
        compare(runs["before"], runs["elsewhere"])


def test_exit_code_for_ci(runs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    def code(name: str, *more: str) -> int:
        return main(["compare", str(runs["before"]), str(runs[name]), *more])

    assert code("worse") == 0
    assert code("worse", "--fail-if-worse", "2%") == 5 and "Worse than 2 % allows" in capsys.readouterr().out
    assert code("worse", "--fail-if-worse", "0.2") == 0
    assert code("same", "--fail-if-worse", "0%") == 0
    assert code("failing", "--fail-if-worse", "10%") == 5
    assert (
        main(["compare", str(runs["worse"]), str(runs["before"]), "--fail-if-worse", "2%"]) == 0
    )  # better is not worse
    assert code("worse", "--fail-if-worse", "much") == 2
    capsys.readouterr()
    assert code("worse", "--json", "--fail-if-worse", "2%") == 5
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["comparisons"]) == 2 and len(answer["worse"]) == 2
    assert len(answer["comparisons"][0]["changed"]) > 50


class Other(Net):
    def __init__(self):
        super().__init__()
        with torch.no_grad():
            self.second.bias += 0.05


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Runs that were attacked: another model, other targets, another seed, another grid."""
    root = tmp_path_factory.mktemp("small")
    attacks = ["alma(steps=12)", "pgd(distance=l2, epsilon=0.3, steps=5)"]
    settings = {
        "one": {},
        "other": {"model": Other()},
        "targeted": {"targets": "next"},
        "random": {"targets": "random"},
        "seed": {"targets": "random", "seed": 1},
        "bits": {"bits": 8},
    }
    return {name: small_run(root / name, **{"attacks": attacks, **more}).folder for name, more in settings.items()}


def said(capsys, *arguments):
    code = main(["compare", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_head_names_both_runs(small, capsys):
    code, out, _ = said(capsys, small["one"], small["bits"])
    before, after = out.splitlines()[:2]
    assert code == 0
    assert before.startswith(f"before  {small['one']}: python:Net (weights ")
    assert "on python:arrays, 40 images" in before
    assert "untargeted, any value in [0, 1]" in before and "untargeted, on the 8-bit grid" in after and "torch" in after
    _, out, _ = said(capsys, small["one"], small["one"], "--json")
    answer = json.loads(out)
    assert answer["before"]["goal"] == "untargeted" and answer["after"]["model"] == "python:Net"


def test_other_models_and_goals_are_refused(small, capsys):
    code, _, err = said(capsys, small["one"], small["other"])
    assert code == 1 and "--across models" in err
    assert said(capsys, small["one"], small["other"], "--across", "models")[0] == 0
    code, _, err = said(capsys, small["one"], small["targeted"])
    assert code == 1 and "different goals" in err
    code, _, err = said(capsys, small["random"], small["seed"])
    assert code == 1 and "aim at different classes" in err, "the same rule, other targets"


def test_at_a_fixed_radius_there_is_no_ratio_of_medians(small):
    found = compare(small["one"], small["one"])
    minimal, fixed = found["comparisons"]
    assert minimal["ratio_of_medians"] == 1 and math.isnan(fixed["ratio_of_medians"])
    assert fixed["median"] == [None, None] and fixed["ties"] == 40 and fixed["worse_by"] == 0
    assert 0 < fixed["success_rate"][0] == fixed["success_rate"][1] < 1
    assert " - " in table(found)


# Images are matched by contents and label.

ATTACK = "ddn(steps=8)"


def test_an_image_under_two_labels_is_paired_with_itself(tmp_path: Path) -> None:
    x, labels = images(8)
    x[5], labels[5] = x[0], (labels[0] + 1) % 5  # the same pixels: right at first, wrong already the second time
    x[6], labels[6] = x[1], labels[1]  # and once more in full
    for name in ("a", "b"):
        small_run(tmp_path / name, data=(x, labels), attacks=ATTACK, preflight=False)
    (pair,) = compare(tmp_path / "a", tmp_path / "b")["comparisons"]
    assert (pair["images"], pair["ties"]) == (8, 8)
    backwards = (x.flip(0), labels.flip(0))
    small_run(tmp_path / "c", data=backwards, attacks=ATTACK, preflight=False, batch_size=8)
    (pair,) = compare(tmp_path / "a", tmp_path / "c")["comparisons"]
    assert (pair["images"], pair["ties"]) == (8, 8)


def test_runs_with_other_labels_are_not_mixed(tmp_path: Path) -> None:
    x, labels = images(8)
    other = labels.clone()
    other[:2] = (labels[:2] + 1) % 5
    small_run(tmp_path / "a", data=(x, labels), attacks=ATTACK, preflight=False)
    small_run(tmp_path / "b", data=(x, other), attacks=ATTACK, preflight=False)
    small_run(tmp_path / "c", data=(x, (labels + 1) % 5), attacks=ATTACK, preflight=False)
    found = subjects.load([tmp_path / "a", tmp_path / "b"])
    assert len(found) == len({subject.name for subject in found}) == 2
    (pair,) = compare(tmp_path / "a", tmp_path / "b")["comparisons"]
    assert (pair["images"], pair["ties"]) == (6, 6)
    with pytest.raises(BadInput, match="matched by their contents and labels"):
        compare(tmp_path / "a", tmp_path / "c")
