"""Other papers' attacks as we have them, beside the same attacks in other libraries and in the paper's tables: same
images, one run.

    python -m benchmarks baselines   what is missing in
      benchmarks/results/baselines.json
    python -m benchmarks baselines --attacks ddn,fmn/l1 --networks smallcnn   some rows
    python -m benchmarks baselines --who ours --again   our cells anew, the peers' as they were
      kept
    python -m benchmarks baselines --from runs/reproduce-mnist   our cells out of a reproduction's run
      folders where it has them (stored.py)
    python -m benchmarks baselines --table --docs   the kept results into docs/figures/parity.md; nothing is run
    python -m benchmarks baselines linear   ratios to the exact optimum of linear models, ours and the peers'

For each network, attack and distance: success rate, median distance, forwards and backwards per attacked image of our
default, of variants of it, of the peers, and of the paper (10 000 images there). A row is held when our default's
success rate is at most half a point below the best peer's and its median at most 2 % above the best peer's, on the
images both had. Cells are kept one by one, from cheap to expensive; what is kept is not run again. The rows are in
``rows.py``.

The peers need an environment of their own, with ``src`` on PYTHONPATH and ALMAKIT_DATA set as for the tests:

    python3.11 -m venv bench && echo "setuptools<81" > constraint.txt
    PIP_CONSTRAINT=constraint.txt bench/bin/pip install torch==2.13.0 torchvision safetensors numba adv-lib==0.2.8
    foolbox==3.3.4 torchattacks==3.5.1

(adv-lib runs only with a setuptools that still has pkg_resources. torchvision may lack its compiled operators beside a
CPU torch: they are declared, never called. ``linear`` also needs scipy.)
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch import nn

from almakit import data, models
from benchmarks import common
from benchmarks.baselines.rows import ROWS, Row
from benchmarks.baselines.stored import Stored

RATE_WITHIN, MEDIAN_WITHIN = 0.5, 1.02
BATCH = {"mnist": 100, "cifar10": 64}


@cache
def _network(data_set: str, name: str) -> nn.Module:
    return models.load(f"{data_set}/{name}")


@cache
def _images(data_set: str, first: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, labels = data.load(data_set, limit=first + count).tensors()
    return x[first:], labels[first:]


def cells_of(row: Row, network: str) -> dict[str, str]:
    """Who is run for a row and a network, with the key of the cell."""
    found = {}
    for who, what in [*{"ours": row.ours, **row.also}.items(), *((who, f"{row.steps} steps") for who in row.peers)]:
        count = row.count(who)
        which = f"{count} images" if row.first == 0 else f"images {row.first}-{row.first + count - 1}"
        found[who] = f"{network}|{row.key}|{who}|{what}|{which}"
    return found


def run(row: Row, network: str, who: str) -> common.Cell:
    """One cell."""
    x, labels = _images(row.data, row.first, row.count(who))
    model, batch = _network(row.data, network), BATCH[row.data]
    if who not in row.peers:
        return common.run_ours({"ours": row.ours, **row.also}[who], model, x, labels, batch)
    distance, within = row.distance.split(" ")[0], math.inf if row.epsilon is None else row.epsilon
    return common.run_peer(row.peers[who], model, x, labels, row.steps, distance, batch, within)


def out_of(stored: Stored, row: Row, network: str, who: str) -> common.Cell | None:
    """One of our cells as a reproduction has it, or None."""
    x, labels = _images(row.data, row.first, row.count(who))
    return stored.cell(
        {"ours": row.ours, **row.also}[who], f"{row.data}/{network}", _network(row.data, network), x, labels, row.first
    )


def published(row: Row, network: str) -> str:
    """The paper's line for a row, where it has one."""
    line = common.published(row.data, network, row.distance, *row.paper) if row.paper else {}
    if not line:
        return "–"
    found = f"{float(line['asr_percent']):.4g} / {float(line['median_distance']):.4g}"
    return f"{found} ({line['forwards']} / {line['backwards']})"


def shown(cell: common.Cell | None, row: Row, who: str) -> str:
    """success / median (forwards / backwards), with the number of images where it is not the row's."""
    if cell is None:
        return "–"
    if "error" in cell:
        return cell["error"]
    median = "" if row.epsilon is not None else f" / {common.figure(cell['median'])}"
    images = f", {row.count(who)} images" if row.count(who) != row.images else ""
    return f"{cell['asr']:.4g}{median} ({cell['forwards']:.0f} / {cell['backwards']:.0f}{images})"


