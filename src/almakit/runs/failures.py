"""What can go wrong around a run, each with a sentence that says what to do; none of it loses what was finished."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import AlmakitError


class SpecChanged(AlmakitError):
    """The run folder was begun with other settings, weights or data."""


class StoreError(AlmakitError):
    """The run folder cannot be read or written."""


class Corrupt(StoreError):
    """A file of the run folder does not have the contents that were recorded."""


class Refused(AlmakitError):
    """Preflight found something that would make the numbers meaningless."""


class CodeNamed(AlmakitError):
    """A run folder names Python code, which runs only where the caller names it too."""


class NothingWorks(AlmakitError):
    """Every piece of work failed: a mistake, not a passing fault."""


class Interrupted(KeyboardInterrupt):
    """The run was stopped by a signal; everything finished is stored and the same command goes on."""


_KEPT = "Everything finished so far is kept; the same command resumes."
_LOST = (
    "Restore it from a copy, or move it away to begin this run's records anew (the images' files beside it are not "
    "touched)."
)


@contextmanager
def understood(what: Path) -> Iterator[None]:
    """Turns errors about values that almakit never wrote into a sentence about ``what``, the file that holds them."""
    try:
        yield
    except AlmakitError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
        why = f"{type(error).__name__}: {error}"
        raise Corrupt(f"{what} holds something that almakit did not write ({why}). {_LOST}") from error


def writable(text: str) -> str:
    """``text`` with what no file can hold in UTF-8 (half a character, as JSON of others may have it) written out as an
    escape."""
    return text.encode("utf-8", "backslashreplace").decode()


@contextmanager
def explained(what: Path) -> Iterator[None]:
    """Turns errors of the file system and of SQLite about ``what`` into sentences."""
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
