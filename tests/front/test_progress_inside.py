"""Progress wherever long work happens: steps inside a chunk, in Python, in notebooks; an estimate before what takes
long."""

from __future__ import annotations

import io
import sys
import types
from typing import Any

import pytest
import torch
from laws.models import RowWise

import almakit
from almakit.attacks import get
from almakit.cli.main import main
from almakit.core.attack import expected_forwards
from almakit.runs.progress import Lines, Progress, shown

MODEL = RowWise((1, 4, 4)).eval()
X = torch.rand(12, 1, 4, 4, generator=torch.Generator().manual_seed(0))
with torch.no_grad():
    LABELS = MODEL(X).argmax(1)


class Heard(Progress):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, int | None, int]] = []
        self.stages: list[tuple[Any, ...]] = []
        self.finished = 0

    def begin(self, what: str, done: int, total: int, unit: str = "images") -> None:
        self.stages.append((what, done, total))

    def advance(self, count: int, detail: str = "") -> None:
        self.finished += count

    def inside(self, forwards: float, of: int | None, count: int) -> None:
        self.calls.append((forwards, of, count))


def test_a_run_tells_of_the_steps_inside_a_chunk() -> None:
    heard = Heard()
    run = almakit.evaluate(MODEL, (X, LABELS), "ddn(steps=7)", batch_size=8, progress=heard)
    assert heard.calls == [*[(call, 7, 8) for call in range(1, 8)], *[(call, 7, 4) for call in range(1, 8)]]
    silent = almakit.evaluate(MODEL, (X, LABELS), "ddn(steps=7)", batch_size=8)
    assert [r.verified for r in run.records] == [r.verified for r in silent.records]
    assert [r.forwards for r in run.records] == [7] * 12, "looking changes nothing"


def test_an_attack_tells_too() -> None:
    heard = Heard()
    result = almakit.attack(MODEL, X, LABELS, attack="ddn", steps=7, batch_size=8, check=False, progress=heard)
    assert heard.stages == [("ddn(steps=7)", 0, 12)] and heard.finished == 12
    assert [(round(12 * forwards), of, count) for forwards, of, count in heard.calls] == [
        (rows, 7, 12) for rows in [*range(8, 57, 8), *range(60, 85, 4)]
    ], "8 images, then 4: seven forwards each"
    assert torch.equal(
        result.distances, almakit.attack(MODEL, X, LABELS, attack="ddn", steps=7, batch_size=8).distances
    )
    found = Heard()
    almakit.standard_evaluation(MODEL, X[:1], LABELS[:1], norm=2, progress=found)
    assert found.stages[0][0] == "almakit:standard-v1(distance=l2)"
    assert found.calls[-1][0] > 500
    assert found.calls[-1][1] == 500 + 500 + 7 * 50


def test_expected_forwards() -> None:
    texts = {
        "ddn(steps=7)": 7,
        "cw(steps=10, searches=3)": 30,
        "pgd(steps=5, restarts=2, epsilon=1)": 10,
        "alm(outer=2, inner=5)": 10,
        "search(attack=pgd(steps=5), halvings=3)": 15,
        "ensemble(attacks=[ddn(steps=3), fmn(steps=4)])": 7,
    }
    assert {text: expected_forwards(get(text)) for text in texts} == texts
    assert expected_forwards(object()) is None


def test_lines_tell_of_a_long_chunk() -> None:
    stream = io.StringIO()
    lines = Lines(stream, pause=0.0)
    lines.begin("stage", 0, 64)
    lines.inside(25, 100, 64)
    lines.inside(26, None, 64)
    first, second = stream.getvalue().splitlines()
    assert first.startswith("stage: 0/64 images") and "left; forward 25 of about 100 of the next 64" in first
    assert second.endswith("forward 26 of the next 64")
    calm = Lines(io.StringIO(), pause=1e9)
    calm.begin("stage", 0, 64)
    calm.inside(1, 2, 64)
    assert calm.stream.getvalue() == ""


def test_a_bar_moves_inside_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    stream = io.StringIO()
    bar = Lines(stream, pause=0.0, bar=True)
    bar.begin("stage", 0, 64)
    bar.inside(50, 100, 64)
    bar.note("a sentence")
    bar.advance(64)
    bar.end()
    first, sentence, last = filter(str.strip, stream.getvalue().replace("\r", "\n").split("\n"))
    assert first.startswith("[##########----------] stage: 0/64") and "forward 50 of about 100" in first
    assert sentence == "a sentence" and last.startswith("[####################] stage: 64/64")


def test_a_notebook_has_a_bar_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    found = shown(True)
    assert isinstance(found, Lines) and found.bar
    assert type(shown(False)) is Progress and type(shown(None)) is Progress


def test_training_shows_its_batches(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--epochs", "1", "--limit", "640", "--test-limit", "20", "--batch-size", "64"]
    assert main(["train", "mnist/smallcnn-tiny", *few, "--out", str(tmp_path / "t")]) == 0
    assert "training: 10/10 batches" in capsys.readouterr().err
