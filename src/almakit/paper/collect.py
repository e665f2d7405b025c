"""What lies below OUT/runs: the run folders that belong to the paper's grid, whichever command made them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..report.run import Run
from ..runs.attack_text import as_written_now
from ..runs.merge import merge
from ..runs.spec import RunSpec
from ..runs.store import database_name
from . import layout
from .entries import Entry, entry_of
from .grid import DATASETS, Cell, cells, distinct, network_of, networks
from .sample import WRITTEN


@dataclass
class Collected:
    """The entries in the paper's order, their run folders by how many images they are to have, and sentences about what
    is not finished."""

    entries: list[Entry] = field(default_factory=list)
    folders: dict[Path, int] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)
    given_up: int = 0
    environment: dict[str, Any] | None = None


def collect(out: Path, dataset: str, first: Sequence[str] = (), joined: set[Path] | None = None) -> Collected:
    """Every cell of the grid that has a run folder below ``out``; networks in the order of ``first``, then of the
    paper, then by name.

    Of the folders of one cell on one network that with the most attacked images counts. Shards are joined, but for
    folders in ``joined``.
    """
    grid = {as_written_now(cell.text): cell for cell in cells(dataset)}
    opened: dict[tuple[str, str | None], list[Run]] = {}
    for config in sorted(out.glob("runs/*/*/run.toml")):
        spec = RunSpec.from_toml(config)
        text = as_written_now(spec.attacks[0]) if len(spec.attacks) == 1 else None
        if text not in grid or _of_another(spec.data, dataset):
            continue
        join_shards(config.parent, joined if joined is not None else set())
        if (config.parent / database_name()).is_file():
            opened.setdefault((spec.model, text), []).append(Run(config.parent))
    there = {model for model, _ in opened}
    names = [
        name
        for name in dict.fromkeys([*first, *(network.name for network in networks(dataset)), *sorted(there)])
        if name in there
    ]
    found = Collected()
    for text, cell in grid.items():
        for network in distinct([network_of(dataset, name) for name in names]):
            if runs := opened.get((network.name, text)):
                run = max(runs, key=lambda run: len(run.records))
                _add(
                    found,
                    run,
                    cell,
                    network.label,
                    None if not run.records else entry_of(run, cell, network, run.folder.relative_to(out).as_posix()),
                )
    return found


def join_shards(folder: Path, joined: set[Path]) -> None:
    """Takes over what shards have done in this folder, once; ``joined`` remembers it."""
    if folder not in joined and any(folder.glob("records-*-of-*.sqlite")):
        merge([folder])
    joined.add(folder)


def _add(found: Collected, run: Run, cell: Cell, label: str, entry: Entry | None) -> None:
    asked, done, given_up = int(run.meta.get("images", 0)), len(run.records), len(run.failures)
    if entry is not None:
        found.entries.append(entry)
        found.folders[run.folder] = asked
        found.environment = found.environment or run.summary["environment"]
    if entry is None or not entry.complete:
        why = f"; {given_up} chunk{'s were' if given_up > 1 else ' was'} given up" if given_up else ""
        found.unfinished.append(
            f"{cell.title} ({layout.name_of(cell.distance)}) on {label} is not finished: {done} of {asked} "
            f"images{why}. The command that began it goes on."
        )
    found.given_up += given_up


def _of_another(data: str, dataset: str) -> bool:
    """Whether images are plainly those of another of the paper's data sets: two may share a folder, and many attacks
    have the same text in both."""
    named = "imagenet" if data.endswith(WRITTEN) else data.partition(":")[0]
    return named in DATASETS and named != dataset
