"""``almakit board``: a leaderboard of run folders. For each set of images the models, for each distance and goal a
table models x attacks; a page for each model and board.json, in one folder that needs no server. No torch here."""

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
from ..radius import same
from ..runs.failures import StoreError, writable
from ..runs.folder import RunFolder
from ..runs.radii import Radii, for_distances, texts_of
from ..runs.store import files
from ..runs.store.fields import finite
from ..runs.threat import goal_name, resisted, sentence, threat_of
from . import page
from .labels import distance_name, radius
from .numbers import Array, median
from .page import CELLS, Limits, packed, thinned
from .results import Results
from .subjects import Group, Subject, group_key, group_name, groups_of, joined, opened
from .summary import certified_accuracy

FORMAT = 1
"""Of board.json."""
VERSIONS = ("almakit", "torch", "python", "device")


@dataclass
class Table:
    """The models that were attacked on one set of images."""

    data: str
    images: int
    sha256: str  # of the images and labels, as far as any folder has them
    runs: list[RunFolder]
    subjects: list[Subject]

    def summary(self, run: RunFolder) -> dict[str, Any]:
        """The summary of one of the runs."""
        pairs = (pair for subject in self.subjects for pair in zip(subject.runs, subject.summaries, strict=True))
        return next(summary for mine, summary in pairs if mine is run)


@dataclass
class Board:
    """What the folders hold, and which of them could not be read."""

    tables: list[Table]
    left_out: list[tuple[str, str]]  # folder, why


def read(folders: Sequence[str | Path], epsilons: Radii = ()) -> Board:
    """The folders' runs, each set of images apart. A folder that is no run folder, is damaged or has no results yet is
    left out, with the reason."""
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
    asked = for_distances(texts_of(epsilons), known)
    tables = [_table(group, asked) for group in _by_images(runs)]
    return Board(sorted(tables, key=lambda table: (-len(table.subjects), table.data, table.sha256)), left_out)


def _by_images(runs: Sequence[RunFolder]) -> list[list[RunFolder]]:
    """Runs on the same images: as many of them, and the same contents and labels wherever both have got to."""
    groups: list[tuple[int, dict[int, tuple[str, int]], list[RunFolder]]] = []
    for run in runs:
        expected, mine = (
            int(run.meta.get("images", len(run.images))),
            {info.index: info.content for info in run.images},
        )
        for size, images, members in groups:
            common = images.keys() & mine.keys()
            known = members[0].meta.get("features") == run.meta.get("features")
            if size == expected and known and common and all(images[index] == mine[index] for index in common):
                images.update(mine)
                members.append(run)
                break
        else:
            groups.append((expected, mine, [run]))
    return [members for _, _, members in groups]


def _table(runs: list[RunFolder], asked: dict[str, list[float]]) -> Table:
    images = {info.index: info.content for run in runs for info in run.images}
    digest = hashlib.sha256("".join(f"{index}\t{images[index]}\n" for index in sorted(images)).encode()).hexdigest()
    here = {info.distance for run in runs for info in run.attacks}
    found = joined(runs, {distance: values for distance, values in asked.items() if distance in here})
    run = runs[0]
    return Table(
        str(run.meta.get("data") or run.spec.data), int(run.meta.get("images", len(images))), digest, runs, found
    )


def page_name(subject: Subject) -> str:
    """The file of a model's page, the same as long as its identity and name are."""
    slug = re.sub(r"[^a-z0-9]+", "-", subject.name.lower()).strip("-")[:60] or "model"
    what = "\n".join([str(subject.runs[0].model_sha256), subject.name, *(info.sha256 for info in subject.images)])
    return f"{slug}-{hashlib.sha256(what.encode()).hexdigest()[:8]}.html"


Pack = Callable[[Array], str]