def verdict(row: Row, cells: dict[str, common.Cell]) -> str:
    """How our default compares with the best peer, success rate and median each for itself, on the images both had."""
    ours, points, ratios = cells["ours"]["distances"], [], []
    for who in row.peers:
        theirs = cells.get(who, {}).get("distances")
        if theirs:
            mine, theirs = (found[: min(len(ours), len(theirs))] for found in (ours, theirs))
            points.append(_rate(mine) - _rate(theirs))
            best = common.median(theirs)
            ratios.append(common.median(mine) / best if best < math.inf else 0.0)
    if not points:
        return "no peer"
    held = min(points) >= -RATE_WITHIN and (row.epsilon is not None or max(ratios) <= MEDIAN_WITHIN)
    median = "" if row.epsilon is not None else f", x {max(ratios):.3f}"
    return f"{min(points):+.1f} points{median}: {'held' if held else '**missed**'}"


def _rate(distances: list[float | None]) -> float:
    return 100 * sum(value is not None for value in distances) / len(distances)


def table(rows: list[Row], networks: set[str], results: common.Results) -> str:
    """The kept results as markdown."""
    lines = []
    for row in rows:
        for network in [name for name in row.networks if not networks or name in networks]:
            cells = {who: results.cells[key] for who, key in cells_of(row, network).items() if key in results.cells}
            if "ours" not in cells:
                continue
            variants = [f"{who.removeprefix('ours, ')}: {shown(cells.get(who), row, who)}" for who in row.also]
            others = [f"{who}: {shown(cells.get(who), row, who)}" for who in row.peers]
            which = f"{row.images}" if row.first == 0 else f"{row.first}–{row.first + row.images - 1}"
            lines.append(
                [
                    row.attack,
                    row.distance.replace("<=", "≤"),
                    network,
                    which,
                    shown(cells["ours"], row, "ours"),
                    "; ".join(variants) or "–",
                    "; ".join(others) or "–",
                    published(row, network),
                    verdict(row, cells),
                ]
            )
    head = [
        "attack ",
        "distance ",
        "network ",
        "images",
        "ours",
        "ours, variants ",
        "peers ",
        "paper",
        "ours against the best peer ",
    ]
    return common.markdown(head, lines)


def chosen(rows: list[Row], words: str) -> list[Row]:
    """The rows of the attacks that are named, all where none is; a word that is no row ends with a sentence."""
    wanted = {word for word in words.split(",") if word}
    if unknown := wanted - {name for row in rows for name in (row.attack, row.key)}:
        known = ", ".join(row.key for row in rows)
        raise SystemExit(f"there is no row {', '.join(sorted(unknown))}; the rows are {known}.")
    return [row for row in rows if not wanted or row.attack in wanted or row.key in wanted]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--networks", default="", help="networks, comma-separated; all when left out")
    parser.add_argument("--attacks", default="", help="attack or attack/distance, comma-separated; all when left out")
    parser.add_argument("--who", choices=("ours", "peers", "all"), default="all", help="no peer, or nothing but peers")
    parser.add_argument("--again", action="store_true", help="run our cells again even where they are kept")
    parser.add_argument("--most", type=int, default=math.inf, help="leave out cells that cost more passes than this")
    about = "take our cells out of RUN, a folder of almakit reproduce; nothing is run but a check"
    parser.add_argument("--from", dest="stored", type=Path, metavar="RUN", help=about)


def measure(results: common.Results, args: argparse.Namespace) -> None:
    stored = Stored(args.stored) if args.stored else None
    networks = {word for word in args.networks.split(",") if word}
    todo = [
        (row.passes * row.count(who), row, network, who, key)
        for row in chosen(ROWS, args.attacks)
        for network in row.networks
        if not networks or network in networks
        for who, key in cells_of(row, network).items()
        if args.who == "all" or (who in row.peers) == (args.who == "peers")
    ]
    for cost, row, network, who, key in sorted(todo, key=lambda job: job[0]):
        ours = who not in row.peers
        if cost > args.most or (key in results.cells and not (args.again and ours)) or (stored and not ours):
            continue
        cell = out_of(stored, row, network, who) if stored else attempt(lambda: run(row, network, who), ours)  # noqa: B023
        if cell is not None:
            results.keep(key, cell)
            print(key, shown(cell, row, who), f"{cell.get('seconds', 0):.0f} s", flush=True)


def attempt(measured: Callable[[], common.Cell], ours: bool) -> common.Cell:
    """A cell; a peer that stops must not stop the others, and what it said is part of the comparison."""
    try:
        return measured()
    except Exception as error:
        if ours:
            raise
        return {"error": f"stops: {type(error).__name__}"}


def sections(results: common.Results, args: argparse.Namespace) -> dict[str, str]:
    networks = {word for word in args.networks.split(",") if word}
    return {"baselines": table(chosen(ROWS, args.attacks), networks, results)}
