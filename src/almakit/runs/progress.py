"""Progress of a run: a live bar on a terminal, one changing line in a notebook, plain lines elsewhere, and nothing by
default in Python."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TextIO, cast

from ..errors import BadInput
from ..streams import Lasting


class Progress:
    """The interface; this class shows nothing."""

    def note(self, sentence: str) -> None:
        """Show a sentence."""

    def begin(self, what: str, done: int, total: int, unit: str = "images") -> None:
        """A stage begins; ``done`` of its ``total`` images (or other units) are finished already."""

    def advance(self, count: int, detail: str = "") -> None:
        """``count`` more are finished and stored."""

    def inside(self, forwards: float, of: int | None, count: int) -> None:
        """The next ``count`` have had ``forwards`` forward passes each, of about ``of`` if that is known."""

    def end(self) -> None:
        """The stage, or the whole run, is over."""


class _Paced(Progress):
    """Counts, and shows the position in a stage at most once every ``pause`` seconds."""

    def __init__(self, pause: float):
        self.pause = pause
        self.what, self.unit, self.done, self.total, self.before = "", "images", 0, 0, 0
        self.began = self.shown = 0.0

    def show(self, reached: float, rate: float, detail: str) -> None:
        """Show that ``reached`` units are done, at ``rate`` units per second."""
        raise NotImplementedError

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

    def _show(self, reached: float, detail: str, now: bool = False) -> None:
        moment = time.monotonic()
        if now or moment - self.shown >= self.pause:
            self.shown = moment
            self.show(reached, (reached - self.before) / max(moment - self.began, 1e-9), detail)


class Lines(_Paced):
    """Plain lines; a stream that can no longer be written to is ignored."""

    def __init__(self, stream: TextIO | None = None, pause: float = 5.0):
        super().__init__(pause)
        self.stream = Lasting(stream or sys.stderr)

    def note(self, sentence: str) -> None:
        self.stream.write(f"{sentence}\n")
        self.stream.flush()

    def line(self, text: str) -> None:
        """Show the position in the stage."""
        self.note(text)

    def show(self, reached: float, rate: float, detail: str) -> None:
        left = f", {duration((self.total - reached) / rate)} left" if reached < self.total and rate > 0 else ""
        self.line(
            f"{self.what}: {self.done}/{self.total} {self.unit}, {rate:.3g} {self.unit}/s{left}"
            f"{'; ' + detail if detail else ''}"
        )


class Notebook(Lines):
    """One changing line for each stage; ``display`` is IPython's function of that name."""

    def __init__(self, display: Any, pause: float = 0.5):
        super().__init__(pause=pause)
        self.display, self.handle = display, None

    def begin(self, what: str, done: int, total: int, unit: str = "images") -> None:
        super().begin(what, done, total, unit)
        self.handle = self.display(_Unquoted(f"{what}: {done}/{total} {unit}"), display_id=True)

    def note(self, sentence: str) -> None:
        self.display(_Unquoted(sentence))

    def line(self, text: str) -> None:
        if self.handle is not None:
            self.handle.update(_Unquoted(text))


class _Unquoted(str):
    """A text that a notebook displays without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Bars(_Paced):
    """A live bar made with rich."""

    def __init__(self) -> None:
        from rich import progress
        from rich.console import Console

        super().__init__(0.1)
        self.console = Console(file=cast("TextIO", Lasting(sys.stderr)))
        self.bar = progress.Progress(
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[rate]}"),
            progress.TimeElapsedColumn(),
            progress.TextColumn("left"),
            progress.TimeRemainingColumn(),
            progress.TextColumn("{task.fields[detail]}", markup=False),
            console=self.console,
        )
        self.task: Any = None

    def note(self, sentence: str) -> None:
        self.console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def begin(self, what: str, done: int, total: int, unit: str = "images") -> None:
        super().begin(what, done, total, unit)
        self.shown = 0.0
        self.bar.start()
        self.task = self.bar.add_task(what, total=total, completed=done, rate="", detail="")

    def show(self, reached: float, rate: float, detail: str) -> None:
        self.bar.update(self.task, completed=reached, rate=f"{rate:.3g} {self.unit}/s", detail=detail)

    def end(self) -> None:
        self.bar.stop()


def for_terminal() -> Progress:
    """A changing line in a notebook, bars on a terminal with rich, plain lines otherwise."""
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
    """The object for ``progress=``: True shows, False and None are silent, a ``Progress`` is itself."""
    if isinstance(progress, Progress):
        return progress
    if progress is None or isinstance(progress, bool):
        return for_terminal() if progress else Progress()
    raise BadInput(
        f"progress={progress!r}: give True, False, or an object with the methods of almakit.runs.progress.Progress."
    )


def forwards_per_image(
    notify: Callable[[float, int | None, int], None], of: int | None, images: int
) -> Callable[[int], None]:
    """A function of batch sizes that notifies of the mean number of forwards of ``images``, of about ``of``."""
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
