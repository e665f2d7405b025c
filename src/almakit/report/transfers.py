"""The transfer matrix: what was found with one model, judged by others. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..runs.folder import RunFolder
from ..runs.store.derived import Seen, read_transfers
from .labels import label_attacks


def matrix(runs: Sequence[RunFolder]) -> dict[str, Any] | None:
    """Rows: each run's model and attack, columns: the models that were asked; None where none was.

    A cell counts the stored images of the row whose goal the column's model does not reach on the clean image, and
    those of them that reach it with the stored one.
    """
    asked = [
        (run, {(part.target, str(part.model_sha256)): part for part in read_transfers(run.folder)}) for run in runs
    ]
    targets = list(dict.fromkeys(key for _, parts in asked for key in parts))
    if not targets:
        return None
    rows = [
        {
            "source": _source(run, runs),
            "attack": info.text,
            "label": label.label,
            "cells": [_cell(parts[key].seen.get(info.text, {}) if key in parts else {}) for key in targets],
        }
        for run, parts in asked
        if parts
        for info, label in zip(run.attacks, label_attacks(run.attacks), strict=True)
    ]
    names = [name for name, _ in targets]
    # Models of one name, such as a file before and after an edit, are told apart by their identity.
    shown = [f"{name} ({model[:8]})" if names.count(name) > 1 else name for name, model in targets]
    return {"targets": shown, "rows": rows}


def _source(run: RunFolder, runs: Sequence[RunFolder]) -> str:
    """The run's model, with its folder where another model of the same name stands beside it."""
    name = run.spec.model
    others = [other for other in runs if other.spec.model == name and other.model_sha256 != run.model_sha256]
    return f"{name} ({run.folder.name})" if others else name


def _cell(seen: dict[str, Seen]) -> dict[str, Any] | None:
    right = [stored for clean, stored in seen.values() if not clean]
    return {"images": len(right), "fooled": sum(right), "share": sum(right) / len(right)} if right else None


def as_text(made: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and rows of a matrix for a terminal."""
    cells = [[f"{100 * cell['share']:.1f} %" if cell else "-" for cell in row["cells"]] for row in made["rows"]]
    rows = [(row["source"], row["attack"], *shown) for row, shown in zip(made["rows"], cells, strict=True)]
    return ("found with", "attack", *made["targets"]), rows
