"""Runs with another goal than another class: recorded, judged by the goal, resumed, verified, and said in every
label."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import almakit
from almakit import goals
from almakit.cli.main import main
from almakit.models import load
from almakit.runs.model import open_model
from almakit.runs.spec import RunSpec
from almakit.runs.threat import goal_name, named, threat_of
from almakit.runs.verify import verify_run

RUN = ["run", "--model", "mnist/smallcnn-tiny", "--data", "mnist-demo", "--limit", "12", "--quiet"]
RUN += ["--attack", "soft-walk(steps=40)"]
LESS_SURE = "outputs.gather(1, labels[:, None])[:, 0] - outputs.amin(1) - 6"


def logits(images: Tensor) -> Tensor:
    with torch.no_grad():
        found: Tensor = load("mnist/smallcnn-tiny")(images)
    return found


def test_a_goal_on_the_command_line_is_recorded_judged_and_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main([*RUN, "--goal", "top-k(k=3)", "--out", str(out)]) == 0
    run = almakit.open(out)
    assert run.spec.goal == "top-k(k=3)" and 'goal = "top-k(k=3)"' in (out / "run.toml").read_text()
    found = [record for record in run.records if record.status == "success"]
    assert len(found) >= 10 and all(record.fooled for record in found)
    points = torch.from_numpy(run.adversarials(found).copy())
    labels = torch.tensor([run.image[record.image].label for record in found])
    assert not bool((logits(points).topk(3, 1).indices == labels[:, None]).any())
    plain = almakit.evaluate("mnist/smallcnn-tiny", "mnist-demo", "soft-walk(steps=40)", limit=12)
    assert run.result().median > 1.05 * plain.result().median, "three classes ahead of the label are farther than one"
    assert "top-k(k=3)" in run.table()
    capsys.readouterr()
    assert main(["verify", str(out)]) == 0 and "Every claimed success fools the model" in capsys.readouterr().out
    assert main([*RUN, "--goal", "top-k(k=2)", "--out", str(out)]) == 1, "another goal is another run"


def test_the_verdict_knows_a_goal_that_is_not_reached(tmp_path: Path) -> None:
    """Images that leave their label, claimed as successes of a goal that asks for more, are refuted."""
    out = tmp_path / "run"
    almakit.evaluate("mnist/smallcnn-tiny", "mnist-demo", "soft-walk(steps=40)", out, limit=12)
    run = almakit.open(out)
    found = verify_run(run, open_model("mnist/smallcnn-tiny", run.spec), goal=goals.get("top-k(k=5)"))
    assert not found.good and found.attacks[0].confirmed < found.attacks[0].claimed


def test_a_users_file_and_a_function(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"def build():\n    return lambda outputs, labels: {LESS_SURE}\n")
    assert main([*RUN, "--goal", f"{file}:build", "--out", str(tmp_path / "file")]) == 0
    assert main(["verify", str(tmp_path / "file")]) == 2
    assert "no code runs because a folder names it" in capsys.readouterr().err
    assert main(["verify", str(tmp_path / "file"), "--goal", f"{file}:build"]) == 0

    def less_sure(outputs: Tensor, labels: Tensor) -> Tensor:
        return outputs.gather(1, labels[:, None])[:, 0] - outputs.amin(1) - 6

    run = almakit.evaluate("mnist/smallcnn-tiny", "mnist-demo", "soft-walk(steps=40)", limit=12, goal=less_sure)
    found, same = ([one.distance for one in made.records] for made in (run, almakit.open(tmp_path / "file")))
    assert run.spec.goal == "python:less_sure" and found == same


def test_wrong_goals_are_sentences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = {"pixels(share=0.5)": "is for label maps", "top-q": "did you mean top-k", "top-k(k=30)": "at most 9"}
    for goal, words in wrong.items():
        assert main([*RUN, "--goal", goal, "--out", str(tmp_path / "x")]) != 0
        assert words in capsys.readouterr().err


def test_labels_say_the_goal() -> None:
    spec = RunSpec(model="m", data="d", goal="top-k(k=3)")
    assert named("ddn(steps=3)", spec) == "ddn(steps=3), top-k(k=3)" and goal_name(threat_of(spec).goal) == "top-k(k=3)"
    assert goal_name(threat_of(replace(spec, targets="next")).goal) == "top-k(k=3), targeted (next)"
    assert spec.sha256 != replace(spec, goal=None).sha256
