"""Run folders made to harm whoever reads them, read by every verb in a process that is watched: nothing of them runs,
nothing is written outside."""

from __future__ import annotations

import json

import pytest
from fuzz.amount import outcome
from fuzz.test_fuzz_files import watched
from security.hostile_files import exploits, pack, program
from security.hostile_folders import cases, hostile

from almakit import evaluate


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_hostile_run_folders_execute_nothing_and_write_nothing_outside(every, tmp_path):
    mark, victim, good = tmp_path / "it-ran", tmp_path / "victim", tmp_path / "good-0"
    victim.mkdir()
    (victim / "secret").write_bytes(b"secret")
    pack(tmp_path / "evil.pt2", exploits(program(), mark)["a guard"])
    evaluate(
        "mnist/mlp-2x100",
        "mnist-demo",
        ["alma(distance=l2, steps=8)", "alma(distance=l1, steps=8)"],
        good,
        limit=4,
        batch_size=2,
        device="cpu",
    )
    made = {
        name: hostile(good, tmp_path / f"folder-{number}", changes)
        for number, (name, changes) in enumerate(cases(mark, victim).items())
        if number % every == 0
    }
    assert len(made) >= 40 // every
    before = {path: path.read_bytes() for path in victim.iterdir()}
    todo = [
        ("control", "control", str(victim.parent / "control")),
        *((name, "reader", str(path)) for name, path in made.items()),
    ]
    (_, _, _, noticed), *found = watched(tmp_path, todo, [("reader", str(good))])
    assert any("open" in act for act in noticed) and any(act.startswith("exec") for act in noticed), (
        "the watch sees nothing"
    )
    assert not mark.exists(), "a folder executed code"
    assert {path: path.read_bytes() for path in victim.iterdir()} == before, "something was written outside"
    wrong = {
        name: (ending, said, seen) for name, ending, said, seen in found if seen or ending not in ("result", "sentence")
    }
    assert not wrong, json.dumps(wrong, indent=1)
    for _, ending, _, _ in found:
        outcome("hostile run folders", ending)
