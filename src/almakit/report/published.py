"""The paper's published numbers for runs on one of its models with its settings. No torch here."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ..runs.store.records import AttackInfo


@dataclass(frozen=True)
class Published:
    """A row of the paper's tables; None for a dash."""

    success: float | None
    median: float | None
    forwards: float | None
    backwards: float | None


Key = tuple[str, str, str, str, str]
"""Data set, model, distance, attack, budget."""


def rows(file: str) -> list[dict[str, str]]:
    """A table of the package ``almakit.paper``: tables.csv, grid.csv, attacks.csv or models.csv."""
    text = files("almakit").joinpath("paper").joinpath(file).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@cache
def tables() -> dict[Key, Published]:
    """The paper's tables."""
    found = {}
    for row in rows("tables.csv"):
        success, *others = (
            float(row[name]) if row[name].strip("-") else None
            for name in ("asr_percent", "median_distance", "forwards", "backwards")
        )
        key = (row["dataset"], row["model"], row["distance"], row["attack"], row["budget"])
        found[key] = Published(None if success is None else success / 100, *others)
    return found


@cache
def _grid() -> dict[tuple[str, str], tuple[str, str, str]]:
    """(distance, attack, budget) in the paper's tables, by (data set, attack text)."""
    return {(row["dataset"], row["text"]): (row["distance"], row["attack"], row["budget"]) for row in rows("grid.csv")}


@cache
def _models() -> dict[str, str]:
    """The name in the paper's tables by the name in the zoo."""
    return {row["name"]: row["model"] for row in rows("models.csv")}


def published(model: str, data: str, info: AttackInfo) -> Published | None:
    """The paper's row for this attack with the settings of the paper's runs, or None.

    Models are named ``dataset/name`` as in the zoo, optionally with ``@<weights file>``.
    """
    own = model.partition("@")[0]
    dataset = own.partition("/")[0]
    cell = _grid().get((dataset, info.text))
    if cell is None or own not in _models() or info.targeted or _data_set(data) != dataset:
        return None
    return tables().get((dataset, _models()[own], *cell))


def _data_set(data: str) -> str:
    """The data set of a URI: its name, or that of the list written by `almakit reproduce`."""
    kind, _, rest = data.partition(":")
    return "imagenet" if kind == "folder" and rest.endswith("imagenet-sample.csv") else kind.partition("/")[0]
