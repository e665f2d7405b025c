"""Worker processes beside a run: the numbers of one process bit for bit, and nothing lost when a process, a chunk or
the whole run dies."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from runs.small_runs import ATTACKS, SOURCE, Net, images
from runs.small_runs import contents as contents_of

from almakit import Run, evaluate
from almakit.cli.main import main
from almakit.errors import BadInput
from almakit.runs import environment, executors, session
from almakit.runs.progress import Progress

MAPS = """
import torch

def model():
    torch.manual_seed(0)
    return torch.nn.Conv2d(3, 4, 1)

def data():
    x = (torch.rand(20, 3, 4, 4, generator=torch.Generator().manual_seed(1)) * 255).round() / 255
    with torch.no_grad():
        maps = model()(x).argmax(1)
    maps[:, 0] = 255
    return x, maps
"""
ATTACK = """
import os
from pathlib import Path

HERE = Path(__file__).parent


def attack(model, x, y):
    # ``parent`` holds the number of the process that began the run.
    helper = os.getpid() != int((HERE / "parent").read_text())
    chunk = next((name for name in ("once", "always", "raise") if (HERE / name).is_file()), "")
    if chunk == "once" and helper:
        (HERE / "once").unlink()
        os._exit(7)
    if chunk == "always" and helper and float(x[0, 0, 0, 0]) == float((HERE / "always").read_text()):
        os._exit(7)
    if chunk == "raise" and helper:
        raise ValueError("this attack does not like these images")
    return 1 - x
"""


class Notes(Progress):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "small.py").write_text(SOURCE)
    (tmp_path / "own.py").write_text(ATTACK)
    (tmp_path / "parent").write_text(str(os.getpid()))
    return tmp_path


def contents(found: Run) -> dict[str, list[tuple[object, ...]]]:
    return contents_of(found.folder)


def run(files: Path, name: str, attacks: list[str] = ATTACKS, workers: int | str | None = None, **settings: Any) -> Run:
    data = settings.pop("data", f"{files / 'small.py'}:data")
    settings = {"batch_size": 4, "workers": workers, **settings}
    return evaluate(f"{files / 'small.py'}:model", data, attacks, files / name, **settings)


def test_auto_shares_the_chunks_of_a_small_model_if_there_are_enough(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten chunks: two processes of four chunks or more each."""
    started: list[int] = []

    class Counted(executors.Processes):
        def __init__(self, workers: int):
            started.append(workers)
            super().__init__(workers)

    monkeypatch.setattr(session, "Processes", Counted)
    monkeypatch.setattr(session, "cores", lambda: 8)
    monkeypatch.setattr(session, "CHUNKS_EACH", 6)
    alone = contents(run(files, "alone", workers="auto"))
    assert not started, "too few chunks for a second process"
    monkeypatch.setattr(session, "CHUNKS_EACH", 4)
    assert contents(run(files, "auto", workers="auto")) == alone and started == [2]
    monkeypatch.setattr(session, "SMALL_WEIGHTS", 10)
    run(files, "large", workers="auto")
    assert started == [2], "threads inside the layers are faster"


GOALS = """
import torch

def model():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 2))
    return lambda x: {"value": net(x), "sure": net(x)[:, 0]}

def other():
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 2))
    return lambda x: {"value": net(x), "sure": net(x)[:, 0]}

def data():
    x = torch.rand(20, 3, 2, 2, generator=torch.Generator().manual_seed(1))
    return x, torch.stack([model()(x)["value"][:, 0], torch.arange(20) / 20], 1).detach()
"""


TABLE = """
import torch
from pathlib import Path

def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
"""
ROWS = "\n".join(["a,b,c,y", *(f"{row},{row % 3},{10 - row},{row % 2}" for row in range(11))])


@pytest.mark.parametrize(
    ("source", "attacks", "settings"),
    [
        (SOURCE, ATTACKS, {"stop_within": {"l2": 0.3}}),
        (SOURCE, ["almakit:standard-v1(distance=linf, epsilon=0.06)"], {"limit": 4, "batch_size": 2}),
        (MAPS, ["ddn(steps=5)"], {"goal": "pixels(share=0.9)"}),
        (GOALS, ["ddn(steps=5)"], {"goal": "regression(by=0.3, output=value)", "surrogate": "{folder}/small.py:other"}),
        (TABLE, ["ddn(steps=5)"], {"data": "table:{folder}/rows.csv?label=y&integer=b"}),
    ],
    ids=["classes", "standard", "maps", "goal and surrogate", "table"],
)
def test_two_processes_store_what_one_stores(
    files: Path, source: str, attacks: list[str], settings: dict[str, Any]
) -> None:
    (files / "small.py").write_text(source)
    (files / "rows.csv").write_text(ROWS)
    given = {key: part.format(folder=files) if isinstance(part, str) else part for key, part in settings.items()}
    shared, alone = (run(files, str(count), attacks, count, preflight=False, **given) for count in (2, 1))
    assert contents(shared) == contents(alone) and len(shared.records) == len(attacks) * len(shared.images)
    assert (shared.records[0].surrogate_forwards is None) == ("surrogate" not in settings)
    assert all((record.pixels is None) == (source != MAPS) for record in shared.records)


def test_a_worker_that_dies_is_replaced_and_its_chunk_tried_again(files: Path) -> None:
    (files / "once").touch()
    notes = Notes()
    found = run(files, "run", [f"{files / 'own.py'}:attack"], workers=2, progress=notes)
    assert len(found.records) == 40 and not found.failures
    (said,) = [note for note in notes.notes if "worker process ended" in note]
    assert "exit code 7" in said and "It is tried again." in said
    assert contents(found) == contents(run(files, "one", [f"{files / 'own.py'}:attack"], workers=1))


