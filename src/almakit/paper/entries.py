"""The numbers of the paper's cells as plain values, read from run folders or from a stored file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ..errors import BadInput
from ..report.run import Run
from ..runs.attack_text import as_written_now
from ..runs.spec import RunSpec
from ..runs.store import database_name
from .grid import (
    DATASETS,
    Cell,
    Network,
    Published,
    cells,
    distinct,
    name_of,
    network_of,
    networks,
    published,
    title_of,
)
from .sample import WRITTEN

FORMAT = 1
MACHINE = ("almakit", "commit", "python", "torch", "processor", "cores", "threads", "device", "system", "machine")


@dataclass(frozen=True)
class Entry:
    """The numbers of a cell for one network. An infinite distance is None; ``paper`` is None if the paper has no such
    row."""

    dataset: str
    model: str
    label: str
    distance: str
    attack: str
    budget: str
    size: str
    text: str
    images: int
    success: float | None
    median: float | None
    low: float | None
    high: float | None
    median_attacked: float | None
    forwards: float | None
    backwards: float | None
    seconds: float | None
    clean_accuracy: float
    paper: Published | None
    complete: bool
    seed: int
    started: str
    spec_sha256: str
    weights_sha256: str
    data_sha256: str
    folder: str
    machine: str | None = None  # processor and versions; None in files that name one machine for all entries
    folder_sha256: str | None = None  # of the run folder's stored files; None in older files

    @property
    def title(self) -> str:
        return title_of(self.attack, self.budget)

    @property
    def ratio(self) -> float | None:
        """almakit's median divided by the paper's."""
        if self.median is None or self.paper is None or not self.paper.median:
            return None
        return self.median / self.paper.median


@dataclass
class Collected:
    """Entries in the paper's order, their run folders with the planned numbers of images, and messages about unfinished
    cells."""

    entries: list[Entry] = field(default_factory=list)
    folders: dict[Path, int] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)
    failed_chunks: int = 0
    environment: dict[str, Any] | None = None


def collect(out: Path, dataset: str, first: Sequence[str] = ()) -> Collected:
    """Every cell of the grid with a run folder below ``out``.

    If a cell has several folders for one network, the one with the most records is used. Networks are ordered as in
    ``first``, then as in the paper, then by name.
    """
    grid = {as_written_now(cell.text): cell for cell in cells(dataset)}
    runs: dict[tuple[str, str | None], list[Run]] = {}
    for config in sorted(out.glob("runs/*/*/run.toml")):
        spec = RunSpec.from_toml(config)
        text = as_written_now(spec.attacks[0]) if len(spec.attacks) == 1 else None
        if text not in grid or _dataset_of(spec.data) in {*DATASETS} - {dataset}:
            continue
        if (config.parent / database_name()).is_file():
            runs.setdefault((spec.model, text), []).append(Run(config.parent))
    present = {model for model, _ in runs}
    order = dict.fromkeys([*first, *(network.name for network in networks(dataset)), *sorted(present)])
    known = distinct([network_of(dataset, name) for name in order if name in present])
    found = Collected()
    for text, cell in grid.items():
        for network in known:
            if (network.name, text) in runs:
                _add(found, max(runs[network.name, text], key=lambda run: len(run.records)), cell, network, out)
    return found


def _add(found: Collected, run: Run, cell: Cell, network: Network, out: Path) -> None:
    images, failed = int(run.meta.get("images", 0)), len(run.failures)
    entry = entry_of(run, cell, network, run.folder.relative_to(out).as_posix()) if run.records else None
    if entry is not None:
        found.entries.append(entry)
        found.folders[run.folder] = images
        found.environment = found.environment or run.summary["environment"]
    if entry is None or not entry.complete:
        why = f"; {failed} chunk{'s were' if failed > 1 else ' was'} given up" if failed else ""
        found.unfinished.append(
            f"{cell.title} ({name_of(cell.distance)}) on {network.label} is not finished: {len(run.records)} of "
            f"{images} images{why}. Re-run the command that began it to resume."
        )
    found.failed_chunks += failed


def _dataset_of(data: str) -> str:
    """The data set of a URI: its name, or that of the list written by `almakit reproduce`."""
    return "imagenet" if data.endswith(WRITTEN) else data.partition(":")[0].partition("/")[0]


def _published(spec: RunSpec, cell: Cell, network: Network) -> Published | None:
    """The paper's row of a cell; None for another network, other images, or targets."""
    paper = network.name.partition("@")[0] in [known.name for known in networks(cell.dataset)]
    if not paper or _dataset_of(spec.data) != cell.dataset or spec.targets is not None:
        return None
    return published().get((cell.dataset, network.model, cell.distance, cell.attack, cell.budget))


