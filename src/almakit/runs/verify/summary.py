"""The file ``summary.json`` of a run folder against a fresh computation. No torch here."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

from ...errors import AlmakitError
from ..folder import SUMMARY, RunFolder
from ..store import files
from .compare import Differences

Summarise = Callable[[RunFolder], dict[str, Any]]


def of_summary(found: Differences, run: RunFolder, summarise: Summarise) -> list[str]:
    """Compares every value of ``summary.json`` with what ``summarise`` computes from the records; returns a sentence if
    it was not checked."""
    place = files.inside(run.folder, SUMMARY)
    if not place.is_file():
        return [f"{SUMMARY} is not checked: the folder has none."]
    try:
        stored = json.loads(place.read_bytes())
        now = json.loads(json.dumps(summarise(run)))
        if isinstance(stored, dict) and stored.get("format") != now["format"]:
            return [f"{SUMMARY} is not checked: another version of almakit wrote it."]
        for where, then, again in _differing("", stored, now):
            found.note(SUMMARY, where or "the whole file", then, again)
    except AlmakitError as error:
        return [f"{SUMMARY} is not checked: {error}"]
    except (ValueError, RecursionError) as error:
        found.note(SUMMARY, "the whole file", f"no JSON ({error})", "JSON")
    return []


def _differing(where: str, stored: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """The place, stored and computed value of each value that differs; the last digits of numbers may, between
    machines."""
    if isinstance(stored, list) and isinstance(now, list) and len(stored) == len(now):
        stored, now = dict(enumerate(stored)), dict(enumerate(now))
    if isinstance(stored, dict) and isinstance(now, dict):
        for key in {**stored, **now}:
            yield from _differing(f"{where}.{key}".lstrip("."), stored.get(key), now.get(key))
    elif isinstance(stored, float) and isinstance(now, float):
        if not math.isclose(stored, now, rel_tol=1e-9, abs_tol=1e-12):
            yield where, stored, now
    elif stored != now or isinstance(stored, bool) != isinstance(now, bool):
        yield where, stored, now
