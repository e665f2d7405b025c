"""Progress display: one changing line on a terminal or in a notebook, plain lines elsewhere, nothing by default in
Python."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

from ..errors import BadInput
from ..streams import Lasting

WIDTH = 20
"""Number of characters of a bar."""


class Progress:
    """The interface; this class shows nothing."""

    def note(self, sentence: str) -> None:
        """Show a message."""

    def begin(self, what: str, done: int, total: int, unit: str = "images") -> None:
        """Begin a stage with ``total`` images (or other units), of which ``done`` are finished already."""

    def advance(self, count: int, detail: str = "") -> None:
        """Count ``count`` more units as finished and stored."""

    def inside(self, forwards: float, of: int | None, count: int) -> None:
        """The next ``count`` units have had ``forwards`` forward passes each, of about ``of`` if known."""

    def end(self) -> None:
        """End the stage or the run."""


class Lines(Progress):
    """Plain lines, or with ``bar`` one line that is rewritten in place, at most one every ``pause`` seconds. A stream
    that can no longer be written to is ignored."""

    def __init__(self, stream: TextIO | None = None, pause: float = 5.0, bar: bool = False):
        self.stream, self.pause, self.bar = Lasting(stream or sys.stderr), pause, bar
        self.what, self.unit, self.done, self.total, self.before = "", "images", 0, 0, 0
        self.began = self.shown = 0.0
        self.width = 0  # length of the line that is shown

    def note(self, sentence: str) -> None:
        clear = f"\r{' ' * self.width}\r" if self.width else ""
        self.width = 0
        self.stream.write(f"{clear}{sentence}\n")
        self.stream.flush()

    def begin(self, what: str, done: int, total: int, unit: str = "images") -> None:
        self.what, self.unit, self.done, self.before, self.total = what, unit, done, done, total
        self.began = self.shown = time.monotonic()

    def advance(self, count: int, detail: str = "") -> None:
        self.done += count
        self._show(self.done, detail, self.done >= self.total)

    def inside(self, forwards: float, of: int | None, count: int) -> None:
        share = min(forwards / of, 1.0) if of else 0.0
        known = f" of about {of}" if of and forwards <= of else ""
        self._show(self.done + share * count, f"forward {forwards:.0f}{known} of the next {count}")

    def end(self) -> None:
        if self.width:
            self.width = 0
            self.note("")

    def _show(self, reached: float, detail: str, now: bool = False) -> None:
        """Show that ``reached`` units are done."""
        moment = time.monotonic()
        if not now and moment - self.shown < self.pause:
            return
        self.shown = moment
        rate = (reached - self.before) / max(moment - self.began, 1e-9)
        left = f", {duration((self.total - reached) / rate)} left" if reached < self.total and rate > 0 else ""
        position = f"{self.what}: {self.done}/{self.total} {self.unit}, {rate:.3g} {self.unit}/s{left}"
        text = "; ".join(filter(None, [position, detail]))
        if not self.bar:
            self.note(text)
            return
        full = round(WIDTH * reached / max(self.total, 1))
        text = f"[{'#' * full}{'-' * (WIDTH - full)}] {text}"[: shutil.get_terminal_size().columns - 1]
        self.stream.write(f"\r{text.ljust(self.width)}")
        self.stream.flush()
        self.width = len(text)


def for_terminal() -> Progress:
    """A changing line on a terminal and in a notebook, plain lines otherwise."""
    bar = "ipykernel" in sys.modules or Lasting(sys.stderr).isatty()
    return Lines(pause=0.1 if bar else 5.0, bar=bar)


def shown(progress: bool | Progress | None) -> Progress:
    """The object for ``progress=``: True shows, False and None are silent, a ``Progress`` is itself."""
    if isinstance(progress, Progress):
        return progress
    if progress is None or isinstance(progress, bool):
        return for_terminal() if progress else Progress()
    raise BadInput(f"progress={progress!r}: give True, False, or an almakit.runs.progress.Progress.")


def forwards_per_image(
    notify: Callable[[float, int | None, int], None], of: int | None, images: int
) -> Callable[[int], None]:
    """A function of batch sizes that calls ``notify`` with the mean number of forwards per image and its expected total
    ``of``."""
    queried = 0

    def count(batch: int) -> None:
        nonlocal queried
        queried += batch
        notify(queried / images, of, images)

    return count


def duration(seconds: float) -> str:
    """``75`` -> ``1:15``."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
