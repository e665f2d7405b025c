"""Runs with goals on outputs that are no logits of classes: labels of any kind, judged, verified, resumed, reported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import almakit
from almakit import goals
from almakit.cli.arguments import DONE, ERROR, FAILED_IMAGES, REFUSED
from almakit.cli.main import main
from almakit.errors import AlmakitError, BadInput
from almakit.runs.failures import Refused, SpecChanged

SIDE = 5


class Heads(nn.Module):
    """A small network with the outputs of many tasks, all smooth."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.first = nn.Parameter(torch.randn(SIDE * SIDE, 16, generator=generator) / SIDE)
        self.second = nn.Parameter(torch.randn(16, 12, generator=generator))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        scores = torch.tanh((x.flatten(1) - 0.5) @ self.first) @ self.second
        boxes, towers = scores.reshape(-1, 4, 3), scores[:, 2:]
        return {"tags": scores[:, :4], "value": scores[:, 4], "boxes": boxes, "towers": towers}


MODEL = Heads().eval().requires_grad_(False)
X = torch.rand(10, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
with torch.no_grad():
    CLEAN = MODEL(X)
TAGS, VALUES = CLEAN["tags"] > 0, CLEAN["value"] + 0.1
ATTACKS = ["soft-walk(distance=l2, steps=60)", "square(distance=linf, epsilon=0.4, steps=60)"]


def far_off(outputs: Tensor, labels: Tensor) -> Tensor:
    return 0.5 - (outputs[:, 0] - labels).abs()


def far(value: Tensor) -> Tensor:
    return (value - VALUES).abs() > 0.5


NONE = torch.zeros(10)
DETECTION, TOWERS = goals.detection(below=0.4, index=1, output="boxes"), goals.embedding(below=0.7, output="towers")
CASES: dict[str, tuple[object, Tensor, object]] = {
    "multilabel": (goals.multilabel(output="tags"), TAGS, lambda said: ((said["tags"] > 0) != TAGS).any(1)),
    "regression": (goals.regression(by=0.5, output="value"), VALUES, lambda said: far(said["value"])),
    "function": (far_off, VALUES, lambda said: far(said["value"])),
    "threshold": (goals.threshold(above=3.0, output="value"), torch.arange(10) % 3, lambda said: said["value"] > 3),
    "detection": (DETECTION, NONE, lambda said: said["boxes"][..., 1].amax(1) < 0.4),
    "embedding": (TOWERS, NONE, lambda said: torch.cosine_similarity(said["towers"], CLEAN["towers"]) < 0.7),
}


@pytest.mark.parametrize("name", CASES)
def test_any_goal_is_run_judged_and_reported(name: str, tmp_path: Path) -> None:
    goal, labels, reached = CASES[name]
    model = (lambda x: MODEL(x)["value"]) if name == "function" else MODEL
    run = almakit.evaluate(model, (X, labels), ATTACKS, goal=goal, out=tmp_path / "a", batch_size=4)
    already = reached(CLEAN)
    for info in run.attacks:
        records = run.records_of(info.index)
        points = torch.from_numpy(run.adversarials(records))
        with torch.no_grad():
            fresh = reached(MODEL(points))
        assert [record.fooled for record in records] == fresh.tolist()
        assert [record.status == "already-wrong" for record in records] == already.tolist()
        if info.minimal:
            assert sum(record.fooled for record in records) >= 8, [record.reason for record in records]
    assert run.summary["clean_accuracy"]["value"] == pytest.approx(1 - float(already.float().mean()))
    page = run.report(figures=False).read_text()
    assert goals.text_of(goal).partition("(")[0] in page and "goal reached" in page
    shown = page.partition('id="report-data"')[0].partition("<body>")[2]
    assert "Goal not reached against all attacks" in shown and "clean accuracy" not in shown.lower()
    assert "robust accuracy" not in shown.lower() and 'id="classes"' not in shown
    assert "goal not reached when clean" in run.table() and "accuracy" not in run.table()
    # The same call only asks whether the model is the same; other labels are another run.
    again = almakit.evaluate(model, (X, labels), ATTACKS, goal=goal, out=tmp_path / "a", batch_size=4)
    assert [record.verified for record in again.records] == [record.verified for record in run.records]
    if len(labels.unique(dim=0)) > 1:
        with pytest.raises(SpecChanged, match="labels or targets"):
            almakit.evaluate(model, (X, labels.roll(1, 0)), ATTACKS, goal=goal, out=tmp_path / "a", batch_size=4)


FILE = """
import sys
sys.path.insert(0, {tests!r})
from runs.test_goal_runs import BAD, MODEL


def build():
    return lambda x: MODEL(x)[{head!r}]


def off():
    return lambda outputs, labels: 0.5 - (outputs[:, 0] - labels).abs()


nan, matrix, company, flat = (lambda name=name: BAD[name][1] for name in BAD)


def never():
    return lambda outputs: outputs[:, 0].abs() + 1


"""


@pytest.fixture()
def place(tmp_path: Path) -> Path:
    tests = str(Path(__file__).resolve().parents[1])
    (tmp_path / "own.py").write_text(FILE.format(tests=tests, head="value"))
    (tmp_path / "tags.py").write_text(FILE.format(tests=tests, head="tags"))
    np.savez(tmp_path / "tags.npz", x=X.numpy(), y=TAGS.numpy())
    np.savez(tmp_path / "values.npz", x=X.numpy(), y=VALUES.numpy())
    return tmp_path


def command(place: Path, model: str, data: str, goal: str, *more: str) -> list[str]:
    attack = ["--attack", "ddn(steps=30)", "--batch-size", "4", "--quiet"]
    given = ["--model", f"{place / model}:build", "--data", f"npz:{place / data}", "--goal", goal]
    return ["run", *given, *attack, "--out", str(place / "out"), *more]


@pytest.mark.parametrize(
    ("model", "data", "goal"),
    [
        ("tags.py", "tags.npz", "multilabel(need=all)"),
        ("own.py", "values.npz", "any-of(goals=[regression(by=0.5), threshold(above=2)])"),
        ("own.py", "values.npz", "{place}/own.py:off"),
    ],
)
def test_the_command_line_takes_them(
    place: Path, model: str, data: str, goal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    goal = goal.format(place=place)
    assert main(command(place, model, data, goal)) in (DONE, FAILED_IMAGES)
    assert goal in capsys.readouterr().out
    known = ["--goal", goal] if ".py" in goal else []
    assert main(["verify", str(place / "out"), "--model", f"{place / model}:build", *known]) == DONE
    assert main(command(place, model, data, goal)) in (DONE, FAILED_IMAGES)
    assert main(["transfer", str(place / "out"), "--model", f"{place / model}:build", *known]) == DONE
    assert "100.0 %" in capsys.readouterr().out
    assert main(["report", str(place / "out"), "--out", str(place / "page"), "--no-figures"]) == DONE


BAD = {
    "nan": ("make it finite everywhere", lambda outputs: outputs[:, 0] / 0 - outputs[:, 0] / 0),
    "matrix": ("one floating-point margin for each", lambda outputs: outputs),
    "company": ("in its batch and", lambda outputs: outputs[:, 0] - outputs.mean()),
    "flat": ("no gradient in the images", lambda outputs: outputs[:, 0].detach() + 9),
}


@pytest.mark.parametrize("goal", BAD)
def test_a_bad_goal_ends_in_a_sentence(place: Path, goal: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, function = BAD[goal]
    assert main(command(place, "own.py", "values.npz", f"{place / 'own.py'}:{goal}")) == REFUSED
    said = capsys.readouterr().err
    assert "bad-goal" in said and words in said and "Traceback" not in said
    with pytest.raises(Refused, match=words):
        almakit.evaluate(lambda x: MODEL(x)["value"], (X, VALUES), ATTACKS[0], goal=function)
    if goal != "flat":
        with pytest.raises(AlmakitError):
            almakit.attack(lambda x: MODEL(x)["value"], X, VALUES, goal=function)


def test_a_goal_that_is_never_reached_says_why(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    goal = f"{place / 'own.py'}:never"
    assert main(command(place, "own.py", "values.npz", goal)) == FAILED_IMAGES
    run = almakit.open(place / "out")
    assert {record.reason for record in run.records} == {"no adversarial point was found within the budget"}


def test_labels_of_another_kind_need_a_goal(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [part for part in command(place, "tags.py", "tags.npz", "x") if part not in ("--goal", "x")]
    assert main(arguments) == ERROR
    assert "give a goal that reads them" in capsys.readouterr().err
    for settings, words in (({"targets": "next"}, "leave out targets"), ({"certify": "ibp"}, "leave certify out")):
        with pytest.raises(BadInput, match=words):
            almakit.evaluate(MODEL, (X, TAGS), ATTACKS[0], goal=goals.multilabel(output="tags"), **settings)


def test_the_doctor_looks_at_goals_and_maps(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--model", f"{place / 'tags.py'}:build", "--data", f"npz:{place / 'tags.npz'}"]
    assert main(["doctor", *flags, "--goal", "multilabel"]) == DONE
    said = capsys.readouterr().out
    assert "goal multilabel" in said and "of 10 clean images" in said and "accuracy" not in said
    assert main(["doctor", *flags]) == ERROR and "give a goal that reads them" in capsys.readouterr().err
    assert main(["doctor", "--model", "scenes/unet-small", "--data", "scenes", "--limit", "10"]) == DONE
    said = capsys.readouterr().out
    assert "13 classes" in said and "clean accuracy over pixels on 10 images: 9" in said


def test_an_altered_label_is_noticed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(command(place, "tags.py", "tags.npz", "multilabel"))
    assert np.array_equal(almakit.open(place / "out").maps([0, 1], "truths"), TAGS[:2].numpy())
    np.savez(place / "tags.npz", x=X.numpy(), y=~TAGS.numpy())
    assert main(command(place, "tags.py", "tags.npz", "multilabel")) == ERROR
    assert "labels or targets" in capsys.readouterr().err


def test_data_sets_and_loaders_bring_such_labels() -> None:
    class Pairs(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
        def __len__(self) -> int:
            return len(X)

        def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
            return X[index], VALUES[index]

    loader = torch.utils.data.DataLoader(Pairs(), batch_size=4)
    for data in (Pairs(), loader):
        run = almakit.evaluate(MODEL, data, "ddn(steps=20)", goal=goals.regression(by=0.5, output="value"))
        assert sum(record.fooled for record in run.records) >= 8
