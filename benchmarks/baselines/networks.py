"""Other papers' attacks as we have them, beside the same attacks in other libraries and in the paper's tables: same
images, one run.

    python -m benchmarks baselines   what is missing in
      benchmarks/results/baselines.json
    python -m benchmarks baselines --attacks ddn,fmn/l1 --networks smallcnn   some rows
    python -m benchmarks baselines --who ours --again   our cells anew, the peers' as they were
      kept
    python -m benchmarks baselines --from runs/reproduce-mnist   our cells out of a reproduction's run
      folders where it has them (stored.py)
    python -m benchmarks baselines --linear   ratios to the exact optimum of linear
      models, ours and the peers'
    python -m benchmarks baselines --table --docs docs/figures/parity.md   the kept results, both tables,
      into that page; nothing is run

For each network, attack and distance: success rate, median distance, forwards and backwards per attacked image of our
default, of variants of it, of the peers, and of the paper (10 000 images there). A row is held when our default's
success rate is at most half a point below the best peer's and its median at most 2 % above the best peer's, on the
images both had. Cells are kept one by one, from cheap to expensive; what is kept is not run again. The rows are in
``baseline_rows.py``.

The peers need an environment of their own, with ``src`` on PYTHONPATH and ALMAKIT_DATA set as for the tests:

    python3.11 -m venv bench && echo "setuptools<81" > constraint.txt
    PIP_CONSTRAINT=constraint.txt bench/bin/pip install torch==2.13.0 torchvision safetensors numba adv-lib==0.2.8
    foolbox==3.3.4 torchattacks==3.5.1

(adv-lib runs only with a setuptools that still has pkg_resources. torchvision may lack its compiled operators beside a
CPU torch: they are declared, never called. ``--linear`` also needs scipy.)
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
from functools import cache
from importlib.resources import files
from pathlib import Path

import torch
from torch import nn

from almakit import data, models
from benchmarks import RESULTS, common
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
    torch.manual_seed(0)
    distance, within = row.distance.split(" ")[0], math.inf if row.epsilon is None else row.epsilon
    return common.run_peer(row.peers[who], model, x, labels, row.steps, distance, batch, within)


def out_of(stored: Stored, row: Row, network: str, who: str) -> common.Cell | None:
    """One of our cells as a reproduction has it, or None."""
    x, labels = _images(row.data, row.first, row.count(who))
    return stored.cell(
        {"ours": row.ours, **row.also}[who], f"{row.data}/{network}", _network(row.data, network), x, labels, row.first
    )


@cache
def _paper_lines() -> list[dict[str, str]]:
    with (files("almakit.paper") / "tables.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def published(row: Row, network: str) -> str:
    """The paper's line for a row, where it has one."""
    if row.paper is None:
        return "–"
    wanted = {
        "dataset": row.data,
        "model": network,
        "distance": row.distance,
        "attack": row.paper[0],
        "budget": row.paper[1],
    }
    for line in _paper_lines():
        if wanted.items() <= line.items():
            return (
                f"{float(line['asr_percent']):.4g} / {float(line['median_distance']):.4g} ({line['forwards']} / "
                f"{line['backwards']})"
            )
    return "–"


def shown(cell: common.Cell | None, row: Row, who: str) -> str:
    """success / median (forwards / backwards), with the number of images where it is not the row's."""
    if cell is None:
        return "–"
    if "error" in cell:
        return cell["error"]
    median = "" if row.epsilon is not None else f" / {_value(cell['median'])}"
    images = f", {row.count(who)} images" if row.count(who) != row.images else ""
    return f"{cell['asr']:.4g}{median} ({cell['forwards']:.0f} / {cell['backwards']:.0f}{images})"


def _value(median: float | None) -> str:
    return "∞" if median is None else f"{median:.4g}" if median >= 1e-3 else f"{median:.3e}"


