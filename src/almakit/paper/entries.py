"""What a cell of the grid came to, as plain values: kept small, enough to print every table again. No torch here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from ..errors import BadInput
from ..report.published import Published, published
from ..report.run import Run
from .grid import Cell, Network

FORMAT = 1


@dataclass(frozen=True)
class Entry:
    """A cell on a network. Distances are None where infinite (nothing found for half of the images), ``paper`` None
    where the paper has no such row."""

    dataset: str
    model: str
    label: str
    distance: str
    attack: str
    budget: str
    size: str
    text: str
    images: int
    success: float
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
    machine: str | None = None  # who measured it, with which almakit; None in files that name one machine for all
    folder_sha256: str | None = None  # see below; None in older files

    @property
    def cell(self) -> Cell:
        return Cell(self.dataset, self.distance, self.attack, self.budget, self.size, self.text)


def entry_of(run: Run, cell: Cell, network: Network, folder: str) -> Entry:
    """The numbers of a cell's run folder, which holds one attack."""
    summary = run.summary
    part, facts = summary["attacks"][0], summary["run"]
    middle = part["median_all"]
    return Entry(
        cell.dataset,
        network.model,
        network.label,
        cell.distance,
        cell.attack,
        cell.budget,
        cell.size,
        cell.text,
        part["images"],
        part["success_rate"]["value"],
        middle["value"],
        middle["low"],
        middle["high"],
        part["median_attacked"]["value"],
        part["forwards"]["mean"],
        part["backwards"]["mean"],
        part["seconds"]["per_image"],
        summary["clean_accuracy"]["value"],
        published(
            network.name, run.spec.data, replace(run.attacks[0], text=cell.text)
        ),  # a folder may have an older text of the same attack
        summary["complete"],
        facts["seed"],
        str(summary["started"]),
        str(facts["spec_sha256"]),
        str(facts["weights_sha256"]),
        str(facts["data_sha256"]),
        folder,
        described(summary["environment"]),
        folder_sha256(run),
    )


def folder_sha256(run: Run) -> str:
    """Which folder it was: a hash of its specification, weights, data and all its stored files. Unlike ``Run.sha256``
    it does not change when a later almakit knows more columns."""
    facts = [run.meta.get(name) for name in ("spec_sha256", "weights_sha256", "data_sha256")]
    rows = [(row.key.kind, row.key.attack, row.key.chunk, row.key.round, row.sha256) for row in run.chunks]
    return hashlib.sha256(json.dumps([facts, rows]).encode()).hexdigest()


def described(environment: dict[str, Any] | None) -> str | None:
    """A machine and its software in one line, None where nothing is known of it."""
    if not environment:
        return None
    head, plus, rest = str(environment.get("commit")).partition(
        "+"
    )  # after the plus: that files differed from the commit
    return (
        f"{environment.get('processor')}, {environment.get('threads')} thread(s), torch {environment.get('torch')}, "
        f"almakit {environment.get('almakit')} (source {head[:12]}{plus}{rest})"
    )


def to_json(entries: Sequence[Entry], environment: dict[str, Any] | None, skipped: Sequence[str]) -> str:
    """The entries one to a line, so that a stored file shows in a diff what changed."""
    wanted = ("almakit", "commit", "python", "torch", "processor", "cores", "threads", "device", "system", "machine")
    machine = {name: environment.get(name) for name in wanted} if environment else None
    lines = ",\n".join("  " + json.dumps(asdict(entry), ensure_ascii=False, allow_nan=False) for entry in entries)
    head = json.dumps({"format": FORMAT, "machine": machine, "skipped": list(skipped)}, ensure_ascii=False, indent=1)
    return f'{head[:-2]},\n "entries": [\n{lines}\n ]\n}}\n'


def from_json(path: Path) -> tuple[list[Entry], dict[str, Any]]:
    """The entries of a stored file and the rest of it: machine, skipped."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        known = {field.name for field in fields(Entry)}
        entries = [
            Entry(**{**row, "paper": Published(**row["paper"]) if row["paper"] else None})
            for row in content["entries"]
            if set(row) | {"machine", "folder_sha256"} == known
        ]
        if content["format"] != FORMAT or len(entries) != len(content["entries"]):
            raise ValueError("another format")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{path} is not a reproduce.json of this almakit ({error}).") from error
    return entries, {key: value for key, value in content.items() if key != "entries"}
