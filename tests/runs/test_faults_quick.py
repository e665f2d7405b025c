"""Faults thrown at real runs (Ray's workers and nodes: slow tests of test_ray_engine.py): none lost, none wrong, each
with a sentence."""

from __future__ import annotations

import shutil
import signal
import sqlite3

import pytest
from runs.injections import FAULTS, Arena, finished, wrong_rows
from runs.small_runs import contents


@pytest.fixture(scope="module")
def arena(tmp_path_factory):
    return Arena(tmp_path_factory.mktemp("arena"), seed=7)


QUICK = ("killed", "sigterm", "disk", "read-only", "log")
"""What only a process of its own can show; the other faults and more of these are thrown every night."""


@pytest.mark.parametrize("fault", [*QUICK, *(pytest.param(f"{name} x 3", marks=pytest.mark.slow) for name in FAULTS)])
def test_a_run_survives(arena, fault):
    name, _, times = fault.partition(" x ")
    for _ in range(int(times or 1)):
        injected = FAULTS[name](arena)
        assert injected.survived, f"{injected.fault}: {injected.why}"
        assert injected.lost == 0


def test_a_kill_costs_no_more_than_the_chunk_in_flight(arena):
    out, passes = arena.fresh(), [arena.place / "whole-passes", arena.place / "killed-passes"]
    assert arena.run(arena.fresh(), PASSES=str(passes[0]))[0] == 0
    for moment in (2, 8):
        process, said = arena.start(out, PASSES=str(passes[1]), SLOW="0.01")
        arena.until(process, out, moment)
        before = finished(out)
        process.kill()
        assert arena.end(process, said)[0] == -signal.SIGKILL and before <= finished(out)
    assert arena.run(out, PASSES=str(passes[1]))[0] == 0
    assert contents(out) == arena.expected
    needed, used = (len(place.read_text().splitlines()) for place in passes)
    chunk, preflight = 12 + 4, 12  # preflight looks at the model each time
    assert needed < used <= needed + 2 * (chunk + preflight)


def test_the_judge_can_find_fault(arena):
    """A harness that forgives everything would prove nothing: a number changed behind the database's back is
    noticed."""
    out = arena.fresh()
    shutil.copytree(arena.place / "calm", out)
    with sqlite3.connect(out / "records.sqlite") as db:
        db.execute("UPDATE results SET measured = measured * 0.5 WHERE attack = 0 AND image = 5")
    db.close()
    assert wrong_rows(out, arena.expected) == 1
    injected = arena.judged("edited", out, finished(out), 0, "", (0,))
    assert not injected.survived and "1 wrong rows" in injected.why
