"""What a run decides for speed is recorded, and what it does beside the attack changes no number."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import Net, contents, images, small_run
from torch import Tensor, nn

from almakit import evaluate
from almakit.attacks import get
from almakit.core import Result
from almakit.errors import BadInput
from almakit.runs import tuning
from almakit.runs.engines.local import ahead
from almakit.runs.failures import CalledOff
from almakit.runs.model import to_device, to_host
from almakit.runs.spec import RunSpec
from almakit.runs.watching import stop_when, watched


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.first, self.second = nn.Conv2d(1, 6, 3), nn.Linear(216, 5)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.25
        self.layouts: set[bool] = set()

    def forward(self, x: Tensor) -> Tensor:
        self.layouts.add(
            self.first.weight.is_contiguous(memory_format=torch.channels_last) and not self.first.weight.is_contiguous()
        )
        return self.second(torch.relu(self.first(x)).flatten(1))


class Deep(Convolution):
    """With two channels in between, so that layouts differ."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.expand(-1, 2, -1, -1))


# Layout and acceleration.


def test_settings_that_change_nothing_leave_the_hash_alone() -> None:
    plain = RunSpec(model="m", data="d", attacks=("ddn",), batch_size=8)
    assert "layout" not in plain.canonical() and "accelerate" not in plain.canonical()
    assert replace(plain, layout="contiguous").sha256 == plain.sha256 != replace(plain, layout="channels_last").sha256
    assert ("layout", "channels_last", None) in replace(plain, layout="channels_last").differences(plain)
    assert ("layout", None, "channels_last") in plain.differences(replace(plain, layout="channels_last"))
    for name, value in (("layout", "nhwc"), ("accelerate", "fast"), ("dtype", "bf16")):
        with pytest.raises(BadInput, match=f"{name}='{value}': choose"):
            replace(plain, **{name: value})


def test_a_given_batch_size_leaves_nothing_to_a_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("almakit.runs.tuning.faster_layout", lambda model, x: "channels_last")
    model = Deep()
    evaluate(model, (images(12)[0], images(12)[1]), "ddn(steps=3)", tmp_path / "a", batch_size=8, preflight=False)
    assert RunSpec.from_toml(tmp_path / "a" / "run.toml").layout == "contiguous" and model.layouts == {False}


def test_a_measured_layout_is_recorded_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("almakit.runs.tuning.faster_layout", lambda model, x: "channels_last")
    model, data = Deep(), images(12)
    run = evaluate(model, data, "ddn(steps=3)", tmp_path / "a", preflight=False, layout="auto")
    assert RunSpec.from_toml(tmp_path / "a" / "run.toml").layout == "channels_last" and model.layouts == {True, False}
    assert model.first.weight.is_contiguous()
    monkeypatch.setattr("almakit.runs.tuning.faster_layout", lambda model, x: "contiguous")
    before = contents(tmp_path / "a")
    evaluate(model, data, "ddn(steps=3)", tmp_path / "a", preflight=False)
    assert contents(tmp_path / "a") == before and len(run.records) == 12


# Precision.


def result(distances: list[float]) -> Result:
    values = torch.tensor(distances)
    found = torch.isfinite(values)
    counts = torch.full((len(values),), 5)
    return Result(torch.zeros(len(values), 1), values, torch.where(found, 1, 2), counts, counts)


def test_deviation_of_medians() -> None:
    exact = result([1.0, 2.0, 3.0])
    assert tuning.deviation(exact, result([1.0, 2.0, 9.0])) == 0
    assert tuning.deviation(exact, result([1.0, 2.05, 3.0])) == pytest.approx(0.025)
    assert tuning.deviation(exact, result([1.0, 1.9, 3.0])) == pytest.approx(0.05)
    assert tuning.deviation(exact, result([1.0, 2.0, float("inf")])) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("gain", "off", "expected"), [(1.1, 0.0, "float32"), (2.0, 0.03, "float32"), (2.0, 0.004, "bfloat16")]
)
def test_dtype_auto_wants_speed_and_the_same_distances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gain: float, off: float, expected: str
) -> None:
    monkeypatch.setattr(tuning, "speedup", lambda subject, x: gain)
    monkeypatch.setattr(tuning, "deviation", lambda exact, low: off)
    small_run(tmp_path / "a", dtype="auto", attacks=["ddn(steps=3)"])
    assert RunSpec.from_toml(tmp_path / "a" / "run.toml").dtype == expected
    small_run(tmp_path / "a", dtype="auto", attacks=["ddn(steps=3)"])  # goes on with what was recorded
    with pytest.raises(BadInput, match="shards must share one precision"):
        small_run(tmp_path / "b", dtype="auto", shard=(0, 2))


