"""Errors of runs, each with a message that says what to do. None of them loses finished work."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import AlmakitError


class SpecChanged(AlmakitError):
    """The run folder belongs to a run with other settings, weights or data."""


class StoreError(AlmakitError):
    """The run folder cannot be read or written."""


class Corrupt(StoreError):
    """A file of the run folder does not have the recorded contents."""


class Refused(AlmakitError):
    """Preflight found a problem that would make the numbers meaningless."""


class CodeNamed(AlmakitError):
    """A run folder names Python code, which runs only if the caller names it too."""


class NothingWorks(AlmakitError):
    """Every step failed, so the cause is not a temporary fault."""


class Interrupted(KeyboardInterrupt):
    """The run was stopped by a signal. Everything finished is stored, and the same command resumes."""


_KEPT = "Everything finished is kept; the same command resumes."
_LOST = "Restore it from a copy, or move it away to start new records of this run (the image files are not touched)."


@contextmanager
def understood(what: Path) -> Iterator[None]:
    """Replace errors about invalid values by a message about ``what``, the file that contains them."""
    try:
        yield
    except AlmakitError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
        why = f"{type(error).__name__}: {error}"
        raise Corrupt(f"{what} holds something that almakit did not write ({why}). {_LOST}") from error


def writable(text: str) -> str:
    """``text`` with characters that UTF-8 cannot encode (lone surrogates, which JSON may contain) written as
    escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


@contextmanager
def explained(what: Path) -> Iterator[None]:
    """Replace errors of the file system and of SQLite about ``what`` by messages."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot write {error.filename or what}: {error.strerror or error}. {_KEPT}") from error
    except sqlite3.DatabaseError as error:
        damaged = "malformed" in str(error) or "not a database" in str(error)
        raise StoreError(f"{what} cannot be used: {error}. {_LOST if damaged else _KEPT}") from error
    except UnicodeEncodeError as error:
        text = ascii(error.object)[:200]
        raise StoreError(f"{text} is not text in UTF-8, and {what} cannot hold it; rename it.") from error
