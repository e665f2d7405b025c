"""Output streams whose reader may close or whose disk may be full: failing output is dropped and the program
continues."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import Any, TextIO


class Lasting:
    """A text stream that never raises: after its first failure, kept in ``failure``, everything written to it is
    dropped."""

    def __init__(self, stream: TextIO | None):
        """``stream`` may be None, as ``sys.stderr`` is without a standard error; then nothing is written."""
        self.stream = stream
        self.failure = None if stream is not None else OSError(errno.EBADF, os.strerror(errno.EBADF))

    def write(self, text: str) -> int:
        """Write ``text`` if possible, with escapes for characters that the stream's encoding lacks."""
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
        """Why output was lost; None if everything was written, or if the reader closed the stream or there was none."""
        return None if self.failure is None or self.failure.errno in (errno.EPIPE, errno.EBADF) else str(self.failure)

    def let_go(self) -> None:
        """Discard the buffer of a stream that failed. Otherwise it would be written when the interpreter ends, fail
        again and change the exit code."""
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
    """Open the null device for closed file descriptors 0, 1 and 2. Otherwise a file of the run could get such a number,
    and C code would write to it."""
    with suppress(OSError):
        while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(number)
