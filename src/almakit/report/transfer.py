"""The transfer matrix: adversarial images of one model, tested on other models. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..runs.folder import RunFolder
from ..runs.store.derived import Seen, read_transfers
from ..wilson import wilson
from .labels import label_attacks
from .table import NONE, Column, Row, Table


def matrix(runs: Sequence[RunFolder]) -> dict[str, Any] | None:
    """One row per run's model and attack, one column per model on which its images were tested; None without transfers.

    A cell counts the row's images whose clean version does not reach the goal on the column's model, and those of them
    whose adversarial version does.
    """
    judged = [
        (run, {(part.target, str(part.model_sha256)): part for part in read_transfers(run.folder)}) for run in runs
    ]
    targets = list(dict.fromkeys(key for _, parts in judged for key in parts))
    if not targets:
        return None
    rows = [
        {
            "source": _source(run, runs),
            "attack": info.text,
            "label": label.label,
            "cells": [_cell(parts[key].seen.get(info.text, {}) if key in parts else {}) for key in targets],
        }
        for run, parts in judged
        if parts
        for info, label in zip(run.attacks, label_attacks(run.attacks), strict=True)
    ]
    names = [name for name, _ in targets]
    # Models with equal names, such as a file before and after an edit, are distinguished by their identity.
    shown = [f"{name} ({model[:8]})" if names.count(name) > 1 else name for name, model in targets]
    return {"targets": shown, "rows": rows}


def _source(run: RunFolder, runs: Sequence[RunFolder]) -> str:
    """The name of the run's model, with its folder if another model has the same name."""
    name = run.spec.model
    others = [other for other in runs if other.spec.model == name and other.model_sha256 != run.model_sha256]
    return f"{name} ({run.folder.name})" if others else name


def _cell(seen: dict[str, Seen]) -> dict[str, Any] | None:
    right = [stored for clean, stored in seen.values() if not clean]
    if not right:
        return None
    value, low, high = (sum(right) / len(right), *wilson(sum(right) / len(right), len(right)))
    return {"images": len(right), "fooled": sum(right), "share": value, "low": low, "high": high}


def matrix_table(made: dict[str, Any]) -> Table:
    """The matrix in %, with the number of images below each share."""
    places = range(len(made["targets"]))
    columns = [Column("source", "found with"), Column("attack", "attack", tip="text")]
    columns += [Column(str(place), made["targets"][place], "share") for place in places]
    rows: list[Row] = []
    for row in made["rows"]:
        shown = [{"value": cell["share"], **cell} if cell else NONE for cell in row["cells"]]
        rows.append(
            {"source": row["source"], "attack": row["label"], "text": row["attack"]}
            | dict(zip(map(str, places), shown, strict=True))
        )
    return Table(tuple(columns), rows, "Transfer from models to models", kind="transfer")