@pytest.mark.parametrize(("seconds", "timed"), [(0.5, 6), (0.9, 6), (3.0, 2)])
def test_dtype_auto_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, timed: int) -> None:
    """The clock alone is replaced: bfloat16 is looked at where it pays, and taken where the attack, run in both, finds
    distances within 1 %."""
    asked: list[torch.dtype | None] = []
    off: list[float] = []

    def clock(subject: object, x: Tensor, autocast: torch.dtype | None) -> float:
        asked.append(autocast)
        return 1.0 if autocast is None else seconds

    def noted(exact: Result, low: Result, of: Any = tuning.deviation) -> float:
        off.append(of(exact, low))
        return off[-1]

    monkeypatch.setattr(tuning, "pass_seconds", clock)
    monkeypatch.setattr(tuning, "deviation", noted)
    run = small_run(tmp_path / "a", dtype="auto", attacks=["ddn(steps=3)"])
    assert asked == [None, torch.bfloat16] * (timed // 2) and len(off) == (seconds == 0.5)
    expected = "bfloat16" if off and off[0] <= 0.01 else "float32"
    assert RunSpec.from_toml(tmp_path / "a" / "run.toml").dtype == expected and len(run.records) == 40


# One piece of work ahead.


def test_working_ahead_changes_no_number(tmp_path: Path) -> None:
    small_run(tmp_path / "plain")
    seen: list[str] = []

    def watched(job: object, progress: object, keys: object) -> object:
        for outcome in ahead(job, progress, keys):  # type: ignore[arg-type]
            seen.append(threading.current_thread().name)
            yield outcome

    small_run(tmp_path / "ahead", engine=watched)
    assert contents(tmp_path / "ahead") == contents(tmp_path / "plain")
    assert (
        seen
        and set(seen) == {threading.current_thread().name}
        and not [t for t in threading.enumerate() if t.name == "almakit-ahead"]
    )


def test_an_error_ahead_is_told_and_what_was_finished_is_kept(tmp_path: Path) -> None:
    class Tired(Net):
        def forward(self, x: Tensor) -> Tensor:
            answer = super().forward(x)
            return answer if self.passes < 60 else answer[:, :1]

    with pytest.raises(Exception, match="logit"):
        small_run(tmp_path / "a", model=Tired(), engine=ahead, preflight=False)
    assert contents(tmp_path / "a")["results"]
    assert not [thread for thread in threading.enumerate() if thread.name == "almakit-ahead"]


def test_work_ahead_ends_when_nobody_wants_it(tmp_path: Path) -> None:
    under_way, unwanted = threading.Event(), threading.Event()

    class Slow(Net):
        def forward(self, x: Tensor) -> Tensor:
            if self.passes > 900:  # in the third chunk
                under_way.set()
                unwanted.wait(60)
                time.sleep(0.02)
            return super().forward(x)

    def impatient(job: object, progress: object, keys: object) -> object:
        for count, outcome in enumerate(ahead(job, progress, keys)):  # type: ignore[arg-type]
            yield outcome
            if count == 1 and outcome.key.kind == "attack":
                assert under_way.wait(60), "nothing is done ahead"
                unwanted.set()
                raise KeyboardInterrupt

    model = Slow()
    with pytest.raises(KeyboardInterrupt):
        small_run(
            tmp_path / "a",
            model=model,
            attacks=[get("alma(distance=l2, steps=400)")],
            engine=impatient,
            preflight=False,
        )
    # Five chunks of 400 passes; two were wanted, and the third was left before its end.
    assert 900 < model.passes < 1150
    assert not [thread for thread in threading.enumerate() if thread.name == "almakit-ahead"]


def test_a_model_can_be_called_off() -> None:
    event = threading.Event()
    x = images(4)[0]
    for model in (Net(), lambda x: Net()(x)):
        event.clear()
        stopped = watched(model, stop_when(event))
        assert torch.equal(stopped(x), model(x))
        event.set()
        with pytest.raises(CalledOff):
            stopped(x)


def test_transfers_on_the_cpu_change_nothing() -> None:
    x = images(4)[0]
    cpu = torch.device("cpu")
    assert to_device(x, cpu) is x and to_device(x, cpu, torch.float64).dtype == torch.float64
    assert torch.equal(to_host(x), x)
