"""Runs that are killed or told to stop, as real processes: what they leave is never half of anything."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runs.small_runs import ATTACKS, contents, source_file

from almakit.cli.main import main

CHUNKS = 15  # five chunks: a clean pass and two attacks on each


def command(source: Path, out: Path) -> list[str]:
    flags = ["run", "--model", f"{source}:model", "--data", f"{source}:data", "--batch-size", "8", "--out", str(out)]
    return flags + [part for attack in ATTACKS for part in ("--attack", attack)]


def start(arguments: list[str], passes: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PASSES": str(passes), "SLOW": "0.01", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "almakit", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(out: Path) -> set[tuple[object, ...]]:
    """The chunks that are recorded at this moment."""
    if not (out / "records.sqlite").is_file():
        return set()
    try:
        db = sqlite3.connect(f"{(out / 'records.sqlite').as_uri()}?mode=ro", uri=True, timeout=5)
        try:
            return set(db.execute("SELECT kind, attack, chunk, sha256 FROM chunks"))
        finally:
            db.close()
    except sqlite3.OperationalError:
        return set()


def wait_for(process: subprocess.Popen[str], out: Path, chunks: int) -> None:
    deadline = time.monotonic() + 120
    while len(finished(out)) < chunks and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    source, passes = source_file(folder), folder / "passes"
    process = start(command(source, folder / "run"), passes)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    return source, contents(folder / "run"), len(passes.read_text().splitlines())


def test_killed_at_random_moments_the_records_are_the_same_in_the_end(whole, tmp_path):
    source, expected, passes_needed = whole
    chance, out, passes = random.Random(20), tmp_path / "run", tmp_path / "passes"
    kills = 0
    for moment in sorted(chance.sample(range(1, CHUNKS - 5), 3)):
        process = start(command(source, out), passes)
        wait_for(process, out, moment)
        time.sleep(chance.uniform(0, 0.15))
        before = finished(out)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        kills += process.returncode == -signal.SIGKILL
        assert before <= finished(out), "a finished chunk was lost"
    assert kills == 3
    process = start(command(source, out), passes)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert contents(out) == expected
    # Preflight looks at the model anew each time; beyond that a kill costs the chunk in flight and no more.
    chunk, preflight = 12 + 4, 12
    assert len(passes.read_text().splitlines()) <= passes_needed + kills * (chunk + preflight)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_told_to_stop_it_stops_cleanly_and_says_how_to_go_on(whole, tmp_path, number, capsys):
    source, expected, _ = whole
    out = tmp_path / "run"
    process = start(command(source, out), tmp_path / "passes")
    wait_for(process, out, 7)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "the same command goes on" in said and "Traceback" not in said
    done = finished(out)
    assert 7 <= len(done) < CHUNKS
    with sqlite3.connect(out / "records.sqlite") as db:
        assert db.execute("SELECT outcome FROM sessions").fetchall() == [
            (f"interrupted by {signal.Signals(number).name}",)
        ]
    db.close()
    assert main(command(source, out)) == 0
    assert contents(out) == expected and done <= finished(out)
    assert "ALMA 12" in capsys.readouterr().out
