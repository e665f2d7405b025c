"""``almakit board``: a static leaderboard of run folders. For each set of images, distance and goal it has a table of
models and attacks; a page for each model; and board.json. No torch here."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import AlmakitError
from ..radius import Grid, readable, same
from ..runs.failures import StoreError, writable
from ..runs.folder import RunFolder
from ..runs.radii import Radii, for_distances, texts_of
from ..runs.store import files
from ..runs.store.fields import finite
from ..runs.threat import goal_name, resisted
from . import page
from .labels import distance_name
from .numbers import Array, median
from .page import ordered, packed
from .results import Results
from .subjects import Group, Subject, group_key, group_name, groups_of, joined, opened
from .summary import certified_accuracy

FORMAT = 1
"""Of board.json."""
CURVE = 2_000
"""Largest number of points of a curve; the share above any epsilon is then exact to 1/(2 CURVE)."""
VERSIONS = ("almakit", "torch", "python", "device")
HASHES = ("model_sha256", "weights_sha256", "data_sha256", "spec_sha256")


@dataclass
class Table:
    """The models that were attacked on one set of images."""

    data: str
    images: int
    sha256: str  # hash of the images and labels that any folder contains
    subjects: list[Subject]

    @property
    def runs(self) -> list[tuple[RunFolder, dict[str, Any]]]:
        """The run folders with their summaries."""
        return [pair for subject in self.subjects for pair in zip(subject.runs, subject.summaries, strict=True)]

    def place(self, run: RunFolder) -> int:
        return [mine for mine, _ in self.runs].index(run)


@dataclass
class Board:
    """The contents of the folders, and the folders that could not be read."""

    tables: list[Table]
    left_out: list[tuple[str, str]]  # folder, why


def read(folders: Sequence[str | Path], epsilons: Radii = ()) -> Board:
    """The runs of the folders, grouped by their images. A folder that is not a run folder, is damaged or has no results
    is left out, with the reason."""
    if not folders:
        raise StoreError("name at least one run folder.")
    runs, left_out = [], []
    for place in dict.fromkeys(Path(folder).resolve() for folder in folders):
        try:
            run = opened(place)
        except AlmakitError as error:
            left_out.append((place.name, str(error).replace(str(place), place.name)))
            continue
        if run.records:
            runs.append(run)
        else:
            left_out.append((place.name, "it has no results yet; run the same `almakit run` command again."))
    if not runs:
        raise StoreError("none of these folders has results: " + "; ".join(f"{name}: {why}" for name, why in left_out))
    known = list(dict.fromkeys(info.distance for run in runs for info in run.attacks))
    chosen = for_distances(texts_of(epsilons), known)
    tables = [_table(size, images, group, chosen) for size, images, group in _by_images(runs)]
    return Board(sorted(tables, key=lambda table: (-len(table.subjects), table.data, table.sha256)), left_out)


Contents = dict[int, tuple[str, int]]
"""Hash and label by image."""


def _by_images(runs: Sequence[RunFolder]) -> list[tuple[int, Contents, list[RunFolder]]]:
    """Groups of runs on the same images: equal in number, and with equal contents and labels where both have
    finished."""
    groups: list[tuple[int, Contents, list[RunFolder]]] = []
    for run in runs:
        expected = int(run.meta.get("images", len(run.images)))
        mine = {info.index: info.content for info in run.images}
        for size, images, members in groups:
            common = images.keys() & mine.keys()
            known = members[0].meta.get("features") == run.meta.get("features")
            if size == expected and known and common and all(images[index] == mine[index] for index in common):
                images.update(mine)
                members.append(run)
                break
        else:
            groups.append((expected, mine, [run]))
    return groups


def _table(size: int, images: Contents, runs: list[RunFolder], chosen: dict[str, list[float]]) -> Table:
    digest = hashlib.sha256("".join(f"{index}\t{images[index]}\n" for index in sorted(images)).encode()).hexdigest()
    here = {info.distance for run in runs for info in run.attacks}
    found = joined(runs, {distance: values for distance, values in chosen.items() if distance in here})
    return Table(str(runs[0].meta.get("data") or runs[0].spec.data), size, digest, found)


def page_name(subject: Subject) -> str:
    """The file name of a model's page, determined by the model's identity and name."""
    slug = re.sub(r"[^a-z0-9]+", "-", subject.name.lower()).strip("-")[:60] or "model"
    what = "\n".join([str(subject.runs[0].model_sha256), subject.name, *(info.sha256 for info in subject.images)])
    return f"{slug}-{hashlib.sha256(what.encode()).hexdigest()[:8]}.html"


def numbers(board: Board, curves: bool = False) -> dict[str, Any]:
    """Everything the board shows, as written to board.json. With ``curves`` also the distances of each cell, for the
    page, at most ``CURVE`` of each."""

    def curve_of(values: Array | None, grid: Grid, start: float) -> dict[str, Any]:
        if not curves:
            return {}
        return {"curve": None if values is None else packed(_thinned(values)), "grid": asdict(grid), "from": start}

    return {
        "format": FORMAT,
        "tables": [
            {
                "key": table.sha256[:8],
                "data": table.data,
                "images": table.images,
                "sha256": table.sha256,
                "runs": [_provenance(run, summary) for run, summary in table.runs],
                "models": [_model(table, subject) for subject in table.subjects],
                "blocks": [_block(table, group, curve_of) for group in groups_of(table.subjects)],
            }
            for table in board.tables
        ],
        "left_out": [{"folder": name, "why": why} for name, why in board.left_out],
    }


def _thinned(values: Array) -> Array:
    """The known distances in rising order, at most ``CURVE`` of them."""
    known = ordered(values)
    if len(known) <= CURVE:
        return known
    return known[((np.arange(CURVE) + 0.5) * len(known) / CURVE).astype(np.int64)]


def _provenance(run: RunFolder, summary: dict[str, Any]) -> dict[str, Any]:
    environment = summary["environment"] or {}
    return {
        "folder": run.folder.name,
        "sha256": run.sha256,
        "started": summary["started"],
        "complete": summary["complete"],
        "results": len(run.records),
        "expected": len(run.records) + summary["missing_records"],
        **{name: summary["run"][name] for name in ("model", "threat_model", *HASHES)},
        **{name: environment.get(name) for name in VERSIONS},
    }


def _model(table: Table, subject: Subject) -> dict[str, Any]:
    return {
        "name": subject.name,
        "page": f"models/{page_name(subject)}",
        "images": len(subject.images),
        "complete": subject.complete,
        "clean_accuracy": subject.summaries[0]["clean_accuracy"],
        "runs": [table.place(run) for run in subject.runs],
    }


def _block(table: Table, group: Group, curve_of: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """Models and attacks for one distance and goal. The first column of cells contains all attacks together."""
    radii = table.subjects[0].radii[group[0]]
    texts = {c.label.label: c.info.text for subject in table.subjects for c in subject.of_group(group)}
    rows = []
    for number, subject in enumerate(table.subjects):
        if together := subject.groups.get(group):
            cells: dict[str, Any] = dict.fromkeys(texts)
            for column in together.attacks:
                values = column.distances if column.info.minimal else None
                here = curve_of(values, column.grid, column.stop)
                cells[column.label.label] = _cell(column, radii) | {"run": table.place(column.run)} | here
            worst = dict(zip(subject.groups, subject.worst_cases, strict=True))[group]
            here = curve_of(together.curve if together.minimal else None, together.grid, together.start)
            everything = worst | {"certified": _certified(subject, group, radii)} | here
            rows.append({"model": number, "all": everything, "cells": list(cells.values())})
    return {
        "key": group_key(group),
        "distance": group[0],
        "goal": group[1],
        "what": resisted(goal_name(group[1])),
        "label": distance_name(group[0]).label,
        "name": group_name(group),
        "radii": [{"epsilon": epsilon, "text": readable(epsilon, group[0])} for epsilon in radii],
        "attacks": [{"label": label, "text": text} for label, text in texts.items()],
        "rows": rows,
    }


def _cell(column: Results, radii: Sequence[float]) -> dict[str, Any]:
    """The numbers of an attack, as in its summary."""
    part = column.numbers
    at = radii if math.isinf(column.reach) else [column.reach]
    forwards, backwards = part["forwards"]["mean"], part["backwards"]["mean"]
    return {
        "epsilon": finite(column.reach),
        "records": part["records"],
        "images": part["images"],
        "robust_accuracy": [row for row in part["robust_accuracy"] if any(same(row["epsilon"], here) for here in at)],
        "median": part["median_all"],
        "passes": None if forwards is None else forwards + backwards,
        "seconds": part["seconds"]["per_image"],
    }


def _certified(subject: Subject, group: Group, radii: Sequence[float]) -> dict[str, Any] | None:
    """The certified radii of the images, over all runs; None without certificates."""
    known = {} if group[1] else subject.certified(group[0])
    found = np.array(list(known.values()))
    accuracy = certified_accuracy(found, radii)
    return {"images": len(found), "median": finite(median(found)), "accuracy": accuracy} if known else None


SCRIPTS = ("core", "theme", "board")


def write_board(
    folders: Sequence[str | Path], out: str | Path, epsilons: Radii = (), images: int | None = None
) -> tuple[Board, list[Path]]:
    """Read run folders and write ``index.html``, ``models/*.html`` and ``board.json`` into ``out``. Returns the board
    and the files."""
    place = Path(out)
    found = read([folder for folder in folders if Path(folder).resolve() != place.resolve()], epsilons)
    texts = {
        "index.html": render(found),
        "board.json": json.dumps(numbers(found), indent=1, ensure_ascii=False, allow_nan=False) + "\n",
    }
    for subject in (subject for table in found.tables for subject in table.subjects):
        texts[f"models/{page_name(subject)}"] = page.render([subject], images, board="../index.html")
    for name, text in texts.items():
        files.write_bytes(files.inside(place, name), writable(text).encode())
    return found, [place / name for name in texts]


def render(found: Board) -> str:
    """The leaderboard's page. Names come from untrusted folders and are used as text only."""
    data = numbers(found, curves=True)
    runs = [run for table in data["tables"] for run in table["runs"]]
    models = {model["name"] for table in data["tables"] for model in table["models"]}
    heads = {head["text"] for table in data["tables"] for block in table["blocks"] for head in block["attacks"]}
    return writable(
        page.template("board.html.j2").render(
            **page.frame(SCRIPTS),
            data=page.embedded(data | {"distances": [], "groups": []}),
            board=data,
            counts={"models": len(models), "folders": len(runs), "attacks": len(heads)},
            unfinished=[run for run in runs if not run["complete"]],
            first=_first,
        )
    )


def _first(cell: dict[str, Any] | None, block: dict[str, Any]) -> dict[str, Any] | None:
    """The initial value of a cell: robust accuracy at the block's first radius."""
    if cell is None or not block["radii"]:
        return None
    at = block["radii"][0]["epsilon"]
    return next((row for row in cell["robust_accuracy"] if same(row["epsilon"], at) and row["value"] is not None), None)
