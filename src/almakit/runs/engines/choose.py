"""An engine by its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import BadInput
from ..plan import Job
from ..progress import Silent
from ..session import Engine
from . import local
from .ray import RayEngine
from .workers import AUTO, Workers

NAMES = ("local", "ray")


@contextmanager
def opened(
    engine: str | Engine, job: Job, address: str = "local", workers: int | str | None = None, show: Silent | None = None
) -> Iterator[Engine]:
    """The engine of that name for a run and the time of the block: ``local``, with ``workers`` processes where they are
    given, or ``ray`` at an ``address`` (local, auto, host:port)."""
    if isinstance(engine, Workers):
        with engine.serving(job):
            yield engine
    elif not isinstance(engine, str):
        yield engine
    elif engine == "local":
        if workers is None:
            yield local.outcomes
        else:
            with Workers(workers, show) as shared, shared.serving(job):
                yield shared
    elif engine == "ray":
        if isinstance(workers, str) and workers != AUTO:
            raise BadInput(f"workers={workers!r}: give a whole number, at least 1, or auto.")
        with RayEngine(address, None if isinstance(workers, str) else workers, show) as made:
            yield made
    else:
        raise BadInput(f"there is no engine {engine!r}; choose {' or '.join(NAMES)}.")