def entry_of(run: Run, cell: Cell, network: Network, folder: str) -> Entry:
    """The numbers of a cell's run, which has one attack."""
    summary = run.summary
    part, facts = summary["attacks"][0], summary["run"]
    return Entry(
        **{name: getattr(cell, name) for name in ("dataset", "distance", "attack", "budget", "size", "text")},
        model=network.model,
        label=network.label,
        images=part["images"],
        success=part["success_rate"]["value"],
        median=part["median_all"]["value"],
        low=part["median_all"]["low"],
        high=part["median_all"]["high"],
        median_attacked=part["median_attacked"]["value"],
        forwards=part["forwards"]["mean"],
        backwards=part["backwards"]["mean"],
        seconds=part["seconds"]["per_image"],
        clean_accuracy=summary["clean_accuracy"]["value"],
        paper=_published(run.spec, cell, network),
        complete=summary["complete"],
        seed=facts["seed"],
        started=str(summary["started"]),
        spec_sha256=str(facts["spec_sha256"]),
        weights_sha256=str(facts["weights_sha256"]),
        data_sha256=str(facts["data_sha256"]),
        folder=folder,
        machine=described(summary["environment"]),
        folder_sha256=folder_sha256(run),
    )


def folder_sha256(run: Run) -> str:
    """A hash of a folder's specification, weights, data and stored files. Unlike ``Run.sha256`` it does not change when
    a later almakit stores more columns."""
    facts = [run.meta.get(name) for name in ("spec_sha256", "weights_sha256", "data_sha256")]
    rows = [(row.key.kind, row.key.attack, row.key.chunk, row.key.round, row.sha256) for row in run.chunks]
    return hashlib.sha256(json.dumps([facts, rows]).encode()).hexdigest()


def described(environment: dict[str, Any] | None) -> str | None:
    """A machine and its software in one line."""
    if not environment:
        return None
    # The part after the plus says that files differed from the commit.
    head, plus, rest = str(environment.get("commit")).partition("+")
    return (
        f"{environment.get('processor')}, {environment.get('threads')} thread(s), torch {environment.get('torch')}, "
        f"almakit {environment.get('almakit')} (source {head[:12]}{plus}{rest})"
    )


def to_json(entries: Sequence[Entry], environment: dict[str, Any] | None, skipped: Sequence[str]) -> str:
    """The entries one to a line, so that a diff of a stored file shows what changed."""
    machine = {name: environment.get(name) for name in MACHINE} if environment else None
    lines = ",\n".join("  " + json.dumps(asdict(entry), ensure_ascii=False, allow_nan=False) for entry in entries)
    head = json.dumps({"format": FORMAT, "machine": machine, "skipped": list(skipped)}, ensure_ascii=False, indent=1)
    return f'{head[:-2]},\n "entries": [\n{lines}\n ]\n}}\n'


def from_json(path: Path) -> tuple[list[Entry], dict[str, Any]]:
    """The entries of a stored file and the rest of it: ``machine`` and ``skipped``."""
    known = {each.name for each in fields(Entry)}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT or any(
            set(row) | {"machine", "folder_sha256"} != known for row in content["entries"]
        ):
            raise ValueError("another format")
        entries = [
            Entry(**{**row, "paper": Published(**row["paper"]) if row["paper"] else None}) for row in content["entries"]
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{path} is not a reproduce.json of this almakit ({error}).") from error
    return entries, {key: value for key, value in content.items() if key != "entries"}
