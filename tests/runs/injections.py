"""Faults thrown at real runs: each returns what became of the run. Used by a quick test and, in their hundreds, by
benchmarks/faults/injected.py.

Runs are real processes that carry out `almakit run`, forked from a server that has torch in memory already, so that one
takes a second. After each fault four things are asked: is every number that a reader now finds one of the undisturbed
run's, is every chunk that was finished still there, was the user told in a sentence, and does the same command end with
the undisturbed run's numbers, bit for bit.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runs.small_runs import ATTACKS, SOURCE, contents

from almakit import Run
from almakit.runs.failures import Corrupt
from almakit.runs.model import open_model
from almakit.runs.verify import verify_run

FRAGILE = (
    SOURCE
    + r'''

class Fragile(Net):
    """Breaks at the pass that BREAK names, as in raises:20; healthy without it."""

    def __init__(self):
        super().__init__()
        self.passes = 0

    def forward(self, x):
        self.passes += 1
        logits = super().forward(x)
        what, _, when = os.environ.get("BREAK", "").partition(":")
        if not when or self.passes != int(when):
            return logits
        if what == "raises":
            raise RuntimeError("the model broke")
        if what == "nan":
            return logits * float("nan")
        if what == "memory":
            raise torch.OutOfMemoryError("CUDA out of memory (as it were)")
        found = (logits[:, :, None], logits[:-1], logits[:, :1], {"logits": logits}, logits[0], logits[:, :3])
        return found[self.passes % 6]


def fragile():
    return Fragile()
'''
)
PRELOADED = ("attacks.alma", "cli.run", "runs.executors", "runs.session", "report.run", "goals.scores")
CHUNKS = 15  # five chunks of eight images: a clean pass and two attacks on each


@dataclass(frozen=True)
class Injected:
    """What became of a run: ``lost`` finished chunks that are gone (a damaged one not counted), ``why`` it did not
    survive, where it did not."""

    fault: str
    lost: int
    said: str
    why: str = ""

    @property
    def survived(self) -> bool:
        return not self.why


class Arena:
    """A place for disturbed runs, with the undisturbed one beside it."""

    def __init__(self, place: Path, seed: int = 0):
        self.place, self.random, self.count = place, random.Random(seed), 0
        place.mkdir(parents=True, exist_ok=True)
        self.source = place / "fragile.py"
        self.source.write_text(FRAGILE)
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload([f"almakit.{module}" for module in PRELOADED])
        code, said = self.run(place / "calm")
        assert code == 0, said
        self.expected = contents(place / "calm")

    # Runs.

    def command(self, out: Path) -> list[str]:
        flags = (
            f"run --model {self.source}:fragile --data {self.source}:data --batch-size 8 --out {out} --quiet".split()
        )
        return flags + [part for attack in ATTACKS for part in ("--attack", attack)]

    def start(self, out: Path, harm: tuple[Any, ...] = (), **environment: str) -> tuple[Any, Path]:
        """A run under way and the file it writes its words to."""
        self.count += 1
        said = self.place / f"said-{self.count}.txt"
        said.touch()
        process = self.context.Process(target=carry_out, args=(self.command(out), environment, said, harm))
        process.start()
        return process, said

    def run(self, out: Path, harm: tuple[Any, ...] = (), **environment: str) -> tuple[int, str]:
        """A run to its end: exit code and words. A run that does not end is a fault of ours."""
        return self.end(*self.start(out, harm, **environment))

    def end(self, process: Any, said: Path) -> tuple[int, str]:
        process.join(120)
        if process.is_alive():
            process.kill()
            process.join()
            return -999, "it hung"
        return process.exitcode, said.read_text(errors="replace")

    def fresh(self) -> Path:
        self.count += 1
        return self.place / f"run-{self.count}"

    def until(self, process: Any, out: Path, chunks: int) -> None:
        """Waits until so many chunks are stored, or the process has ended."""
        deadline = time.monotonic() + 60
        while len(finished(out)) < chunks and process.is_alive() and time.monotonic() < deadline:
            time.sleep(0.005)

    # Judgement.

    def judged(
        self, fault: str, out: Path, before: Any, code: int, said: str, codes: Any, words: str = "", harmed: int = 0
    ) -> Injected:
        """Looks at what a fault left behind and resumes; ``harmed``: so many chunks the fault itself destroyed."""
        wrong = wrong_rows(out, self.expected)
        lost = max(0, len(before - finished(out)) - harmed)
        again, told = self.run(out)
        doubts = {
            f"exit code {code}: {said[-300:]}": code not in codes,
            "a traceback": "Traceback" in said,
            f"nothing about {words!r} was said: {said[-300:]}": words not in said,
            f"{wrong} wrong rows could be read": wrong,
            f"{lost} finished chunks were lost": lost,
            f"the resume ended with {again}: {told[-300:]}": again != 0,
            "the numbers differ in the end": again == 0 and contents(out) != self.expected,
        }
        why = next((reason for reason, doubt in doubts.items() if doubt), "")
        return Injected(fault, lost, said.strip().splitlines()[-1] if said.strip() else "", why)

    # Faults.

    def killed(self) -> Injected:
        """SIGKILL at a random moment."""
        out = self.fresh()
        process, said = self.start(out, SLOW="0.003")
        self.until(process, out, self.random.randint(0, CHUNKS - 4))
        time.sleep(self.random.uniform(0, 0.1))
        before = finished(out)
        process.kill()
        code, words = self.end(process, said)
        return self.judged("process killed", out, before, code, words, (-signal.SIGKILL,))

    def told(self, number: signal.Signals = signal.SIGTERM) -> Injected:
        """SIGTERM or SIGINT at a random moment."""
        out = self.fresh()
        process, said = self.start(out, SLOW="0.003")
        self.until(process, out, self.random.randint(1, CHUNKS - 4))
        time.sleep(self.random.uniform(0, 0.05))
        before = finished(out)
        os.kill(process.pid, number)
        code, words = self.end(process, said)
        assert _rows(out, "SELECT outcome FROM sessions")[-1:] == [(f"interrupted by {number.name}",)]
        return self.judged(number.name, out, before, code, words, (130,), "Re-run the same command to resume.")

    def interrupted(self) -> Injected:
        return self.told(signal.SIGINT)

    def full_disk(self, most: int = 250) -> Injected:
        """A disk that fills up: a small one where it can be mounted, else a limit on the size of files. ``most``:
        kilobytes it may have."""
        out, size = self.fresh(), self.random.randint(90, most)
        out.mkdir()
        mount = f"mount -t tmpfs -o size={size}k none {out}".split()
        mounted = subprocess.run(mount, capture_output=True).returncode == 0
        try:
            code, said = self.run(out, () if mounted else ("file size", 1000 * self.random.randint(40, 75)))
            if code == 0 and mounted and size > 160:  # the whole run fitted: no fault was injected
                return self.full_disk(size - 1)
            before = finished(out)
            if mounted:
                subprocess.run(["mount", "-o", "remount,size=8m", str(out)], check=True)
            return self.judged("disk full", out, before, code, said, (1,), "same command resumes")
        finally:
            if mounted:
                subprocess.run(["umount", "-l", str(out)], check=True)

    def read_only(self) -> Injected:
        """The folder becomes read-only in the middle of a run by an ordinary user."""
        out = self.fresh()
        out.mkdir()
        process, said = self.start(out, ("permissions",), SLOW="0.003")
        self.until(process, out, self.random.randint(1, CHUNKS - 5))
        before = finished(out)
        folders = [out, *(path for path in out.rglob("*") if path.is_dir())]
        for folder in folders:
            folder.chmod(0o555)
        code, words = self.end(process, said)
        for folder in folders:
            folder.chmod(0o755)
        return self.judged("folder read-only", out, before, code, words, (1,), "same command resumes")

    def flipped(self) -> Injected:
        """Bytes of a stored chunk change after the run; readers refuse it, a resume computes it again."""
        out = self.fresh()
        shutil.copytree(self.place / "calm", out)
        file = self.random.choice(sorted(out.rglob("*.safetensors")))
        content = bytearray(file.read_bytes())
        for _ in range(self.random.randint(1, 3)):
            place = self.random.randrange(len(content))
            content[place] = (content[place] + self.random.randint(1, 255)) % 256
        file.write_bytes(content)
        before = finished(out)
        said = "nothing was noticed"
        try:
            run = Run(out)
            run.originals()
            run.adversarials([record for record in run.records if record.slot is not None])
        except Corrupt as error:
            said = str(error)
        return self.judged("bytes of a chunk flipped", out, before, 0, said, (0,), "recomputes this chunk")

    def torn_log(self) -> Injected:
        """The process is killed and the database's write-ahead log cut off at a random place."""
        out = self.fresh()
        process, said = self.start(out, SLOW="0.003")
        self.until(process, out, self.random.randint(1, CHUNKS - 3))
        process.kill()
        code, words = self.end(process, said)
        before = finished(out)
        log = out / "records.sqlite-wal"
        if log.is_file():
            (out / "records.sqlite-shm").unlink(missing_ok=True)
            os.truncate(log, self.random.randint(0, log.stat().st_size))
        # A chunk whose transaction is still in the log, because somebody was reading, is in flight: the fault itself
        # destroys it.
        return self.judged("write-ahead log truncated", out, before, code, words, (-signal.SIGKILL,), harmed=1)

    def clock(self) -> Injected:
        """The clock goes back by hours or years in the middle of the run, for the process and for the files it has
        written."""
        out = self.fresh()
        process, said = self.start(out, ("clock", self.random.choice((3600.0, 86400.0, 3e8))), SLOW="0.002")
        self.until(process, out, self.random.randint(1, CHUNKS - 5))
        for file in out.rglob("*.safetensors"):
            os.utime(file, (0, self.random.choice((0, 4_000_000_000))))
        code, words = self.end(process, said)
        return self.judged("clock set back", out, finished(out), code, words, (0,))

    def breaking(self, what: str, words: str) -> Injected:
        """The model breaks at a random pass and is healthy when the run is resumed."""
        out = self.fresh()
        process, said = self.start(out, SLOW="0.001", BREAK=f"{what}:{self.random.randint(1, 120)}")
        code, told = self.end(process, said)
        # A pass of preflight's may go unnoticed: nothing of it is stored, and the numbers must be right all the same.
        return self.judged(f"model {what}", out, finished(out), code, told, (0, 1, 3), words if code else "")

    def raises(self) -> Injected:
        return self.breaking("raises", "the model broke")

    def wrong_shape(self) -> Injected:
        return self.breaking("shape", "model")

    def harmless(self, what: str) -> Injected:
        """NaN logits or no memory at a random pass: the run ends, and what it claims to have found holds for the
        healthy model."""
        out = self.fresh()
        code, said = self.run(out, BREAK=f"{what}:{self.random.randint(25, 120)}")
        again, told = self.run(out)
        stored = (out / "records.sqlite").is_file()
        doubts = {
            f"exit code {code}: {said[-300:]}": code not in (0, 3, 4),
            "a traceback": "Traceback" in said,
            f"the resume ended with {again}: {told[-300:]}": again not in (0, 4),
            "nothing was stored": not stored,
        }
        why = next((reason for reason, doubt in doubts.items() if doubt), "")
        why = why or unverified(out, f"{self.source}:fragile")
        return Injected(f"model {what}", 0, said.strip().splitlines()[-1] if said.strip() else "", why)

    def not_a_number(self) -> Injected:
        return self.harmless("nan")

    def no_memory(self) -> Injected:
        return self.harmless("memory")


