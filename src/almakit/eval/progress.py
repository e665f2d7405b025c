"""How a run shows where it is: a live bar with rate and time left on a terminal, plain lines elsewhere, nothing from Python by default."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

from ..errors import BadInput


class Silent:
    """Says nothing; also the interface."""

    def note(self, sentence: str) -> None:
        """A sentence for the user."""

    def begin(self, what: str, done: int, total: int, unit: str = "images") -> None:
        """A stage begins: ``done`` of its ``total`` images, or whatever ``unit`` says, were there already."""

    def advance(self, count: int, detail: str = "") -> None:
        """So many more of the stage are finished and stored."""

    def end(self) -> None:
        """The stage, or the whole run, is over."""


class Lines(Silent):
    """Plain lines, at most one every ``pause`` seconds within a stage."""

    def __init__(self, stream: TextIO | None = None, pause: float = 5.0):
        self.stream, self.pause = stream or sys.stderr, pause
        self.what, self.unit, self.done, self.total, self.before = "", "images", 0, 0, 0
        self.began = self.shown = 0.0
        self.detail, self.silent_since = "", 0

    def note(self, sentence: str) -> None:
        print(sentence, file=self.stream, flush=True)

    def begin(self, what: str, done: int, total: int, unit: str = "images") -> None:
        self.what, self.unit, self.done, self.before, self.total = what, unit, done, done, total
        self.began, self.shown = time.monotonic(), time.monotonic()

    def advance(self, count: int, detail: str = "") -> None:
        self.done, self.detail = self.done + count, detail
        now = time.monotonic()
        if now - self.shown < self.pause and self.done < self.total:
            return
        self.shown = now
        rate = (self.done - self.before) / max(now - self.began, 1e-9)
        left = f", {duration((self.total - self.done) / rate)} left" if self.done < self.total and rate > 0 else ""
        print(
            f"{self.what}: {self.done}/{self.total} {self.unit}, {rate:.3g} {self.unit}/s{left}{'; ' + detail if detail else ''}",
            file=self.stream,
            flush=True,
        )


class Bars(Silent):
    """A live bar made with rich."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.console = Console(stderr=True)
        self.bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[detail]}", markup=False),
            console=self.console,
        )
        self.task: Any = None
        self.began, self.count, self.unit = 0.0, 0, "images"

    def note(self, sentence: str) -> None:
        self.console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def begin(self, what: str, done: int, total: int, unit: str = "images") -> None:
        self.bar.start()
        self.began, self.count, self.unit = time.monotonic(), 0, unit
        self.task = self.bar.add_task(what, total=total, completed=done, rate="", detail="")

    def advance(self, count: int, detail: str = "") -> None:
        self.count += count
        rate = self.count / max(time.monotonic() - self.began, 1e-9)
        self.bar.update(self.task, advance=count, rate=f"{rate:.3g} {self.unit}/s", detail=detail)

    def end(self) -> None:
        self.bar.stop()


def for_terminal() -> Silent:
    """Bars where a person watches and rich is installed, lines otherwise."""
    if sys.stderr.isatty():
        try:
            return Bars()
        except ImportError:
            pass
    return Lines()


def shown(progress: bool | Silent | None) -> Silent:
    """What ``progress=`` stands for: True shows, False and None are silent, and whatever has the methods of ``Silent`` is asked itself."""
    if isinstance(progress, Silent):
        return progress
    if progress is None or isinstance(progress, bool):
        return for_terminal() if progress else Silent()
    raise BadInput(f"progress={progress!r}: give True, False, or an object with the methods of almakit.eval.progress.Silent.")


def duration(seconds: float) -> str:
    """``75`` -> ``1:15``."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
