"""Memory that is kept instead of given back: the C library otherwise returns each large tensor to the system and
fetches it, page by page, anew."""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # glibc's malloc.h
MOST = 2**31 - 1

_kept = False


def keep_memory() -> bool:
    """Asks glibc to take memory from its heap and not to shrink that; does nothing elsewhere. Whether it was done.

    For programs, not for libraries: it holds for the whole process until its end. ``almakit run`` and ``reproduce`` do
    it.
    """
    global _kept
    if sys.platform.startswith("linux"):
        try:
            mallopt = ctypes.CDLL(None).mallopt
        except (AttributeError, OSError):  # another C library
            return False
        _kept = bool(mallopt(MMAP_MAX, 0) and mallopt(TRIM_THRESHOLD, MOST))
    return _kept


def environment() -> dict[str, str]:
    """For processes of this one's: the same, where it was done here."""
    return {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(MOST)} if _kept else {}
