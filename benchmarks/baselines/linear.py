"""The attacks on linear models with the box, where the smallest perturbation is known: our ratios to it beside those of
other libraries.

Run by ``baselines.py --linear``. The models and optima are those of ``tests/closed_form/linear.py``; the attacks that
no other library has are measured alone. ``tests/closed_form/ratios.py`` holds each attack's ratios, here on other
images and with the budgets of the comparison.
"""

from __future__ import annotations

import math
import statistics
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import common
from benchmarks.baselines.rows import NORMS, ROWS, Row

# (seed, shape): eight images each, five classes, so that every library's losses are defined; image-shaped for those
# that want it.
PROBLEMS = [(0, (1, 6, 6)), (1, (3, 8, 8)), (2, (1, 6, 6)), (3, (3, 8, 8))]
BATCH = 8
# A ratio this much larger than the best peer's is called equal: both are within it of the optimum's own rounding.
EQUAL = 1.002
# What no other library has, or not for this distance.
ALONE = [
    Row(name, distance, text.format(distance=distance))
    for name, text, distances in (
        ("alma", "alma(distance={distance}, steps=100)", ("l1", "l2", "linf")),
        ("soft-walk", "soft-walk(distance={distance}, steps=100)", ("l1", "l2", "linf")),
        ("alm", "alm(distance={distance}, outer=10, inner=100)", ("linf",)),
        ("cw", "cw(distance={distance}, steps=100)", ("l1",)),
    )
    for distance in distances
]


class AsModule(nn.Module):
    """A linear model as the module that other libraries ask for."""

    def __init__(self, linear: Any):
        super().__init__()
        self.linear = linear

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


@cache
def problem(seed: int, shape: tuple[int, ...]) -> tuple[nn.Module, Any, Tensor, Tensor]:
    from closed_form.linear import random_problem

    linear, x, labels = random_problem(seed, BATCH, shape, classes=5)
    return AsModule(linear).eval(), linear, x, labels


@cache
def optimum(seed: int, shape: tuple[int, ...], norm: float) -> list[float]:
    from closed_form.linear import smallest

    _, linear, x, labels = problem(seed, shape)
    return [float(value) for value in smallest(linear, x, labels, norm)]


def rows() -> list[Row]:
    """The rows of the comparison that minimise a norm with an exact optimum."""
    return [row for row in [*ROWS, *ALONE] if row.distance in ("l1", "l2", "linf") and row.data == "mnist"]


def run(row: Row, who: str) -> common.Cell:
    """The ratios to the optimum on all problems."""
    ratios: list[float | None] = []
    forwards = backwards = seconds = 0.0
    for seed, shape in PROBLEMS:
        model, _, x, labels = problem(seed, shape)
        if who == "ours":
            cell = common.run_ours(row.ours, model, x, labels, BATCH)
        else:
            torch.manual_seed(0)
            cell = common.run_peer(row.peers[who], model, x, labels, row.steps, row.distance, BATCH)
        exact = optimum(seed, shape, NORMS[row.distance])
        ratios += [
            None if found is None else round(found / best, 5)
            for found, best in zip(cell["distances"], exact, strict=True)
        ]
        forwards, backwards, seconds = (
            forwards + cell["forwards"],
            backwards + cell["backwards"],
            seconds + cell["seconds"],
        )
    return {
        "ratios": ratios,
        "forwards": round(forwards / len(PROBLEMS), 1),
        "backwards": round(backwards / len(PROBLEMS), 1),
        "seconds": round(seconds, 1),
    }


def shown(cell: common.Cell | None) -> str:
    """median, worst (forwards / backwards); how many images failed."""
    if cell is None:
        return "–"
    if "error" in cell:
        return cell["error"]
    failed = sum(ratio is None for ratio in cell["ratios"])
    reached = max((ratio for ratio in cell["ratios"] if ratio is not None), default=math.inf)
    middle = "∞" if median(cell) == math.inf else f"{median(cell):.4f}"
    return (
        f"{middle}, {reached:.3f}{f', {failed} failed' if failed else ''} ({cell['forwards']:.0f} / "
        f"{cell['backwards']:.0f})"
    )


def median(cell: common.Cell) -> float:
    return statistics.median(math.inf if ratio is None else ratio for ratio in cell["ratios"])


def worst(cell: common.Cell) -> float:
    """The largest ratio; infinite where an image failed."""
    return max(math.inf if ratio is None else ratio for ratio in cell["ratios"])


def verdict(ours: common.Cell, peers: list[common.Cell]) -> str:
    """Our median and our worst ratio, each against the best of the peers', which need not be the same peer."""
    if not peers:
        return "no peer"
    judged = []
    for name, measure in (("median", median), ("worst", worst)):
        mine, best = measure(ours), min(map(measure, peers))
        judged.append(f"{name} held" if mine <= EQUAL * best else f"{name} **worse** ({mine:.4f}, {best:.4f})")
    return ", ".join(judged)


def main(results: common.Results, wanted: set[str], table_only: bool, again: bool, docs: Path | None) -> None:
    """Runs what is missing of the attacks ``wanted`` (none: all), prints the table and writes it into the page
    ``docs``."""
    lines = []
    for row in [row for row in rows() if not wanted or row.attack in wanted or row.key in wanted]:
        keys = {
            "ours": f"linear|{row.key}|ours|{row.ours}",
            **{who: f"linear|{row.key}|{who}|{row.steps} steps" for who in row.peers},
        }
        for who, key in keys.items():
            if table_only or (key in results.cells and not (again and who == "ours")):
                continue
            try:
                cell = run(row, who)
            except Exception as error:  # a peer that stops is part of the comparison
                if who == "ours":
                    raise
                cell = {"error": f"stops: {type(error).__name__}"}
            results.keep(key, cell)
            print(key, shown(cell), f"{cell.get('seconds', 0):.0f} s", flush=True)
        cells = {who: results.cells.get(key) for who, key in keys.items()}
        ours = cells.pop("ours")
        if ours is None:
            continue
        judged = verdict(ours, [cell for cell in cells.values() if cell is not None and "ratios" in cell])
        if None in cells.values():
            judged = (
                f"{judged.replace('no peer', 'not judged')}; not yet run: "
                f"{', '.join(who for who, cell in cells.items() if cell is None)}"
            )
        lines.append(
            [
                row.attack,
                row.distance,
                shown(ours),
                "; ".join(f"{who}: {shown(cell)}" for who, cell in cells.items()) or "–",
                judged,
            ]
        )
    text = common.markdown(
        ["attack ", "distance ", "ours: median, worst (passes)", "peers ", "against the best peer "], lines
    )
    print(text)
    if docs:
        common.replace_section(docs, "linear", text)
