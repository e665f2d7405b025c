"""What experiment trackers hear of a run: its settings, the courses of attacks, where each attack stands after every
chunk, and the summary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isfinite
from statistics import median
from typing import Any

from .loop import Engine
from .store import ChunkKey, FailureRow
from .threat import named
from .work import Bench, Outcome

Track = Callable[[dict[str, Any]], None]


def told(engine: Engine, trackers: Sequence[Track]) -> Engine:
    """The engine, with each outcome told to the trackers once the caller has stored it and asks for the next."""
    if not trackers:
        return engine

    def outcomes(bench: Bench, keys: Iterable[ChunkKey]) -> Iterator[Outcome | FailureRow]:
        distances: list[float] = []
        for outcome in engine(bench, keys):
            yield outcome
            if isinstance(outcome, Outcome) and outcome.records:
                distances += [record.verified for record in outcome.records]
                tell(trackers, *_events(bench, outcome, distances))

    outcomes.name = getattr(engine, "name", "local")  # type: ignore[attr-defined]
    return outcomes


def tell(trackers: Sequence[Track], *events: dict[str, Any]) -> None:
    """Hands events to all trackers, in order."""
    for track in trackers:
        for event in events:
            track(event)


def _events(bench: Bench, outcome: Outcome, distances: list[float]) -> Iterator[dict[str, Any]]:
    """``distances`` are the verified ones of this attack so far."""
    attack = named(bench.infos[outcome.key.attack].text, bench.spec)
    for trace in outcome.traces:
        for place, step in enumerate(trace.values["step"]):
            values = {name: column[place] for name, column in trace.values.items() if name != "step"}
            yield {
                "event": "trace",
                "attack": attack,
                "image": bench.dataset.ids[trace.image],
                "step": step,
                "values": values,
            }
    middle = median(distances)
    yield {
        "event": "progress",
        "attack": attack,
        "images": len(distances),
        "fooled": sum(map(isfinite, distances)) / len(distances),
        "median": middle if isfinite(middle) else None,
    }
