"""Operators and reads per query where reading from the device is expensive, frames to the model, and parameters: counts
that do not depend on the machine."""

from __future__ import annotations

import ast
import inspect
import traceback
from pathlib import Path

import pytest
import torch
from laws.models import RowWise
from torch import Tensor

import almakit
from almakit import attacks
from benchmarks.speed import launches

CORE = Path(inspect.getfile(almakit)).parent / "core"
# As measured; the network's own forward and backward take 33.
OPERATORS = {
    "ALMA l2": 133,
    "DDN": 98,
    "FMN l2": 131,
    "APGD linf": 150,
    "B&B l2": 206,
    "soft walk l2": 303,
    "soft walk linf": 314,
    "soft walk l1": 477,
}


@pytest.mark.parametrize("name", launches.TEXTS)
def test_operators_and_reads_of_a_query(name: str) -> None:
    operators, reads = launches.count(lambda steps: attacks.get(launches.TEXTS[name].format(steps)))
    assert operators <= OPERATORS[name] + 1 and reads <= 0.1


def test_operators_of_a_query_without_an_attack() -> None:
    operators, reads = launches.count(launches.Null)
    assert operators <= 60 and reads == 0


def test_the_counter_counts_operators_and_reads_and_no_views() -> None:
    x = torch.rand(3, 4)
    with launches.Launches() as counted:
        y = (x.flatten()[2:].view(5, 2) + 1).detach()
        bool((y > 0).all())
        y[y > 1]
    assert counted.operators["add"] == 1 and "view" not in counted.operators and "detach" not in counted.operators
    assert counted.reads["_local_scalar_dense"] == 1 and counted.reads["index"] == 1


def test_frames_from_the_call_to_the_model() -> None:
    network, stacks = RowWise((2, 3)).eval(), []

    def model(x: Tensor) -> Tensor:
        own = [frame.name for frame in traceback.extract_stack() if CORE.parent in Path(frame.filename).parents]
        stacks.append(own[own.index("attack") :])
        return network(x)

    x = torch.rand(4, 2, 3, generator=torch.Generator().manual_seed(0))
    almakit.attack(model, x, network(x).argmax(1), steps=30)
    assert len(stacks) >= 30 and max(map(len, stacks)) <= 7, max(stacks, key=len)


def parameters(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls")]


def test_no_function_of_the_core_has_more_than_eight_parameters() -> None:
    found = {
        f"{path.stem}.{node.name}": len(parameters(node))
        for path in CORE.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and len(parameters(node)) > 8
    }
    assert set(found) == {"attack.__call__"} and found["attack.__call__"] <= 5 + 14
