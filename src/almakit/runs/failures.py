"""What can go wrong around a run, each with a sentence that says what to do; none of it loses what was finished."""

from __future__ import annotations

import errno
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


@contextmanager
def understood(what: Path) -> Iterator[None]:
    """Turns errors about values that almakit never wrote into a sentence about ``what``, the file that holds them."""
    try:
        yield
    except AlmakitError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
        raise Corrupt(
            f"{what} holds something that almakit did not write ({type(error).__name__}: {error}); restore it from a "
            "copy, or move it away to begin this run's records anew (the images' files beside it are not touched)."
        ) from error


def writable(text: str) -> str:
    """``text`` with what no file can hold in UTF-8 (half a character, as JSON of others may have it) written out as an
    escape."""
    return text.encode("utf-8", "backslashreplace").decode()


_DISK = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "your disk quota is used up; free some space",
    errno.EFBIG: "the file would grow larger than is allowed here; raise the limit",
    errno.EROFS: "the file system is read-only; choose a folder you may write (--out)",
    errno.EACCES: "you may not write there; choose a folder you may write (--out)",
    errno.EPERM: "you may not write there; choose a folder you may write (--out)",
    errno.ENOTDIR: "part of the path is a file, not a folder; choose another folder (--out)",
    errno.EEXIST: "a file of that name is in the way; choose another folder (--out)",
}
_SAFE = "Everything finished so far is kept; the same command resumes."


@contextmanager
def explained(what: Path) -> Iterator[None]:
    """Turns errors of the file system and of SQLite about ``what`` into sentences."""
    try:
        yield
    except OSError as error:
        why = _DISK.get(error.errno or 0, f"{error.strerror or error}; see to the disk")
        raise StoreError(f"cannot write {error.filename or what}: {why}. {_SAFE}") from error
    except sqlite3.DatabaseError as error:
        raise StoreError(_database_sentence(what, str(error))) from error
    except UnicodeEncodeError as error:
        raise StoreError(
            f"{ascii(error.object)[:200]} is not text in UTF-8, and {what} cannot hold it; rename it."
        ) from error


def _database_sentence(database: Path, message: str) -> str:
    lowered = message.lower()
    if "locked" in lowered or "busy" in lowered:
        return f"{database} is locked by another process; wait until it has finished, or stop it. {_SAFE}"
    if "full" in lowered:
        return f"cannot write {database}: the disk is full; free some space. {_SAFE}"
    if "readonly" in lowered or "unable to open" in lowered:
        return f"cannot write {database}: {message}; choose a folder you may write (--out). {_SAFE}"
    if "malformed" in lowered or "not a database" in lowered:
        return (
            f"{database} is damaged ({message}); restore it from a copy, or move it away to begin this run's records "
            "anew (the images' files beside it are not touched)."
        )
    return f"the database {database} reports: {message}. {_SAFE}"