def numbers(board: Board, curves: bool = False) -> dict[str, Any]:
    """Everything the board shows, as written to board.json; for the page with ``curves``, the sorted distances behind
    each cell.

    In a large board those are thinned as a report's are.
    """
    many = (
        sum(len(column.records) for table in board.tables for subject in table.subjects for column in subject.columns)
        > CELLS
    )
    pack: Pack | None = (lambda values: packed(thinned(values) if many else np.sort(values))) if curves else None
    return {
        "format": FORMAT,
        "tables": [
            {
                "key": table.sha256[:8],
                "data": table.data,
                "images": table.images,
                "sha256": table.sha256,
                "runs": [_provenance(table, run) for run in table.runs],
                "models": [_model(table, subject) for subject in table.subjects],
                "blocks": [_block(table, group, pack) for group in groups_of(table.subjects)],
            }
            for table in board.tables
        ],
        "left_out": [{"folder": name, "why": why} for name, why in board.left_out],
    }


def _provenance(table: Table, run: RunFolder) -> dict[str, Any]:
    summary = table.summary(run)
    environment = summary["environment"] or {}
    there = len(run.records)
    return {
        "folder": run.folder.name,
        "sha256": run.sha256,
        "model": summary["run"]["model"],
        "started": summary["started"],
        "threat_model": sentence(threat_of(run.spec)),
        "complete": summary["complete"],
        "results": there,
        "expected": there + summary["missing_records"],
        **{name: summary["run"][name] for name in ("model_sha256", "weights_sha256", "data_sha256", "spec_sha256")},
        **{name: environment.get(name) for name in VERSIONS},
    }


def _model(table: Table, subject: Subject) -> dict[str, Any]:
    places = [place for place, run in enumerate(table.runs) if run in subject.runs]
    return {
        "name": subject.name,
        "page": f"models/{page_name(subject)}",
        "images": len(subject.images),
        "complete": subject.complete,
        "clean_accuracy": subject.summaries[0]["clean_accuracy"],
        "runs": places,
    }


def _block(table: Table, group: Group, pack: Pack | None) -> dict[str, Any]:
    """Models x attacks for one distance and goal; the first column of cells is all attacks together."""
    radii = table.subjects[0].radii[group[0]]
    mine = [(number, subject.of_group(group)) for number, subject in enumerate(table.subjects)]
    heads = list(dict.fromkeys(column.label.label for _, columns in mine for column in columns))
    spends = {column.label.label: column.info.text for _, columns in mine for column in columns}
    rows = []
    for number, columns in mine:
        if not columns:
            continue
        subject, by_label = table.subjects[number], {column.label.label: column for column in columns}
        cells = [None if head not in by_label else _cell(table, by_label[head], radii, pack) for head in heads]
        rows.append({"model": number, "all": _together(subject, group, pack), "cells": cells})
    return {
        "key": group_key(group),
        "distance": group[0],
        "goal": group[1],
        "what": resisted(goal_name(group[1])),
        "label": distance_name(group[0]).label,
        "name": group_name(group),
        "radii": [{"epsilon": epsilon, "text": radius(epsilon, group[0])} for epsilon in radii],
        "attacks": [{"label": head, "text": spends[head]} for head in heads],
        "rows": rows,
    }


def _cell(table: Table, column: Results, radii: Sequence[float], pack: Pack | None) -> dict[str, Any]:
    part, values = column.numbers, column.distances
    at = radii if math.isinf(column.reach) else [column.reach]
    passes = None if part["forwards"]["mean"] is None else part["forwards"]["mean"] + part["backwards"]["mean"]
    cell = {
        "run": next(place for place, run in enumerate(table.runs) if run is column.run),
        "epsilon": finite(column.reach),
        "records": len(values),
        "images": part["images"],
        "robust_accuracy": [row for row in part["robust_accuracy"] if any(same(row["epsilon"], here) for here in at)],
        "median": part["median_all"],
        "passes": passes,
        "seconds": part["seconds"]["per_image"],
    }
    if pack is not None:
        curve = pack(values) if column.info.minimal else None
        cell |= {"curve": curve, "grid": asdict(column.grid), "from": column.stop}
    return cell


