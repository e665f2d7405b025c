"""The paper's own figures beside ours, where the same model, distance, attack and budget are in its tables. No torch here."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ..eval.records import AttackInfo
from . import labels

FILE = "tables.csv"
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
    place = files("almakit").joinpath("paper", FILE)
    return read(place.read_text(encoding="utf-8")) if place.is_file() else {}


def read(text: str) -> dict[Key, Published]:
    """Tables as CSV: dataset, model, distance, attack, budget -> figures."""
    return {
        (row["dataset"], row["model"], row["distance"], row["attack"], row["budget"]): Published(
            _share(row["asr_percent"]), _number(row["median_distance"]), _number(row["forwards"]), _number(row["backwards"])
        )
        for row in csv.DictReader(text.splitlines())
    }


def published(model: str, data: str, info: AttackInfo, known: dict[Key, Published] | None = None) -> Published | None:
    """The paper's row for this attack, or None. Models are named ``dataset/name`` here as in the zoo."""
    rows = tables() if known is None else known
    dataset, _, name = model.partition("/")
    if not name or data.partition(":")[0].partition("/")[0] != dataset or labels.extras(info) or info.targeted:
        return None
    if info.distance == "ciede2000":
        return None  # the paper's runs measured another CIEDE2000
    distance = "ciede2000" if info.distance == "ciede2000-paper" else info.distance
    attack, budget = info.text.partition("(")[0], labels.budget(info).replace("×", "x")
    candidates = [(attack, budget), (attack, "")]
    if attack in SUFFIXES:
        candidates += [(SUFFIXES[attack], ""), (SUFFIXES[attack], budget)]
    keys = [(dataset, name, distance, *candidate) for candidate in candidates]
    return next((rows[key] for key in keys if key in rows), None)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _share(text: str) -> float | None:
    value = _number(text)
    return None if value is None else value / 100
