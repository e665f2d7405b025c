"""Two runs image by image, and the exit code for CI."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from report.made_runs import FOUR, MadeAttack, make_run

from almakit import Run
from almakit.cli.main import main
from almakit.errors import BadInput
from almakit.report.compare import compare, ratio_of_medians


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
    alma, ddn = "alma(distance=l2, steps=100)", "ddn(distance=l2, steps=100)"
    (pair,) = compare(runs["before"], runs["other"], [(alma, ddn)])["comparisons"]
    assert pair["attack"] == f"{alma} -> {ddn}"
    with pytest.raises(BadInput, match="different distances"):
        compare(runs["before"], runs["other"], [(alma, "ead(distance=l1, steps=100)")])
    with pytest.raises(BadInput, match="has no attack 'nix'"):
        compare(runs["before"], runs["other"], [("nix", ddn)])


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
    assert code("worse", "--json", "--show", "3", "--fail-if-worse", "2%") == 5
    answer = json.loads(capsys.readouterr().out)
    assert (
        len(answer["comparisons"]) == 2 and len(answer["worse"]) == 2 and len(answer["comparisons"][0]["changed"]) == 3
    )
