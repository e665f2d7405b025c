"""Operators and reads per query where reading from the device is expensive, frames to the model, and parameters: counts
that do not depend on the machine."""

from __future__ import annotations

import pytest
import torch

from almakit import attacks
from benchmarks import size
from benchmarks.speed import launches

# As measured; the network's own forward and backward take 33.
OPERATORS = {
    "ALMA l2": 129,
    "DDN": 102,
    "FMN l2": 135,
    "APGD linf": 105,
    "B&B l2": 187,
    "soft walk l2": 225,
    "soft walk linf": 226,
    "soft walk l1": 314,
}


@pytest.mark.parametrize("name", launches.TEXTS)
def test_operators_and_reads_of_a_query(name: str) -> None:
    operators, reads = launches.count(lambda steps: attacks.get(launches.TEXTS[name].format(steps)))
    assert operators <= OPERATORS[name] + 1 and reads <= 0.1


def test_operators_of_a_query_without_an_attack() -> None:
    operators, reads = launches.count(launches.Null)
    assert operators <= 66 and reads == 0


def test_the_counter_counts_operators_and_reads_and_no_views() -> None:
    x = torch.rand(3, 4)
    with launches.Launches() as counted:
        y = (x.flatten()[2:].view(5, 2) + 1).detach()
        bool((y > 0).all())
        y[y > 1]
    assert counted.operators["add"] == 1 and "view" not in counted.operators and "detach" not in counted.operators
    assert counted.reads["_local_scalar_dense"] == 1 and counted.reads["index"] == 1


def test_frames_from_the_call_to_the_model() -> None:
    assert len(stack := size.frames()) <= 7, stack


def test_no_function_has_more_than_eight_parameters() -> None:
    assert {name for name, _ in size.long_signatures()} <= {"models/preflight.py preflight", "runs/verdict.py judge"}
