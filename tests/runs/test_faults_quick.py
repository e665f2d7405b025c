"""Twenty faults thrown at real runs (Ray's workers and nodes: slow tests of test_ray_engine.py): none lost, none wrong,
each with a sentence."""

from __future__ import annotations

import pytest
from runs.injections import FAULTS, Arena

TIMES = {"killed": 4, "sigterm": 3, "flipped": 2, "log": 2, "disk": 2}


@pytest.fixture(scope="module")
def arena(tmp_path_factory):
    return Arena(tmp_path_factory.mktemp("arena"), seed=7)


def test_there_are_enough_of_them():
    assert sum(TIMES.get(fault, 1) for fault in FAULTS) == 20


@pytest.mark.parametrize("fault", FAULTS)
def test_a_run_survives(arena, fault):
    for _ in range(TIMES.get(fault, 1)):
        injected = FAULTS[fault](arena)
        assert injected.survived, f"{injected.fault}: {injected.why}"
        assert injected.lost == 0


def test_the_judge_can_find_fault(arena):
    """A harness that forgives everything would prove nothing: a number changed behind the database's back is
    noticed."""
    import sqlite3

    out = arena.fresh()
    arena.run(out)
    with sqlite3.connect(out / "records.sqlite") as db:
        db.execute("UPDATE results SET measured = measured * 0.5 WHERE attack = 0 AND image = 5")
    db.close()
    from runs.injections import finished, wrong_rows

    from almakit import Run
    from almakit.runs.failures import Corrupt

    assert wrong_rows(out, arena.expected) == 1
    with pytest.raises(Corrupt, match="not the ones that were written"):
        Run(out).records  # noqa: B018
    injected = arena.judged("edited", out, finished(out), 0, "", (0,))
    assert not injected.survived and "1 wrong rows" in injected.why
    assert Run(out).table()
