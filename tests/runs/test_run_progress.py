"""Progress: plain lines that are not too many, a bar where a person watches."""

from __future__ import annotations

import io

from runs.small_runs import ATTACKS, small_run

from almakit.runs.progress import Lines, duration, for_terminal


def test_lines_tell_stage_rate_and_result(tmp_path):
    stream = io.StringIO()
    small_run(tmp_path, progress=Lines(stream, pause=0.0))
    lines = stream.getvalue().splitlines()
    assert any(line.startswith("2 attacks: 8/80 results") and "left" in line for line in lines)
    assert any(f"[1/2] {ATTACKS[0]}: 100.0 % fooled" in line for line in lines)
    assert "2 attacks: 80/80 results" in lines[-1] and f"[2/2] {ATTACKS[1]}: " in lines[-1] and "% fooled" in lines[-1]


def test_lines_are_few(tmp_path):
    stream = io.StringIO()
    small_run(tmp_path, progress=Lines(stream, pause=1e9))
    assert sum("results/s" in line for line in stream.getvalue().splitlines()) == 1


def test_a_resumed_stage_counts_what_was_there():
    stream = io.StringIO()
    lines = Lines(stream, pause=0.0)
    lines.begin("stage", 24, 40)
    lines.advance(8)
    assert "32/40" in stream.getvalue()


def test_a_terminal_shows_one_line_that_ends(tmp_path):
    stream = io.StringIO()
    small_run(tmp_path, progress=Lines(stream, pause=0.0, bar=True))
    said = stream.getvalue()
    assert "\r[####################] 2 attacks: 80/80 results" in said and said.count("\n") == 2 and said.endswith("\n")
    silent = for_terminal()
    assert isinstance(silent, Lines) and not silent.bar, "nobody watches a test"


def test_durations():
    assert (duration(75), duration(3675.2), duration(0)) == ("1:15", "1:01:15", "0:00")
