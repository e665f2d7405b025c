"""The transfer matrix: what was found with one model, judged by others. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..runs.folder import RunFolder
from ..runs.store import transfers
from ..runs.store.transfers import Seen
from .labels import label_attacks


def matrix(runs: Sequence[RunFolder]) -> dict[str, Any] | None:
    """Rows: each run's model and attack, columns: the models that were asked; None where none was.

    A cell counts the stored images of the row whose goal the column's model does not reach on the clean image, and
    those of them that reach it with the stored one.
    """
    asked = [(run, {part.target: part for part in transfers.read(run.folder)}) for run in runs]
    targets = list(dict.fromkeys(name for _, parts in asked for name in parts))
    if not targets:
        return None
    rows = [
        {
            "source": run.spec.model,
            "attack": info.text,
            "label": label.label,
            "cells": [_cell(parts[name].seen.get(info.text, {}) if name in parts else {}) for name in targets],
        }
        for run, parts in asked
        if parts
        for info, label in zip(run.attacks, label_attacks(run.attacks), strict=True)
    ]
    return {"targets": targets, "rows": rows}


def _cell(seen: dict[str, Seen]) -> dict[str, Any] | None:
    right = [stored for clean, stored in seen.values() if not clean]
    return {"images": len(right), "fooled": sum(right), "share": sum(right) / len(right)} if right else None


def as_text(made: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and rows of a matrix for a terminal."""
    cells = [[f"{100 * cell['share']:.1f} %" if cell else "-" for cell in row["cells"]] for row in made["rows"]]
    rows = [(row["source"], row["attack"], *shown) for row, shown in zip(made["rows"], cells, strict=True)]
    return ("found with", "attack", *made["targets"]), rows
