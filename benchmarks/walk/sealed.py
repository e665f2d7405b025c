"""The default attack on networks nobody has tuned anything on, against the strongest other attacks at the same counted
budget.

    python -m benchmarks walk sealed   l0, l1, l2, linf at 100, 40 and 300 queries; what is kept is not run again
    python -m benchmarks walk sealed --networks mnist-pruned --budgets 1000 --images 8 --attacks soft-walk,fmn
    python -m benchmarks walk sealed --networks cifar10/resnet20 --distances l0 --budgets 100 --images 12
    python -m benchmarks walk sealed --networks mnist/smallcnn --distances l2,l1 --attacks soft-walk --images 100
    python -m benchmarks walk sealed --table --docs

The networks are the pool's part sealed-2, or those of the zoo that are named. Nothing may be chosen by these figures.
The images are the first of the test sets. A budget of N is N forwards and N backwards for each image, which the problem
itself enforces. A figure is the geometric mean of the other attack's distance over the soft walk's on images both
succeed on, with its standard error: above 1 the soft walk is ahead.
"""

from __future__ import annotations

import argparse
import math
from itertools import product

from almakit import attacks
from almakit.core import Attack
from benchmarks import common, subjects
from benchmarks.pool import networks
from benchmarks.quality import attacks as quality

OURS, PART = quality.OURS, "sealed-2"
RIVALS = {
    "l0": ("sigma-zero", "fmn", "vfga", "pdpgd"),
    "l1": ("fmn", "bb", "pdpgd", "apgd + search", "ead"),
    "l2": ("ddn", "fmn", "bb", "alma", "fab", "superdeepfool", "tr"),
    "linf": ("fmn", "apgd + search", "pdpgd", "bb", "tr"),
}
# APGD works at a fixed radius, the smallest is found by search: a try that succeeds stops at once, so an eighth of the
# budget goes into one that fails.
SEARCH = "search(attack=apgd(distance={distance}, steps={steps}), halvings=14)"
PAPERS = ("mnist/smallcnn", "mnist/smallcnn-ddn", "mnist/smallcnn-trades")
FAR = (1.1, 1.5)


