"""How many calls of the model and how many frames a run takes, and that all attacks use one clean pass."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from runs.small_runs import Net, contents, images, small_run

from almakit import evaluate
from almakit.cli.main import main
from almakit.runs.model import CleanPass

MODEL = """
import sys

import recorder
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(16, 4)

    def forward(self, x):
        frame, names = sys._getframe(1), []
        while frame is not None:
            names.append((frame.f_code.co_filename.replace(chr(92), "/"), frame.f_code.co_name))
            frame = frame.f_back
        recorder.frames.append(names)
        return self.layer(x.flatten(1))

def model():
    return Model()

def data():
    x = torch.rand(4, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    return x, Model().layer(x.flatten(1)).argmax(1)
"""


def test_the_model_is_called_eleven_times_and_fifteen_frames_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder: Any = types.ModuleType("recorder")
    recorder.frames = []
    monkeypatch.setitem(sys.modules, "recorder", recorder)
    source = tmp_path / "recording.py"
    source.write_text(MODEL)
    flags = ["--model", f"{source}:model", "--data", f"{source}:data", "--attack", "ddn(steps=6)", "--quiet"]
    assert main(["run", *flags, "--out", str(tmp_path / "run")]) == 0
    assert len(recorder.frames) <= 11, "three of preflight, the clean pass, five of the attack, two of the verdict"
    depths = []
    for names in recorder.frames:
        if any(name == "query" for _, name in names):
            # What the file returns is inside a classifier, which is the model that attacks get.
            inner = next(place for place, (file, _) in enumerate(names) if file.endswith("models/classifier.py"))
            outer = next(i for i, (file, name) in enumerate(names) if (file[-11:], name) == ("cli/main.py", "main"))
            depths.append(outer - inner)
    assert len(depths) == 5 and max(depths) <= 15


@pytest.mark.parametrize(("attacks", "calls"), [(["ddn(steps=6)"], 6), (["ddn(steps=6)", "fmn(steps=6)"], 11)])
def test_all_attacks_use_one_clean_pass(attacks: list[str], calls: int) -> None:
    x, labels = images(3)
    model, sizes = Net(), []
    model.register_forward_hook(lambda *call: sizes.append(len(call[1][0])) if torch.is_grad_enabled() else None)
    run = evaluate(model, (x, labels), attacks, batch_size=3, preflight=False)
    assert len(sizes) <= calls, "the clean pass, and of each attack all passes but its first"
    assert {record.forwards for record in run.records} == {6}, "which counts for each attack"


def test_the_clean_pass_changes_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attacks = ["alma(distance=l2, steps=12)", "deepfool(steps=4)", "square(distance=l2, epsilon=1, steps=20)"]
    small_run(tmp_path / "shared", attacks=attacks)
    monkeypatch.setattr(CleanPass, "serves", lambda *_: False)
    small_run(tmp_path / "alone", attacks=attacks)
    assert contents(tmp_path / "shared") == contents(tmp_path / "alone")


def test_memory_that_runs_out_gives_up_the_clean_pass_then_half_the_batch(tmp_path: Path) -> None:
    class Short(Net):
        refused: list[int] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if torch.is_grad_enabled() and len(x) > 4 and len(self.refused) < 2:
                self.refused.append(len(x))
                raise torch.OutOfMemoryError("out of memory")
            return super().forward(x)

    run = small_run(tmp_path, model=Short(), data=images(16), preflight=False)
    assert Short.refused == [8, 8] and {chunk.batch for chunk in run.chunks if chunk.key.attack >= 0} == {4}
    assert len(run.records) == 32 and all(record.verified < float("inf") for record in run.records)
