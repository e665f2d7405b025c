"""The standard evaluation at one radius as an attack of a run: on 8-bit images, with workers, stopped and resumed, and
through a loader."""

from __future__ import annotations

import pytest
import torch
from runs.small_runs import Net, contents, images, small_run
from torch.utils.data import DataLoader, TensorDataset

import almakit
from almakit.core.result import Status

TEXT = "almakit:standard-v1(distance=linf, epsilon=0.06)"


def test_a_resumed_run_finds_the_same(tmp_path) -> None:
    options = {"attacks": [TEXT], "batch_size": 2, "limit": 4}

    class Stop(almakit.runs.progress.Progress):
        def advance(self, count: int, detail: str = "") -> None:
            if detail:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small_run(tmp_path / "stopped", progress=Stop(), **options)
    small_run(tmp_path / "stopped", **options)
    assert contents(tmp_path / "stopped") == contents(small_run(tmp_path / "whole", **options).folder)


def test_a_run_and_the_function_agree(tmp_path) -> None:
    x, labels = images(10)
    run = small_run(tmp_path / "run", data=(x, labels), attacks=[TEXT])
    found = almakit.standard_evaluation(Net(), x, labels, "Linf", 0.06)
    assert run.robust_accuracy({"linf": 0.06}) == found.robust_accuracy(0.06)
    assert 0 < found.robust_accuracy(0.06) < found.clean_accuracy
    loader = DataLoader(TensorDataset(x, labels), batch_size=5)
    assert torch.equal(almakit.standard_evaluation(Net(), loader, norm="Linf", eps=0.06).status, found.status)


def test_eight_bits_count_whole_levels() -> None:
    x, labels = images(16)
    x = (x * 255).round() / 255
    labels = Net()(x).argmax(1)
    found = almakit.standard_evaluation(Net(), x, labels, "Linf", 15 / 255, box=almakit.Box(bits=8))
    broken = found.status == Status.SUCCESS
    levels = (255 * (found.adversarials - x)).flatten(1)
    assert bool(broken.any()) and bool(((levels - levels.round()).abs() < 1e-3).all())
    assert int(levels[broken].round().abs().max()) <= 15
