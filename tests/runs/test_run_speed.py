"""What a run decides for speed is recorded, and what it does beside the attack changes no number."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from runs.small_runs import images

from almakit.errors import BadInput
from almakit.runs.model import to_device, to_host
from almakit.runs.spec import RunSpec


def test_retired_settings_leave_the_hash_of_older_runs_alone() -> None:
    plain = RunSpec(model="m", data="d", attacks=("ddn",), batch_size=8)
    older = plain.to_toml() + 'layout = "contiguous"\naccelerate = "none"\n'
    assert RunSpec.from_text(older, "run.toml") == plain
    with pytest.raises(BadInput, match="dtype='bf16': choose"):
        replace(plain, dtype="bf16")


def test_transfers_on_the_cpu_change_nothing() -> None:
    x = images(4)[0]
    cpu = torch.device("cpu")
    assert to_device(x, cpu) is x and to_device(x, cpu, torch.float64).dtype == torch.float64
    assert torch.equal(to_host(x), x)
