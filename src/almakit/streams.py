"""Output whose reader may leave or whose disk may be full: what can no longer be written is dropped, and the work goes
on."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import Any, TextIO


class Lasting:
    """A text stream that never raises: after its first failure, kept in ``failure``, everything written to it is
    dropped."""

    def __init__(self, stream: TextIO | None):
        """``stream`` None, as ``sys.stderr`` is without a standard error: nothing is written at all."""
        self.stream = stream
        self.failure = None if stream is not None else OSError(errno.EBADF, os.strerror(errno.EBADF))

    def write(self, text: str) -> int:
        """Writes ``text`` if that is possible, with escapes where the stream's encoding lacks a character."""
        if self.stream is not None and self.failure is None:
            try:
                self.stream.write(text)
            except UnicodeEncodeError:
                self.write(text.encode("ascii", "backslashreplace").decode("ascii"))
            except (OSError, ValueError) as error:
                self._failed(error)
        return len(text)

    def flush(self) -> None:
        if self.stream is not None and self.failure is None:
            try:
                self.stream.flush()
            except (OSError, ValueError) as error:
                self._failed(error)

    def isatty(self) -> bool:
        try:
            return self.failure is None and self.stream is not None and self.stream.isatty()
        except (OSError, ValueError):
            return False

    @property
    def lost(self) -> str | None:
        """Why something could not be written; None where all was, and where the reader has left or never was there: it
        misses nothing."""
        return None if self.failure is None or self.failure.errno in (errno.EPIPE, errno.EBADF) else str(self.failure)

    def let_go(self) -> None:
        """Sends what a stream that failed still holds nowhere: written when the interpreter ends, it would fail again
        and change the exit code."""
        if self.stream is not None and self.failure is not None:
            with suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self.stream.fileno())
                os.close(nowhere)

    def _failed(self, error: OSError | ValueError) -> None:
        # ValueError: the stream was closed.
        self.failure = error if isinstance(error, OSError) else OSError(errno.EBADF, str(error))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def hold_standard_places() -> None:
    """Gives the numbers 0, 1 and 2, where they were closed, to the null device: a file of the run that got one would be
    written to by C code."""
    with suppress(OSError):
        while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(number)
