"""Output that cannot be written, with real processes and pipes: the work is done all the same, and an unfinished run
never ends with 0."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from runs.small_runs import ATTACKS, contents, source_file

from almakit.cli.main import main
from almakit.runs.progress import Lines, for_terminal
from almakit.streams import Lasting

FULL = Path("/dev/full")
LEAVER = """
import sys

_calls = []


def leaver():
    inner = model()

    def answer(x):
        _calls.append(1)
        return sys.exit(0) if len(_calls) > 30 else inner(x)

    return answer
"""


def arguments(source: Path, out: Path, *attacks: str) -> list[str]:
    words = ["run", "--model", f"{source}:model", "--data", f"{source}:data", "--batch-size", "8", "--out", str(out)]
    return [*words, *(part for attack in attacks for part in ("--attack", attack))]


def command(source: Path, out: Path) -> str:
    """The run as a line of the shell."""
    return " ".join([f'"{sys.executable}" -m almakit', *(f"'{word}'" for word in arguments(source, out, *ATTACKS))])


def shell(line: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        ["bash", "-c", line], env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    source = source_file(folder)
    assert main(arguments(source, folder / "run", *ATTACKS)) == 0
    return source, contents(folder / "run")


WAYS = {
    "both into a pipe that is left after a line": ("{} 2>&1 | head -1; exit ${{PIPESTATUS[0]}}", 0),
    "both into a pipe that nobody reads": ("{} 2>&1 | true; exit ${{PIPESTATUS[0]}}", 0),
    "progress into a pipe that nobody reads": ("{} 2> >(true)", 0),
    "the table into a pipe that nobody reads": ("{} | true; exit ${{PIPESTATUS[0]}}", 0),
    "the summary into a pipe that is left": ("{} --json | head -c 10; exit ${{PIPESTATUS[0]}}", 0),
    "progress onto a full disk": ("{} 2>/dev/full", 0),
    "the table onto a full disk": ("{} >/dev/full", 1),
    "both onto a full disk": ("{} >/dev/full 2>&1", 1),
    "no standard error": ("{} 2>&-", 0),
    "no standard output": ("{} >&-", 0),
    "no output at all": ("{} >&- 2>&- <&-", 0),
}


EVERY_TIME = ("both into a pipe that is left after a line", "the table onto a full disk")


@pytest.mark.parametrize(
    "way", [way if way in EVERY_TIME else pytest.param(way, marks=pytest.mark.slow) for way in WAYS]
)
def test_the_run_is_finished_whatever_happens_to_its_output(way, whole, tmp_path):
    line, code = WAYS[way]
    if "/dev/full" in line and not FULL.exists():
        pytest.skip("this system has no /dev/full")
    source, expected = whole
    done = shell(line.format(command(source, tmp_path / "run")))
    assert done.returncode == code, (done.returncode, done.stderr)
    assert contents(tmp_path / "run") == expected and (tmp_path / "run" / "summary.json").is_file()
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    if way == "the table onto a full disk":
        assert "the output could not be written" in done.stderr and "the work itself is finished" in done.stderr


def test_code_that_exits_with_0_does_not_end_a_run_with_0(whole, tmp_path):
    source, _ = whole
    leaving = tmp_path / "leaving.py"
    leaving.write_text(source.read_text() + LEAVER)
    done = shell(command(leaving, tmp_path / "run").replace(":model", ":leaver"))
    assert done.returncode == 1 and "called exit(0) before the command had finished" in done.stderr
    with sqlite3.connect(tmp_path / "run" / "records.sqlite") as db:
        assert db.execute("SELECT outcome FROM sessions").fetchall() == [("SystemExit: 0",)]
    db.close()


def test_a_broken_pipe_of_the_work_itself_is_an_error(whole, tmp_path, capsys, monkeypatch):
    """Only the output may lose its reader: a pipe that breaks anywhere else leaves the work undone."""
    source, _ = whole
    from almakit.runs import session

    def broken(*_: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(session.Session, "_keep", broken)
    code = main(arguments(source, tmp_path / "run", ATTACKS[0]))
    assert code == 1 and "unexpected BrokenPipeError" in capsys.readouterr().err


def test_a_listing_cut_off_is_no_error():
    done = shell(f'"{sys.executable}" -m almakit ls data | head -1; exit ${{PIPESTATUS[0]}}')
    assert done.returncode == 0 and not done.stderr


class Breaking:
    """A stream that fails from its second write on."""

    encoding = "ascii"

    def __init__(self, error: Exception):
        self.error, self.lines = error, []

    def write(self, text: str) -> int:
        if self.lines:
            raise self.error
        self.lines.append(text)
        return len(text)

    def flush(self) -> None:
        pass


@pytest.mark.parametrize(
    "error",
    [
        BrokenPipeError(32, "Broken pipe"),
        OSError(28, "No space left on device"),
        ValueError("I/O operation on closed file"),
    ],
)
def test_lines_go_on_from_python_too(error):
    stream = Breaking(error)
    lines = Lines(stream, pause=0.0)
    lines.begin("stage", 0, 3)
    for _ in range(3):
        lines.advance(1)
    lines.note("a sentence")
    lines.end()
    assert len(stream.lines) == 1 and lines.stream.failure is not None
    assert (lines.stream.lost is not None) == (getattr(error, "errno", None) == 28)


def test_without_standard_error(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    show = for_terminal()
    show.begin("stage", 0, 1)
    show.advance(1)
    show.note("nothing")


def test_characters_the_stream_lacks_are_escaped(tmp_path):
    with (tmp_path / "log").open("w", encoding="ascii") as opened:
        lasting = Lasting(opened)
        lasting.write("caf\u00e9 \ud800\n")
        assert lasting.failure is None
    assert (tmp_path / "log").read_text(encoding="ascii") == "caf\\xe9 \\ud800\n"
