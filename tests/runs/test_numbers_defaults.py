"""The same command gives the same number: precision and batch size are fixed unless measuring is asked for."""

from __future__ import annotations

import pytest
from runs.small_runs import small_run, source_file

from almakit import Run
from almakit.cli.main import main
from almakit.errors import BadInput
from almakit.runs import checks
from almakit.runs.checks import usual_batch_size
from almakit.runs.spec import DEFAULT, RunSpec

ONE = ["ddn(steps=5)"]


@pytest.fixture
def no_clock(monkeypatch):
    def refuse(*_):
        raise AssertionError("a default was measured")

    monkeypatch.setattr(checks, "measured_batch_size", refuse)


def test_nothing_is_measured_by_default(no_clock, tmp_path):
    source = source_file(tmp_path)
    flags = ["run", "--model", f"{source}:model", "--data", f"{source}:data", "--attack", ONE[0], "--quiet"]
    assert main([*flags, "--out", str(tmp_path / "a")]) == 0 and main([*flags, "--out", str(tmp_path / "b")]) == 0
    one, two = Run(tmp_path / "a"), Run(tmp_path / "b")
    assert (one.spec.batch_size, one.spec.dtype) == (40, "float32"), "64 at most, and there are 40 images"
    assert one.summary["attacks"][0]["median_all"] == two.summary["attacks"][0]["median_all"]
    assert main([*flags, "--out", str(tmp_path / "a")]) == 0, "the same command goes on in the folder"


def test_shards_need_no_batch_size_but_cannot_measure(no_clock, tmp_path):
    for number in range(2):
        small_run(tmp_path / "run", attacks=ONE, shard=(number, 2), batch_size="default")
    with pytest.raises(BadInput, match="--batch-size auto"):
        small_run(tmp_path / "other", attacks=ONE, shard=(0, 2), batch_size="auto")


def test_the_rule():
    assert usual_batch_size("cpu", 784, 10_000) == 64 and usual_batch_size("cuda", 784, 10_000) == 256
    assert usual_batch_size("cpu", 3 * 224 * 224, 1000) == 15 and usual_batch_size("cuda", 3 * 224 * 224, 1000) == 256
    assert usual_batch_size("cpu", 784, 5) == 5 and usual_batch_size("cpu", 10**8, 100) == 8
    assert RunSpec().batch_size == DEFAULT
    assert RunSpec(batch_size="auto").folder_name() == RunSpec().folder_name()