def build(name: str, distance: str, budget: int) -> Attack | None:
    if name == "apgd + search":
        return attacks.get(SEARCH.format(distance=distance, steps=max(2, budget // 8)))  # type: ignore[return-value]
    return quality.build(name, distance, budget)


def measure(results: common.Results, args: argparse.Namespace) -> None:
    names = args.networks.split(",") if args.networks else networks.halves()[PART]
    for budget, network, distance in product(map(int, args.budgets.split(",")), names, args.distances.split(",")):
        for name in args.attacks.split(",") if args.attacks else (OURS, *RIVALS[distance]):
            key = f"{network}|{distance}|{name}|{budget}|{args.images}"
            if key not in results.cells:
                cell = one(network, distance, name, budget, args.images)
                results.keep(key, cell)
                print(key, cell["asr"], cell["median"], f"{cell['seconds']:.1f} s", flush=True)


def one(network: str, distance: str, name: str, budget: int, count: int) -> common.Cell:
    if "/" in network:
        model, (x, labels) = subjects.network(network), subjects.images(network, count)
    else:
        model, (x, labels) = networks.load(network, sealed=True), networks.images(network, range(count))
    attack = build(name, distance, budget)
    assert attack is not None, f"{name} does not do {distance}"
    return common.run_ours(attack, model, x, labels, 128, budget)


Case = tuple[str, str, int]
"""Network, distance and budget."""


def cases(results: common.Results) -> dict[Case, dict[str, common.Cell]]:
    """The cells of each case by attack, on the first images that the soft walk and the attack both have."""
    found: dict[Case, dict[str, common.Cell]] = {}
    for key, cell in results.cells.items():
        network, distance, attack, budget, _ = key.split("|")
        kept = found.setdefault((network, distance, int(budget)), {})
        if attack not in kept or len(cell["distances"]) > len(kept[attack]["distances"]):
            kept[attack] = cell
    return {case: cells for case, cells in found.items() if OURS in cells}


def rivals(cells: dict[str, common.Cell]) -> dict[str, tuple[float, float]]:
    """Of each other attack the mean ratio to the soft walk with its error."""
    pairs = {name: common.paired(*common.first_images(cell, cells[OURS])) for name, cell in cells.items()}
    return {name: common.mean_and_error(values) for name, values in pairs.items() if name != OURS and len(values) > 1}


def missed(cells: dict[str, common.Cell]) -> tuple[int, int]:
    """How many images the soft walk missed that another attack found, and all others missed that it found."""
    ours = cells[OURS]["distances"]
    others = [cell["distances"] for name, cell in cells.items() if name != OURS]
    alone = [
        (value is None, all(row[place] is None for row in others if place < len(row)))
        for place, value in enumerate(ours)
    ]
    return sum(a and not b for a, b in alone), sum(b and not a for a, b in alone)


def table(results: common.Results) -> str:
    """One row for each case, one column for each other attack."""
    names = sorted({name for group in RIVALS.values() for name in group})
    rows = []
    for (network, distance, budget), cells in sorted(cases(results).items()):
        found = rivals(cells)
        if found:
            shown = ["{:.3f} ± {:.3f}".format(*found[name]) if name in found else "–" for name in names]
            count = str(len(cells[OURS]["distances"]))
            rows.append([network, distance, str(budget), count, "{} / {}".format(*missed(cells)), *shown])
    head = ["network ", "distance ", "queries", "images", "missed: soft walk / others", *names]
    return common.markdown(head, rows)


def standing(results: common.Results) -> str:
    """By distance and budget: on how many networks another attack is ahead by more than 1 % and two standard errors,
    and which."""
    groups: dict[tuple[str, int], list[tuple[str, dict[str, tuple[float, float]]]]] = {}
    for (network, distance, budget), cells in sorted(cases(results).items()):
        if rivals(cells):
            groups.setdefault((distance, budget), []).append((network, rivals(cells)))
    rows = []
    for (distance, budget), found in groups.items():
        ahead = [
            f"{network}: {name} {mean:.3f} ± {error:.3f}"
            for network, others in found
            for name, (mean, error) in others.items()
            if mean < 0.99 and mean + 2 * error < 1
        ]
        best = [min(others.values())[0] for _, others in found]
        rows.append(
            [distance, str(budget), str(len(found)), f"{common.geometric_mean(best):.3f}", "; ".join(ahead) or "none"]
        )
    head = [
        "distance ",
        "queries",
        "networks",
        "best other attack of each, mean",
        "ahead by more than 1 % and two errors ",
    ]
    return common.markdown(head, rows)


def tail(results: common.Results) -> str:
    """The share of images whose distance is more than so many times the smallest of all other attacks."""
    ratios: dict[tuple[str, int], list[float]] = {}
    for (_, distance, budget), cells in sorted(cases(results).items()):
        count = min(len(cell["distances"]) for cell in cells.values())
        others = [cell["distances"] for name, cell in cells.items() if name != OURS]
        for place, value in enumerate(cells[OURS]["distances"][:count]):
            best = min((row[place] for row in others if row[place] is not None), default=0.0)
            if best:
                ratios.setdefault((distance, budget), []).append(math.inf if value is None else value / best)
    rows = [
        [
            *map(str, group),
            str(len(values)),
            *(f"{100 * sum(value > far for value in values) / len(values):.1f} %" for far in FAR),
        ]
        for group, values in ratios.items()
    ]
    return common.markdown(["distance ", "queries", "images", *(f"farther than {far} times" for far in FAR)], rows)


def papers(results: common.Results) -> str:
    """The soft walk over ALMA with 1000 steps on the paper's networks."""
    rows = []
    for (network, distance, budget), cells in sorted(cases(results).items()):
        count = len(cells[OURS]["distances"])
        reference = quality.reference(results, network, distance, count) if network in PAPERS else None
        if reference is not None:
            ratio = common.mean_and_error(common.paired(cells[OURS], reference[1]))
            rows.append([network, distance, str(budget), str(count), "{:.3f} ± {:.3f}".format(*ratio), reference[0]])
    return common.markdown(["network ", "distance ", "queries", "images", "soft walk / ALMA 1000", "ALMA is "], rows)


def sections(results: common.Results, args: argparse.Namespace) -> dict[str, str]:
    return {"standing": standing(results), "tail": tail(results), "paper": papers(results), "each": table(results)}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--networks", default="", help=f"comma-separated; default: the pool's part {PART}")
    parser.add_argument("--distances", default="l0,l1,l2,linf")
    parser.add_argument("--budgets", default="100,40,300", help="comma-separated numbers of queries")
    parser.add_argument("--attacks", default="", help="default: the soft walk and the strongest others of each norm")
    parser.add_argument("--images", type=int, default=24)
