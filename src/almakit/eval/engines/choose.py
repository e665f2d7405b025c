"""An engine by its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import BadInput
from ..loop import Engine
from ..progress import Silent
from . import local
from .ray import RayEngine

NAMES = ("local", "ray")


@contextmanager
def opened(engine: str | Engine, address: str = "local", workers: int | None = None, show: Silent | None = None) -> Iterator[Engine]:
    """The engine of that name for the time of the block: ``local``, or ``ray`` at an ``address`` (local, auto, host:port)."""
    if not isinstance(engine, str):
        yield engine
    elif engine == "local":
        if workers is not None:
            raise BadInput("workers are for the ray engine; give --engine ray, or leave --workers out.")
        yield local.outcomes
    elif engine == "ray":
        with RayEngine(address, workers, show) as made:
            yield made
    else:
        raise BadInput(f"there is no engine {engine!r}; choose {' or '.join(NAMES)}.")
