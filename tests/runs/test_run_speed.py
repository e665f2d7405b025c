"""What a run decides for speed is recorded, and what it does beside the attack changes no number."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_runs import Net, contents, images, small_run
from torch import Tensor

from almakit.attacks import get
from almakit.errors import BadInput
from almakit.runs.engines.local import ahead
from almakit.runs.failures import CalledOff
from almakit.runs.model import to_device, to_host
from almakit.runs.spec import RunSpec
from almakit.runs.watching import stop_when, watched


def test_retired_settings_leave_the_hash_of_older_runs_alone() -> None:
    plain = RunSpec(model="m", data="d", attacks=("ddn",), batch_size=8)
    older = plain.to_toml() + 'layout = "contiguous"\naccelerate = "none"\n'
    assert RunSpec.from_text(older, "run.toml") == plain
    with pytest.raises(BadInput, match="dtype='bf16': choose"):
        replace(plain, dtype="bf16")


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
