"""Compare says what it compares, refuses what does not belong together, and takes attack texts as
they were typed."""

from __future__ import annotations

import json
import math

import pytest
import torch
from runs.small_runs import Net, small_run

from almakit.cli.main import main


class Other(Net):
    def __init__(self):
        super().__init__()
        with torch.no_grad():
            self.second.bias += 0.05


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("compare")
    attacks = ["alma(steps=12)", "pgd(distance=l2, epsilon=0.3, steps=5)"]
    return {
        "one": small_run(root / "one", attacks=attacks).folder,
        "other": small_run(root / "other", attacks=attacks, model=Other()).folder,
        "targeted": small_run(root / "targeted", attacks=attacks, targets="next").folder,
        "random": small_run(root / "random", attacks=attacks, targets="random").folder,
        "seed": small_run(root / "seed", attacks=attacks, targets="random", seed=1).folder,
        "ddn": small_run(
            root / "ddn", attacks=["ddn(steps=12)", "pgd(distance=l2, epsilon=0.2, steps=5)"], bits=8
        ).folder,
    }


def said(capsys, *arguments):
    code = main(["compare", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_head_names_both_runs(runs, capsys):
    code, out, _ = said(capsys, runs["one"], runs["ddn"], "--pair", "alma(steps=12)=>ddn(steps=12)")
    before, after = out.splitlines()[:2]
    assert code == 0
    assert before.startswith(f"before  {runs['one']}: python:Net (weights ")
    assert "on python:arrays, 40 images" in before
    assert "untargeted, any value in [0, 1]" in before and "untargeted, on the 8-bit grid" in after and "torch" in after
    _, out, _ = said(capsys, runs["one"], runs["one"], "--json")
    answer = json.loads(out)
    assert answer["before"]["goal"] == "untargeted" and answer["after"]["model"] == "python:Net"


def test_other_models_and_goals_are_refused(runs, capsys):
    for name, word in (("other", "models"), ("targeted", "goals")):
        code, _, err = said(capsys, runs["one"], runs[name])
        assert code == 1 and f"--across {word}" in err
        assert said(capsys, runs["one"], runs[name], "--across", word)[0] == 0
    code, _, err = said(capsys, runs["random"], runs["seed"])
    assert code == 1 and "aim at different classes" in err, "the same rule, other targets"
    assert said(capsys, runs["random"], runs["seed"], "--across", "goals")[0] == 0


def test_texts_as_they_were_typed(runs, capsys):
    for typed in ("alma(steps=12)", "alma(distance=l2, steps=12)", "alma( steps = 12 )"):
        code, out, err = said(capsys, runs["one"], runs["one"], "--pair", f"{typed}=>alma(steps=12)")
        assert code == 0 and "alma(distance=l2, steps=12)" in out, err
    code, _, err = said(capsys, runs["one"], runs["one"], "--pair", "alma(steps=13)=>alma(steps=12)")
    assert code == 1 and "the first run has no attack 'alma(steps=13)'; it has alma(distance=l2, steps=12)" in err


def test_radii_that_differ_are_refused(runs, capsys):
    code, _, err = said(
        capsys,
        runs["one"],
        runs["ddn"],
        "--pair",
        "pgd(distance=l2, epsilon=0.3, steps=5)=>pgd(distance=l2, epsilon=0.2, steps=5)",
    )
    assert code == 1 and "do not look equally far" in err
    code, _, err = said(
        capsys, runs["one"], runs["ddn"], "--pair", "alma(steps=12)=>pgd(distance=l2, epsilon=0.2, steps=5)"
    )
    assert code == 1 and "do not look equally far" in err


def test_at_a_fixed_radius_there_is_no_ratio_of_medians(runs):
    from almakit.report.compare import compare, table

    found = compare(runs["one"], runs["one"])
    minimal, fixed = found["comparisons"]
    assert minimal["ratio_of_medians"] == 1 and math.isnan(fixed["ratio_of_medians"])
    assert fixed["median"] == [None, None] and fixed["ties"] == 40 and fixed["worse_by"] == 0
    assert 0 < fixed["success_rate"][0] == fixed["success_rate"][1] < 1
    assert " - " in table(found)