def verdict(row: Row, cells: dict[str, common.Cell]) -> str:
    """How our default compares with the best peer, success rate and median each for itself, on the images both had."""
    ours, points, ratios = cells["ours"]["distances"], [], []
    for who in row.peers:
        theirs = cells.get(who, {}).get("distances")
        if theirs:
            count = min(len(ours), len(theirs))
            points.append(_rate(ours[:count]) - _rate(theirs[:count]))
            ratios.append(
                _median(ours[:count]) / _median(theirs[:count]) if _median(theirs[:count]) < math.inf else 0.0
            )
    if not points:
        return "no peer"
    held = min(points) >= -RATE_WITHIN and (row.epsilon is not None or max(ratios) <= MEDIAN_WITHIN)
    median = "" if row.epsilon is not None else f", x {max(ratios):.3f}"
    return f"{min(points):+.1f} points{median}: {'held' if held else '**missed**'}"


def _rate(distances: list[float | None]) -> float:
    return 100 * sum(value is not None for value in distances) / len(distances)


def _median(distances: list[float | None]) -> float:
    return statistics.median(math.inf if value is None else value for value in distances)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--networks", default="", help="networks, comma-separated; all when left out")
    parser.add_argument("--attacks", default="", help="attack or attack/distance, comma-separated; all when left out")
    parser.add_argument(
        "--who", choices=("ours", "peers", "all"), default="all", help="run no peer, or nothing but peers"
    )
    parser.add_argument("--again", action="store_true", help="run our cells again even where they are kept")
    parser.add_argument("--most", type=int, default=None, help="leave out cells that cost more passes than this")
    parser.add_argument(
        "--from",
        dest="stored",
        type=Path,
        metavar="RUN",
        help="take our cells out of RUN, a folder of almakit reproduce; nothing is run but a check",
    )
    parser.add_argument("--linear", action="store_true", help="linear models with a known optimum instead of networks")
    parser.add_argument("--table", action="store_true", help="print the kept results and run nothing")
    parser.add_argument(
        "--docs", type=Path, default=None, help="a page whose section between the baselines markers gets the tables"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "baselines.json", help="where results are kept")
    chosen = parser.parse_args()
    if chosen.stored and (chosen.linear or chosen.table or chosen.who == "peers"):
        parser.error("--from takes our cells on networks: leave out --linear, --table and --who peers.")
    torch.set_num_threads(1)
    results = common.Results(chosen.out)
    wanted, networks = ({word for word in words.split(",") if word} for words in (chosen.attacks, chosen.networks))
    known = ROWS
    if chosen.linear or chosen.docs:
        from benchmarks.baselines import linear as baselines_linear

        known = baselines_linear.rows() if chosen.linear else ROWS
    unknown = wanted - {name for row in known for name in (row.attack, row.key)}
    if unknown:
        parser.error(
            f"there is no row {', '.join(sorted(unknown))}; the rows are {', '.join(row.key for row in known)}."
        )
    if chosen.linear:
        baselines_linear.main(results, wanted, chosen.table, chosen.again, chosen.docs)
        return
    stored = Stored(chosen.stored) if chosen.stored else None
    rows = [row for row in ROWS if not wanted or row.attack in wanted or row.key in wanted]
    todo = [
        (row.passes * row.count(who), row, network, who, key)
        for row in rows
        for network in row.networks
        if not networks or network in networks
        for who, key in cells_of(row, network).items()
    ]
    for cost, row, network, who, key in [] if chosen.table else sorted(todo, key=lambda job: job[0]):
        ours = who not in row.peers
        skip = (
            (chosen.who == "ours" and not ours)
            or (chosen.who == "peers" and ours)
            or (chosen.most is not None and cost > chosen.most)
        )
        if skip or (key in results.cells and not (chosen.again and ours)):
            continue
        try:
            cell = run(row, network, who) if stored is None else out_of(stored, row, network, who) if ours else None
        except Exception as error:  # a peer that stops must not stop the others; what it said is part of the comparison
            if ours:
                raise
            cell = {"error": f"stops: {type(error).__name__}"}
        if cell is None:
            continue
        results.keep(key, cell)
        print(key, shown(cell, row, who), f"{cell.get('seconds', 0):.0f} s", flush=True)
    text = table(rows, networks, results)
    print(text)
    if chosen.docs:
        common.replace_section(chosen.docs, "baselines", text)
        if chosen.table and not wanted:
            baselines_linear.main(results, wanted, True, False, chosen.docs)
