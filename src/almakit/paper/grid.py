"""The paper's grid as values: models, attacks, settings and budgets. No torch here."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import PurePath

from ..errors import BadInput
from ..report.labels import DISTANCES

DATASETS = ("mnist", "cifar10", "imagenet")
BUDGETS = ("small", "large", "both")
SAMPLES = {"mnist": 10_000, "cifar10": 1000, "imagenet": 1000}
"""How many images the paper used: all of MNIST's test set, the first 1000 of CIFAR-10's, 1000 of ImageNet's validation
set."""


def rows(file: str) -> list[dict[str, str]]:
    """A table of this package: tables.csv, grid.csv, attacks.csv or models.csv."""
    return list(csv.DictReader(files(__package__).joinpath(file).read_text(encoding="utf-8").splitlines()))


TITLES = {row["attack"]: row["title"] for row in rows("attacks.csv")}
COSTLY = tuple(row["attack"] for row in rows("attacks.csv") if row["costly"])
"""Attacks that take a hundred times the passes of the others; with ``--limit`` they get a fifth of its images unless
``--costly-limit`` says otherwise."""


@dataclass(frozen=True)
class Cell:
    """A line of the paper's tables: ``attack`` and ``budget`` as named there, and almakit's attack as ``text``."""

    dataset: str
    distance: str
    attack: str
    budget: str
    size: str  # small or large
    text: str

    @property
    def title(self) -> str:
        return title_of(self.attack, self.budget)

    @property
    def costly(self) -> bool:
        return self.attack in COSTLY

    @property
    def slug(self) -> str:
        """A name for a folder."""
        return re.sub(r"[^a-z0-9]+", "-", f"{self.distance}-{self.attack}-{self.budget}".lower()).strip("-")


@dataclass(frozen=True)
class Network:
    """A model of the paper: ``model`` in its tables, ``name`` in the zoo, ``label`` in almakit's tables."""

    dataset: str
    model: str
    name: str
    label: str


def title_of(attack: str, budget: str) -> str:
    """How tables call an attack with its budget: ``C&W 9×1000``."""
    return f"{TITLES[attack]} {budget.replace('x', '×')}".strip()


def measure_of(distance: str) -> str:
    """almakit's name for a distance of the paper, whose runs measured a variant of CIEDE2000."""
    return "ciede2000-paper" if distance == "ciede2000" else distance


def name_of(distance: str) -> str:
    """The paper's name for a distance."""
    key = measure_of(distance)
    return DISTANCES[key].label if key in DISTANCES else distance


@cache
def cells(dataset: str) -> tuple[Cell, ...]:
    """The cells for a data set in the paper's order, with attacks of almakit that the paper does not have."""
    return tuple(Cell(**row) for row in rows("grid.csv") if row["dataset"] == dataset)


@cache
def networks(dataset: str) -> tuple[Network, ...]:
    """The paper's models for a data set, in its order."""
    return tuple(Network(**row) for row in rows("models.csv") if row["dataset"] == dataset)


def network_of(dataset: str, uri: str) -> Network:
    """The network a URI stands for: one of the paper's, perhaps with a weights file of the user's (``name@file``), or
    another one."""
    name, at, file = uri.partition("@")
    known = next((network for network in networks(dataset) if network.name == name), None)
    if known is None:
        # A user's file is named by its file name; names of the zoo are unchanged.
        short = name.rpartition("/")[2] + (f"@{PurePath(file).name}" if at else "")
        return Network(dataset, name.rpartition("/")[2], uri, short if name.startswith(("/", ".", "~")) else uri)
    return replace(known, name=uri, label=f"{known.label} ({PurePath(file).name})") if at else known


def distinct(found: Sequence[Network]) -> list[Network]:
    """The networks with unique labels. Networks with equal labels, such as weights files with the same name in two
    folders, are labelled by their full URI."""
    labels = [network.label for network in found]
    return [replace(network, label=network.name) if labels.count(network.label) > 1 else network for network in found]


def choose(
    dataset: str, budget: str = "both", attacks: Sequence[str] = (), distances: Sequence[str] = ()
) -> list[Cell]:
    """The cells of a budget, of these attacks and distances (all of them where none are named)."""
    known = cells(dataset)
    for what, names, have in (
        ("attack", attacks, [cell.attack for cell in known]),
        ("distance", distances, [cell.distance for cell in known]),
    ):
        for name in names:
            if name not in have:
                raise BadInput(
                    f"the paper's tables for {dataset} have no {what} {name!r}; they have "
                    f"{', '.join(dict.fromkeys(have))}."
                )
    found = [
        cell
        for cell in known
        if budget in ("both", cell.size)
        and (not attacks or cell.attack in attacks)
        and (not distances or cell.distance in distances)
    ]
    if not found:
        raise BadInput(
            f"nothing is left of the paper's {dataset} tables with these --attacks, --distances and --budget."
        )
    return found


@dataclass(frozen=True)
class Published:
    """A row of the paper's tables; None for a dash."""

    success: float | None
    median: float | None
    forwards: float | None
    backwards: float | None


Key = tuple[str, str, str, str, str]
"""Data set, model, distance, attack, budget."""


@cache
def published() -> dict[Key, Published]:
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
