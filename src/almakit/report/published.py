"""The paper's own figures beside ours, where the same model, distance, attack and budget are in its tables. No torch
here."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ..runs.store.records import AttackInfo
from . import labels

FILE, GRID, MODELS = "tables.csv", "grid.csv", "models.csv"
SUFFIXES = {"apgd-t": "apgd-t-dlr+search", "apgd": "apgd-t-dlr+search", "lpa": "lpa+search"}
"""Attacks whose name in the paper's tables says more than ours."""


@dataclass(frozen=True)
class Published:
    """A row of the paper's tables; None where it prints a dash."""

    success: float | None
    median: float | None
    forwards: float | None
    backwards: float | None


Key = tuple[str, str, str, str, str]


@cache
def tables() -> dict[Key, Published]:
    """The paper's tables, where the package holds them."""
    place = files("almakit").joinpath("paper").joinpath(FILE)
    return read(place.read_text(encoding="utf-8")) if place.is_file() else {}


def read(text: str) -> dict[Key, Published]:
    """Tables as CSV: dataset, model, distance, attack, budget -> figures."""
    return {
        (row["dataset"], row["model"], row["distance"], row["attack"], row["budget"]): Published(
            _share(row["asr_percent"]),
            _number(row["median_distance"]),
            _number(row["forwards"]),
            _number(row["backwards"]),
        )
        for row in csv.DictReader(text.splitlines())
    }


@cache
def grid() -> dict[tuple[str, str], tuple[str, str, str]]:
    """(data set, attack text) -> (distance, attack, budget) as the paper's tables call the attack with the settings of
    its runs."""
    return {(row["dataset"], row["text"]): (row["distance"], row["attack"], row["budget"]) for row in _rows(GRID)}


@cache
def models() -> dict[str, str]:
    """Name in the zoo -> name in the paper's tables."""
    return {row["name"]: row["model"] for row in _rows(MODELS)}


def published(model: str, data: str, info: AttackInfo, known: dict[Key, Published] | None = None) -> Published | None:
    """The paper's row for this attack, or None. Models are named ``dataset/name`` as in the zoo, perhaps with
    ``@<weights file>``.

    An attack with the settings of the paper's runs is found by its text; one with almakit's own defaults stands for the
    same cell.
    """
    rows = tables() if known is None else known
    own = model.partition("@")[0]
    dataset, _, name = own.partition("/")
    if not name or _data_set(data) != dataset or info.targeted:
        return None
    name = models().get(own, name)
    if (dataset, info.text) in grid():
        return rows.get((dataset, name, *grid()[dataset, info.text]))
    if labels.extras(info) or info.distance == "ciede2000":
        return None  # the paper's runs measured another CIEDE2000
    distance = "ciede2000" if info.distance == "ciede2000-paper" else info.distance
    attack, budget = info.text.partition("(")[0], labels.budget(info).replace("×", "x")
    candidates = [(attack, budget), (attack, "")]
    if attack in SUFFIXES:
        candidates += [(SUFFIXES[attack], ""), (SUFFIXES[attack], budget)]
    keys = [(dataset, name, distance, *candidate) for candidate in candidates]
    return next((rows[key] for key in keys if key in rows), None)


def _data_set(data: str) -> str:
    """The data set behind a URI: its name, or that of the list `almakit reproduce` wrote."""
    kind, _, rest = data.partition(":")
    return "imagenet" if kind == "folder" and rest.endswith("imagenet-sample.csv") else kind.partition("/")[0]


def _rows(file: str) -> list[dict[str, str]]:
    place = files("almakit").joinpath("paper").joinpath(file)
    return list(csv.DictReader(place.read_text(encoding="utf-8").splitlines())) if place.is_file() else []


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _share(text: str) -> float | None:
    value = _number(text)
    return None if value is None else value / 100
