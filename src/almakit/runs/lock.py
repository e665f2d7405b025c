"""One writer per database: a second process is told so at once instead of doing the same work again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .failures import StoreError, explained

try:
    import fcntl
except ImportError:  # pragma: no cover (Windows has no flock; SQLite's own locks still keep the data whole)
    fcntl = None  # type: ignore[assignment]


@contextmanager
def only_writer(database: Path) -> Iterator[None]:
    """Holds the folder's lock for one database; the system lets go of it when the process ends, however it ends."""
    if fcntl is None:  # pragma: no cover
        yield
        return
    with explained(database):
        database.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(database.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(
                f"another almakit process is writing {database}; wait until it has finished, or choose another folder "
                "(--out)."
            ) from None
        except OSError:  # pragma: no cover (a network file system without locks)
            pass
        yield
    finally:
        os.close(handle)
