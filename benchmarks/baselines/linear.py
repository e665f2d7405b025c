"""The attacks on linear models with the box, where the smallest perturbation is known: our ratios to it beside those of
other libraries.

The models and optima are those of ``tests/closed_form/linear.py``; the attacks that
no other library has are measured alone. ``tests/closed_form/ratios.py`` holds each attack's ratios, here on other
images and with the budgets of the comparison.
"""

from __future__ import annotations

import argparse
import math
from functools import cache
from typing import Any

from torch import Tensor, nn

from benchmarks import common
from benchmarks.baselines.networks import attempt, chosen
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
    median = common.median(cell["ratios"])
    middle = "∞" if median == math.inf else f"{median:.4f}"
    return (
        f"{middle}, {reached:.3f}{f', {failed} failed' if failed else ''} ({cell['forwards']:.0f} / "
        f"{cell['backwards']:.0f})"
    )


def worst(cell: common.Cell) -> float:
    """The largest ratio; infinite where an image failed."""
    return max(math.inf if ratio is None else ratio for ratio in cell["ratios"])


def verdict(ours: common.Cell, peers: list[common.Cell]) -> str:
    """Our median and our worst ratio, each against the best of the peers', which need not be the same peer."""
    if not peers:
        return "no peer"
    judged = []
    for name, measure in (("median", lambda cell: common.median(cell["ratios"])), ("worst", worst)):
        mine, best = measure(ours), min(map(measure, peers))
        judged.append(f"{name} held" if mine <= EQUAL * best else f"{name} **worse** ({mine:.4f}, {best:.4f})")
    return ", ".join(judged)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--attacks", default="", help="attack or attack/distance, comma-separated; all when left out")
    parser.add_argument("--again", action="store_true", help="run our cells again even where they are kept")


def keys(row: Row) -> dict[str, str]:
    """Who is run for a row, with the key of the cell."""
    peers = {who: f"linear|{row.key}|{who}|{row.steps} steps" for who in row.peers}
    return {"ours": f"linear|{row.key}|ours|{row.ours}", **peers}


def measure(results: common.Results, args: argparse.Namespace) -> None:
    for row in chosen(rows(), args.attacks):
        for who, key in keys(row).items():
            if key not in results.cells or (args.again and who == "ours"):
                results.keep(key, attempt(lambda: run(row, who), who == "ours"))  # noqa: B023
                print(key, shown(results.cells[key]), f"{results.cells[key].get('seconds', 0):.0f} s", flush=True)


def sections(results: common.Results, args: argparse.Namespace) -> dict[str, str]:
    lines = []
    for row in chosen(rows(), args.attacks):
        cells = {who: results.cells.get(key) for who, key in keys(row).items()}
        ours = cells.pop("ours")
        if ours is None:
            continue
        judged = verdict(ours, [cell for cell in cells.values() if cell is not None and "ratios" in cell])
        if missing := [who for who, cell in cells.items() if cell is None]:
            judged = f"{judged.replace('no peer', 'not judged')}; not yet run: {', '.join(missing)}"
        others = "; ".join(f"{who}: {shown(cell)}" for who, cell in cells.items()) or "–"
        lines.append([row.attack, row.distance, shown(ours), others, judged])
    head = ["attack ", "distance ", "ours: median, worst (passes)", "peers ", "against the best peer "]
    return {"linear": common.markdown(head, lines)}
