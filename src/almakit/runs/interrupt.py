"""Signals: a run that is told to stop leaves at once, but never in the middle of writing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from .failures import Interrupted


class Stop:
    """Turns SIGINT and SIGTERM into ``Interrupted``, held back inside ``shielded()`` blocks."""

    def __init__(self) -> None:
        self._shielded = False
        self._pending: str | None = None

    @contextmanager
    def watching(self) -> Iterator[Stop]:
        """Installs the handlers for the time of the block; outside the main thread, where that is impossible, does
        nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """A signal during the block waits for its end."""
        self._shielded = True
        try:
            yield
        finally:
            self._shielded = False
        if self._pending is not None:
            raise Interrupted(self._pending)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self._shielded:
            self._pending = name
            return
        raise Interrupted(name)