def test_a_chunk_under_which_every_worker_dies_is_given_up_and_the_rest_is_done(files: Path) -> None:
    (files / "always").write_text(repr(float(images()[0][8, 0, 0, 0])))  # of the third chunk
    found = run(files, "run", [f"{files / 'own.py'}:attack"], workers=2)
    (failure,) = found.failures
    assert failure.tries == 3 and "the worker process ended under it (exit code 7)" in failure.reason
    assert failure.key.chunk == 2 and len(found.records) == 36
    (files / "always").unlink()
    assert len(run(files, "run", [f"{files / 'own.py'}:attack"]).records) == 40, "the same call tries them again"


def test_an_error_in_a_worker_ends_the_run_as_one_in_this_process_does(files: Path) -> None:
    (files / "raise").touch()
    with pytest.raises(Exception, match="this attack does not like these images"):
        run(files, "run", [f"{files / 'own.py'}:attack"], workers=2)
    (files / "raise").unlink()
    assert len(run(files, "run", [f"{files / 'own.py'}:attack"]).records) == 40


def test_a_model_that_changes_on_disk_is_noticed_by_the_worker(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = executors.Processes.__init__

    def changed(engine: executors.Processes, workers: int) -> None:
        (files / "small.py").write_text(SOURCE.replace("* 0.25", "* 0.5"))
        begin(engine, workers)

    monkeypatch.setattr(executors.Processes, "__init__", changed)
    with pytest.raises(Exception, match="changed while the run was going on"):
        run(files, "run", workers=2)


def test_what_only_python_has_stays_in_one_process_and_says_so(files: Path) -> None:
    def alone(model: Any, attacks: list[Any]) -> list[str]:
        notes = Notes()
        found = evaluate(model, images(8), attacks, batch_size=4, workers=2, progress=notes)
        assert len(found.records) == 8
        return [note for note in notes.notes if "stays in one process" in note]

    from almakit import ALMA

    (said,) = alone(Net(), ATTACKS[:1])
    assert "its model was given in Python" in said
    (said,) = alone(
        f"{files / 'small.py'}:model", [ALMA(distance=lambda x, y: (x - y).flatten(1).norm(dim=1), steps=4)]
    )
    assert "an attack was given in Python" in said


def test_worker_counts_that_make_no_sense_are_refused(files: Path) -> None:
    for wrong in (0, -1, True, "many"):
        with pytest.raises(BadInput, match="give a whole number, at least 1, or auto"):
            run(files, "run", workers=wrong)
    assert main(["run", "--model", "mnist/smallcnn-tiny", "--data", "mnist-demo", "--workers", "0"]) == 2


def begun(files: Path, out: Path) -> tuple[subprocess.Popen[bytes], list[int]]:
    """A slow run in a process of its own, once its workers are there and some chunks are stored; their numbers."""
    source = files / "small.py"
    flags = (
        f"run --batch-size 4 --device cpu --quiet --workers 2 --model {source}:model --data {source}:data --out {out}"
    )
    command = [sys.executable, "-m", "almakit", *flags.split(), "--attack", ATTACKS[0], "--attack", ATTACKS[1]]
    process = subprocess.Popen(
        command, env={**os.environ, "SLOW": "0.1"}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    helpers: list[int] = []
    while not helpers or len(list(out.glob("adversarials/*/*.safetensors"))) < 3:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        servers = [number for number in _children(process.pid) if b"forkserver" in _command(number)]
        helpers = [helper for server in servers for helper in _children(server)]
        time.sleep(0.05)
    return process, helpers


def _children(number: int) -> list[int]:
    """Of every thread of a process."""
    try:
        return [
            int(child)
            for thread in Path(f"/proc/{number}/task").iterdir()
            for child in (thread / "children").read_text().split()
        ]
    except OSError:  # a thread that ended meanwhile
        return []


def _command(number: int) -> bytes:
    try:
        return Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes in /proc")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -9), pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow)]
)
def test_a_run_that_is_killed_leaves_no_worker_behind_and_goes_on_with_any_number(
    files: Path, number: int, code: int
) -> None:
    process, helpers = begun(files, files / "killed")
    process.send_signal(number)
    assert process.wait(60) == code
    while any(b"forkserver" in _command(helper) for helper in helpers):
        time.sleep(0.05)
    # A file that was written last may not have been recorded: it is then written again with the same bytes.
    recorded = [files / "killed" / row.file for row in Run(files / "killed").chunks if row.file and row.key.attack >= 0]
    before = {path: path.stat().st_mtime_ns for path in recorded}
    again = run(files, "killed", workers=1, device="cpu")
    stored = {path: path.stat().st_mtime_ns for path in before}
    assert len(before) >= 2 and stored == before, "something finished was done again"
    assert contents(again) == contents(run(files, "whole", workers=1, device="cpu"))


def test_only_the_program_keeps_its_memory(files: Path) -> None:
    """A verb called from Python leaves the allocator alone; the program does not, unless its environment sets it."""
    source = f"--model {files}/small.py:model --data {files}/small.py:data"
    arguments = f"run {source} --limit 2 --attack alma(steps=12) --quiet".split()
    assert main([*arguments, "--out", str(files / "a")]) == 0 and not environment.keeps_memory()
    program = """
import os, sys
from almakit.cli.main import main
from almakit.runs import environment
for name in ("MALLOC_MMAP_MAX_", "NOTHING"):
    os.environ[name] = "65536"
    sys.argv[1:] = [*arguments, "--out", folder + name]
    assert main() == 0
    print(environment.keeps_memory())
    del os.environ[name]
"""
    code = f"arguments, folder = {arguments!r}, {str(files / 'b')!r}\n{program}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.split()[-1] == str(platform.libc_ver()[0] == "glibc"), done.stderr
    assert "False" in done.stdout.split()
