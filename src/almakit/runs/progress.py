"""How a run shows where it is: a live bar with rate and time left on a terminal, plain lines elsewhere, nothing from
Python by default."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TextIO, cast

from ..errors import BadInput
from ..streams import Lasting


class Progress:
    """The interface; itself it shows nothing."""

    def note(self, sentence: str) -> None:
        """A sentence for the user."""

    def begin(self, what: str, done: int, total: int, unit: str = "images") -> None:
        """A stage begins: ``done`` of its ``total`` images, or whatever ``unit`` says, were there already."""

    def advance(self, count: int, detail: str = "") -> None:
        """So many more of the stage are finished and stored."""

    def inside(self, forwards: float, of: int | None, count: int) -> None:
        """The next ``count`` are under way: each has had so many forwards, of about ``of`` where that is known."""

    def end(self) -> None:
        """The stage, or the whole run, is over."""


class Lines(Progress):
    """Plain lines, at most one every ``pause`` seconds within a stage; a stream that can no longer be written to is
    left alone."""

    def __init__(self, stream: TextIO | None = None, pause: float = 5.0):
        self.stream, self.pause = Lasting(stream or sys.stderr), pause
        self.what, self.unit, self.done, self.total, self.before = "", "images", 0, 0, 0
        self.began = self.shown = 0.0

    def note(self, sentence: str) -> None:
        Lines.line(self, sentence)

    def line(self, text: str) -> None:
        """Where the stage is, as a line."""
        self.stream.write(f"{text}\n")
        self.stream.flush()

    def begin(self, what: str, done: int, total: int, unit: str = "images") -> None:
        self.what, self.unit, self.done, self.before, self.total = what, unit, done, done, total
        self.began, self.shown = time.monotonic(), time.monotonic()

    def advance(self, count: int, detail: str = "") -> None:
        self.done += count
        if time.monotonic() - self.shown >= self.pause or self.done >= self.total:
            self._tell(self.done, detail)

    def inside(self, forwards: float, of: int | None, count: int) -> None:
        if time.monotonic() - self.shown >= self.pause:
            self._tell(self.done + _share(forwards, of) * count, f"{_forwards(forwards, of)} of the next {count}")

    def _tell(self, reached: float, detail: str) -> None:
        self.shown = time.monotonic()
        rate = (reached - self.before) / max(self.shown - self.began, 1e-9)
        left = f", {duration((self.total - reached) / rate)} left" if reached < self.total and rate > 0 else ""
        self.line(
            f"{self.what}: {self.done}/{self.total} {self.unit}, {rate:.3g} "
            f"{self.unit}/s{left}{'; ' + detail if detail else ''}"
        )


class Notebook(Lines):
    """One line that changes in its place, for each stage; ``display`` is IPython's function of that name."""

    def __init__(self, display: Any, pause: float = 0.5):
        super().__init__(pause=pause)
        self.display, self.handle = display, None

    def begin(self, what: str, done: int, total: int, unit: str = "images") -> None:
        super().begin(what, done, total, unit)
        self.handle = self.display(_Shown(f"{what}: {done}/{total} {unit}"), display_id=True)

    def note(self, sentence: str) -> None:
        self.display(_Shown(sentence))

    def line(self, text: str) -> None:
        if self.handle is not None:
            self.handle.update(_Shown(text))


class _Shown(str):
    """A text that a notebook shows as it is, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Bars(Progress):
    """A live bar made with rich."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as Bar

        self.console = Console(file=cast("TextIO", Lasting(sys.stderr)))
        self.bar = Bar(
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
        self.began, self.done, self.before, self.unit, self.shown = 0.0, 0, 0, "images", 0.0

    def note(self, sentence: str) -> None:
        self.console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def begin(self, what: str, done: int, total: int, unit: str = "images") -> None:
        self.bar.start()
        self.began, self.done, self.before, self.unit = time.monotonic(), done, done, unit
        self.task = self.bar.add_task(what, total=total, completed=done, rate="", detail="")

    def advance(self, count: int, detail: str = "") -> None:
        self.done += count
        self._move(self.done, detail)

    def inside(self, forwards: float, of: int | None, count: int) -> None:
        if time.monotonic() - self.shown >= 0.1:
            self._move(self.done + _share(forwards, of) * count, _forwards(forwards, of))

    def _move(self, reached: float, detail: str) -> None:
        self.shown = time.monotonic()
        rate = (reached - self.before) / max(self.shown - self.began, 1e-9)
        self.bar.update(self.task, completed=reached, rate=f"{rate:.3g} {self.unit}/s", detail=detail)

    def end(self) -> None:
        self.bar.stop()


def for_terminal() -> Progress:
    """One line in its place in a notebook, bars where a person watches a terminal and rich is installed, lines
    otherwise, nothing where there is no standard error."""
    if "ipykernel" in sys.modules:
        from IPython.display import display

        return Notebook(display)
    if Lasting(sys.stderr).isatty():
        try:
            return Bars()
        except ImportError:
            pass
    return Lines()


def shown(progress: bool | Progress | None) -> Progress:
    """What ``progress=`` stands for: True shows, False and None are silent, and an object with
    the methods of ``Progress`` stays itself."""
    if isinstance(progress, Progress):
        return progress
    if progress is None or isinstance(progress, bool):
        return for_terminal() if progress else Progress()
    raise BadInput(
        f"progress={progress!r}: give True, False, or an object with the methods of almakit.runs.progress.Progress."
    )


def _share(forwards: float, of: int | None) -> float:
    return min(forwards / of, 1.0) if of else 0.0


def _forwards(forwards: float, of: int | None) -> str:
    return f"forward {forwards:.0f}{f' of about {of}' if of and forwards <= of else ''}"


def forwards_per_image(
    tell: Callable[[float, int | None, int], None], of: int | None, images: int
) -> Callable[[int], None]:
    """For a watched model: tells how many forwards each of the images has had, ``of`` about so many, from the sizes of
    the batches it is asked about."""
    asked = 0

    def look(batch: int) -> None:
        nonlocal asked
        asked += batch
        tell(asked / images, of, images)

    return look


def duration(seconds: float) -> str:
    """``75`` -> ``1:15``."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