FAULTS: dict[str, Callable[[Arena], Injected]] = {
    **{"killed": Arena.killed, "sigterm": Arena.told, "sigint": Arena.interrupted, "disk": Arena.full_disk},
    **{"read-only": Arena.read_only, "flipped": Arena.flipped, "log": Arena.torn_log, "clock": Arena.clock},
    **{"raises": Arena.raises, "shape": Arena.wrong_shape, "nan": Arena.not_a_number, "memory": Arena.no_memory},
}


def finished(out: Path) -> set[tuple[object, ...]]:
    """The chunks that are recorded at this moment, with the hashes of their files, as another process sees them."""
    return set(_rows(out, "SELECT kind, attack, chunk, round, sha256 FROM chunks"))


def wrong_rows(out: Path, expected: dict[str, list[tuple[object, ...]]]) -> int:
    """How many results of finished chunks are not the undisturbed run's."""
    query = """SELECT r.* FROM results r JOIN images i ON i.image = r.image
               JOIN chunks c ON c.kind = 'attack' AND c.attack = r.attack AND c.chunk = i.chunk AND c.round = r.round"""
    return len(set(_rows(out, query)) - set(expected["results"]))


def _rows(out: Path, query: str) -> list[tuple[object, ...]]:
    if not (out / "records.sqlite").is_file():
        return []
    try:
        db = sqlite3.connect(f"{(out / 'records.sqlite').resolve().as_uri()}?mode=ro", uri=True, timeout=10)
        try:
            return db.execute(query).fetchall()
        finally:
            db.close()
    except sqlite3.OperationalError:
        return []


