"""The engine of one process: one piece of work after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..store import ChunkKey
from ..work import Bench, Outcome
from . import ahead


def outcomes(bench: Bench, keys: Iterable[ChunkKey]) -> Iterator[Outcome]:
    """The outcome of each piece of work, in order; each is stored by the caller before the next begins, or on a GPU
    while the next goes on."""
    if bench.subject.device.type == "cuda":
        yield from ahead.outcomes(bench, keys)
        return
    for key in keys:
        yield bench.compute(key)
