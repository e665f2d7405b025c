"""The main table as rows of plain values, in the paper's layout: model, then distance blocks, then attacks. No torch
here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..radius import same
from ..runs.threat import goal_name
from .brackets import words
from .numbers import Value
from .published import Published, published
from .subjects import Column, Subject, group_name, groups_of, labelled


@dataclass(frozen=True)
class Row:
    """An attack's line. Distances are None where infinite (nothing found for half of the images); other None: not
    defined."""

    label: str
    text: str
    images: int
    success: float | None
    median: float | None
    low: float | None
    high: float | None
    median_attacked: float | None
    forwards: float | None
    backwards: float | None
    seconds: float | None
    optimality: float | None
    success_8bit: float | None
    median_8bit: float | None
    paper: Published | None
    minimal: bool  # false: works at a fixed radius, and has neither median nor optimality
    robust: list[Value | None]  # robust accuracy at the block's radii; None where the attack says nothing about one
    over: str  # what success and median are over: images, or records (image and target)
    best: bool = False
    certified: tuple[str, str] = ("-", "-")  # "certified >=" and "gap", in words
    certified_value: float | None = None  # the median radius of the images the attack had to work on
    certified_share: float | None = None  # the median of certified over found

    @property
    def half_width(self) -> float | None:
        """The interval as one number: the larger of its two sides, None where an end is infinite."""
        if self.median is None or self.low is None or self.high is None:
            return None
        return max(self.high - self.median, self.median - self.low)


def over(blocks: Sequence[Block]) -> str:
    """What medians are over, for a caption."""
    many = any(row.over == "records" for block in blocks for row in block.rows)
    return "records (each image once for every target)" if many else "images"


@dataclass(frozen=True)
class Block:
    """The attacks on one model for one distance and one goal."""

    model: str
    distance: str
    goal: str  # empty: untargeted
    rows: list[Row]
    radii: list[float] = field(default_factory=list)  # where robust accuracy is given
    worst: list[Value | None] | None = None  # robust accuracy against all attacks together, where there are several

    @property
    def name(self) -> str:
        return group_name((self.distance, self.goal))

    @property
    def words(self) -> str:
        """The goal as it follows the distance's name."""
        return f", {goal_name(self.goal)}" if self.goal else ""


def blocks(subjects: Sequence[Subject]) -> list[Block]:
    """In the order of the page: subject by subject, the paper's distances first, targeted apart from untargeted."""
    labels, found = labelled(subjects), []
    for subject in subjects:
        meta = subject.runs[0].meta
        for group in groups_of([subject]):
            radii = subject.radii.get(group[0], [])
            rows = [
                _row(
                    column,
                    radii,
                    labels[id(column)].label,
                    published(meta.get("model", ""), meta.get("data", ""), column.info),
                )
                for column in subject.of_group(group)
            ]
            worst = [_known(row) for row in subject.worst_case(group)] if len(rows) > 1 else None
            found.append(Block(subject.name, *group, _with_best(rows), radii, worst))
    return found


def _row(column: Column, radii: Sequence[float], label: str, paper: Published | None) -> Row:
    part = column.numbers
    return Row(
        label,
        column.info.text,
        part["images"],
        part["success_rate"]["value"],
        part["median_all"]["value"],
        part["median_all"]["low"],
        part["median_all"]["high"],
        part["median_attacked"]["value"],
        part["forwards"]["mean"],
        part["backwards"]["mean"],
        part["seconds"]["per_image"],
        part.get("optimality", {}).get("value"),
        part["success_rate_8bit"]["value"],
        part["median_all_8bit"]["value"],
        paper,
        part["minimal"],
        [_at(column, epsilon) for epsilon in radii],
        part["over"],
        certified=words(part.get("certified")),
        certified_value=part.get("certified", {}).get("median_attacked"),
        certified_share=part.get("certified", {}).get("share"),
    )


def _at(column: Column, epsilon: float) -> Value | None:
    """Robust accuracy at a radius; of an attack at a fixed one only there."""
    near = [row for row in column.numbers["robust_accuracy"] if same(row["epsilon"], epsilon)]
    return _known(near[0]) if near else None


def _known(row: Value) -> Value | None:
    return None if row["value"] is None else {key: row[key] for key in ("value", "low", "high")}


def _with_best(rows: list[Row]) -> list[Row]:
    """Marks the smallest median of a block; nobody is best alone or with nothing found."""
    known = [row.median for row in rows if row.median is not None]
    best = min(known, default=math.inf)
    return [
        Row(**{**vars(row), "best": len(rows) > 1 and row.median is not None and row.median <= best}) for row in rows
    ]


def most_radii(blocks: Sequence[Block]) -> int:
    """How many columns robust accuracy takes."""
    return max((len(block.radii) for block in blocks), default=0)


def with_certified(blocks: Sequence[Block]) -> bool:
    """Whether any row has a certified radius beside it."""
    return any(row.certified != ("-", "-") for block in blocks for row in block.rows)
