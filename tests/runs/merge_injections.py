"""Merges killed at a step of their own: a file opened to be written, renamed or removed, a statement that changes the
database.

The target is then as it was, or all is in it.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import sys
from pathlib import Path

from runs.injections import Injected
from runs.small_runs import contents, small_run

from almakit import Run
from almakit.runs.failures import StoreError
from almakit.runs.merge import merge

EVENTS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "shutil.rmtree", "sqlite3.connect")
SMALL = {"attacks": ["alma(distance=l2, steps=6)"], "batch_size": 8}
WAYS = ("in place", "new folder", "more shards")
"""Shards that share a folder; shards with folders of their own into a new one; and into one that holds a part of the
run already."""


def until(step: int, sources: list[Path], out: Path | None, told: Path) -> None:
    """The child's life: the merge up to the ``step``-th thing it does; the number of things is ``told`` where it
    ends."""
    done, watched = [0], [True]

    def tick(*_: object) -> None:
        done[0] += watched[0]
        if watched[0] and done[0] == step:
            os.kill(os.getpid(), signal.SIGKILL)

    connect = sqlite3.connect

    def traced(*arguments: object, **settings: object) -> sqlite3.Connection:
        db = connect(*arguments, **settings)  # type: ignore[arg-type, call-overload]
        last = [""]

        def statement(text: str) -> None:
            begins = text.split("(")[0][:24]  # the rows of one table are one step
            if not begins.startswith("SELECT") and "table_info" not in text and begins != last[0]:
                last[0] = begins
                tick()

        db.set_trace_callback(statement)
        return db  # type: ignore[no-any-return]

    sqlite3.connect = traced  # type: ignore[assignment]
    writes = lambda event, what: event != "open" or int(what[2]) & (os.O_WRONLY | os.O_RDWR)  # noqa: E731
    sys.addaudithook(lambda event, what: tick() if event in EVENTS and writes(event, what) else None)
    merge(sources, out)
    watched[0] = False
    told.write_text(str(done[0]))


class MergeArena:
    """Two shards in every position, what they make together, and merges of copies of them that are killed."""

    def __init__(self, place: Path, seed: int = 0):
        self.place, self.random, self.count = place, random.Random(seed), 0
        place.mkdir(parents=True, exist_ok=True)
        self.context = multiprocessing.get_context("fork")
        for number in (0, 1):
            small_run(place / "shared", shard=(number, 2), **SMALL)
            small_run(place / f"shard{number}", shard=(number, 2), **SMALL)
        merge([place / "shard0"], place / "part")
        self.expected = contents(small_run(place / "whole", **SMALL).folder)

    def prepared(self, way: str) -> tuple[list[Path], Path | None, Path]:
        """(sources, out, target) of a merge that is about to begin."""
        self.count += 1
        target = self.place / f"target-{self.count}"
        if way == "in place":
            shutil.copytree(self.place / "shared", target)
            return [target], None, target
        if way == "more shards":
            shutil.copytree(self.place / "part", target)
            return [self.place / "shard1"], target, target
        return [self.place / "shard0", self.place / "shard1"], target, target

    def steps(self, way: str) -> int:
        """How many things such a merge does."""
        sources, out, target = self.prepared(way)
        told = self.place / "told"
        self._child(0, sources, out, told)
        shutil.rmtree(target)
        return int(told.read_text())

    def killed(self, way: str, step: int) -> Injected:
        sources, out, target = self.prepared(way)
        before = _files(target)
        rows = contents(target) if (target / "records.sqlite").is_file() else None
        code = self._child(step, sources, out, self.place / "told")
        why = "" if code == -signal.SIGKILL else f"it was not killed but ended with {code}"
        why = why or self._wrong(target, before, rows)
        merge(sources, out)
        left = [path.name for path in (*target.rglob(".*"), *self.place.glob(f".{target.name}*"))]
        why = why or ("the same command did not finish it" if contents(target) != self.expected else "")
        why = why or (f"{left} are left" if left else "")
        shutil.rmtree(target)
        return Injected("merge killed", 0, "", why and f"{way}, step {step}: {why}")

    def one(self) -> Injected:
        """A merge killed at a random step."""
        way = self.random.choice(WAYS)
        return self.killed(way, self.random.randint(1, self.steps(way)))

    def _wrong(self, target: Path, before: dict[Path, bytes], rows: object) -> str:
        """Why the target is neither as it was nor fully merged."""
        if not before:
            begun = (target / "records.sqlite").is_file()
            whole = not begun or (contents(target) == self.expected and len(Run(target).records) == 40)
            return "" if whole else "a new folder is there and not whole"
        kept = {path: content for path, content in before.items() if path.suffix not in (".sqlite", ".lock")}
        changed = [path.name for path, content in kept.items() if not path.is_file() or path.read_bytes() != content]
        if changed:
            return f"{changed} were changed"
        if not (target / "records.sqlite").is_file():
            try:
                Run(target)
            except StoreError as error:
                return "" if rows is None and "not joined yet" in str(error) else f"the records are gone: {error}"
        found = contents(target)
        if found not in (rows, self.expected):
            return "the rows are neither the old nor the merged ones"
        run = Run(target)
        run.originals()
        run.adversarials([record for record in run.records if record.slot is not None])
        return ""

    def _child(self, step: int, sources: list[Path], out: Path | None, told: Path) -> int | None:
        process = self.context.Process(target=until, args=(step, sources, out, told))
        process.start()
        process.join(60)
        return process.exitcode


def _files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} if folder.exists() else {}
