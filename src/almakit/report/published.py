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


@cache
def _rows() -> dict[tuple[str, str, str, str, str], Published]:
    place = files("almakit").joinpath("paper", FILE)
    if not place.is_file():
        return {}
    rows = csv.DictReader(place.read_text(encoding="utf-8").splitlines())
    return {
        (row["dataset"], row["model"], row["distance"], row["attack"], row["budget"]): Published(
            _share(row["asr_percent"]),
            _number(row["median_distance"]),
            _number(row["forwards"]),
            _number(row["backwards"]),
        )
        for row in rows
    }


def published(model: str, data: str, info: AttackInfo) -> Published | None:
    """The paper's row for this attack, or None. Models are named ``dataset/name`` here as in the zoo."""
    dataset, _, name = model.partition("/")
    if not name or data.partition(":")[0].partition("/")[0] != dataset or labels.extras(info) or info.targeted:
        return None
    attack = info.text.partition("(")[0]
    distance = "ciede2000" if info.distance == "ciede2000-paper" else info.distance
    if info.distance == "ciede2000":
        return None  # the paper's runs measured another CIEDE2000
    budget = labels.budget(info).replace("×", "x")
    candidates = [(attack, budget), (attack, "")] + (
        [(SUFFIXES[attack], ""), (SUFFIXES[attack], budget)] if attack in SUFFIXES else []
    )
    keys = [(dataset, name, distance, *candidate) for candidate in candidates]
    return next((_rows()[key] for key in keys if key in _rows()), None)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _share(text: str) -> float | None:
    value = _number(text)
    return None if value is None else value / 100