def unverified(out: Path, model: str) -> str:
    """Why a stored success is none for the healthy model, or nothing."""
    run = Run(out)
    for found in verify_run(run, open_model(model, run.spec)):
        believed = sum(record.claimed and record.fooled for record in run.records_of(found.attack))
        if found.confirmed < believed or found.misreported:
            return f"{found.attack}: {found.confirmed} of {believed} hold, {found.misreported} distances are wrong"
    return ""


def carry_out(arguments: list[str], environment: dict[str, str], said: Path, harm: tuple[Any, ...]) -> None:
    """The child's life: almakit's command line with its words in a file, after the harm that must come from inside."""
    import torch

    from almakit.cli.main import main

    torch.set_num_threads(1)
    os.environ.update(environment)
    words = os.open(said, os.O_WRONLY | os.O_APPEND)
    os.dup2(words, 1)
    os.dup2(words, 2)
    if harm[:1] == ("file size",):
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (harm[1], harm[1]))
    elif harm[:1] == ("clock",):
        _turn_back(harm[1])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with obeying_permissions() if harm[:1] == ("permissions",) else nullcontext():
        os._exit(_flushed(main(arguments)))


def _flushed(code: int) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    return code


@contextmanager
def obeying_permissions() -> Iterator[None]:
    """Without root's right to write to read-only folders (Linux: CAP_DAC_OVERRIDE). The user stays the same, so the
    process can read the code wherever it lies."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    version_3, dac_override = 0x20080522, 1 << 1
    header, sets = (ctypes.c_uint32 * 2)(version_3, 0), (ctypes.c_uint32 * 6)()

    def switch(effective: int) -> None:
        sets[0] = effective
        if libc.capset(header, sets):
            raise OSError(ctypes.get_errno(), "capset")

    if libc.capget(header, sets):
        raise OSError(ctypes.get_errno(), "capget")
    before = sets[0]
    switch(before & ~dac_override)
    try:
        yield
    finally:
        switch(before)


def _turn_back(seconds: float) -> None:
    """From the tenth question on, the clock of this process is ``seconds`` behind."""
    import datetime

    from almakit.runs.store import database as store

    asked = [0]
    true_time = time.time

    def shifted() -> float:
        asked[0] += 1
        return true_time() - (seconds if asked[0] > 10 else 0.0)

    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.datetime.fromtimestamp(shifted(), tz)

    time.time = shifted
    time.time_ns = lambda: int(shifted() * 1e9)
    store.datetime = Clock  # type: ignore[misc]
    asked[0] = 9