def _together(subject: Subject, group: Group, pack: Pack | None) -> dict[str, Any]:
    """The worst case, and what is certified of the images, whichever attack stands beside them."""
    cell = dict(zip(subject.groups, subject.worst_cases, strict=True))[group] | {"certified": None}
    if radii := {} if group[1] else subject.certified(group[0]):
        proven = np.array(list(radii.values()))
        accuracy = certified_accuracy(proven, subject.radii[group[0]])
        cell["certified"] = {"images": len(proven), "median": finite(median(proven)), "accuracy": accuracy}
    if pack is not None:
        together = subject.groups[group]
        curve = pack(_known(together.curve)) if any(map(math.isinf, together.reaches)) else None
        cell |= {"curve": curve, "grid": asdict(together.grid), "from": together.start}
    return cell


def _known(values: Array) -> Array:
    return values[~np.isnan(values)]


SCRIPTS = ("core", "theme", "board")
FEW = Limits(12, 2.0)
"""Pictures on a model's page: a board may have many."""
PAGE = re.compile(r"models/[a-z0-9-]+\.html")


def write_board(
    folders: Sequence[str | Path], out: str | Path, epsilons: Radii = (), limits: Limits = FEW
) -> tuple[Board, list[Path]]:
    """Reads the run folders and writes ``index.html``, ``models/*.html`` and ``board.json`` into ``out``; returns the
    board and what was written.

    Pages of models that an earlier board here had, and this one has not, are taken away.
    """
    place = Path(out)
    found = read([folder for folder in folders if Path(folder).resolve() != place.resolve()], epsilons)
    data = numbers(found)
    texts = {
        model["page"]: page.render([subject], limits, board="../index.html")
        for table, part in zip(found.tables, data["tables"], strict=True)
        for subject, model in zip(table.subjects, part["models"], strict=True)
    }
    before = _pages(place)
    texts["index.html"] = render(found)
    texts["board.json"] = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    for name, text in texts.items():
        files.write_bytes(files.inside(place, name), writable(text).encode())
    for name in before - texts.keys():
        files.inside(place, name).unlink(missing_ok=True)
    return found, [
        place / name for name in ("index.html", "board.json", *(name for name in texts if name.startswith("models/")))
    ]


def _pages(place: Path) -> set[str]:
    """The model pages of the board that lies there already, as its board.json names them."""
    try:
        known = json.loads((place / "board.json").read_text(encoding="utf-8"))
        return {
            model["page"] for table in known["tables"] for model in table["models"] if PAGE.fullmatch(model["page"])
        }
    except (OSError, ValueError, TypeError, KeyError):
        return set()


def render(found: Board) -> str:
    """The leaderboard's page; all names in it come from outside and are only ever used as text."""
    data = numbers(found, curves=True)
    runs = [run for table in data["tables"] for run in table["runs"]]
    return writable(
        page.template("board.html.j2").render(
            **page.frame(SCRIPTS),
            data=page.embedded(data | {"distances": [], "groups": [], "watch": None}),
            board=data,
            counts={
                "models": len({model["name"] for table in data["tables"] for model in table["models"]}),
                "folders": len(runs),
                "attacks": len(
                    {head["text"] for table in data["tables"] for block in table["blocks"] for head in block["attacks"]}
                ),
            },
            unfinished=[run for run in runs if not run["complete"]],
            first=_first,
        )
    )


def _first(cell: dict[str, Any] | None, block: dict[str, Any]) -> dict[str, Any] | None:
    """What a cell shows before anything is chosen: robust accuracy at the block's first radius."""
    if cell is None or not block["radii"]:
        return None
    at = block["radii"][0]["epsilon"]
    return next((row for row in cell["robust_accuracy"] if same(row["epsilon"], at) and row["value"] is not None), None)
