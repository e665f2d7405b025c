"""Our versions of other papers' attacks beside the same attacks in other libraries and in the paper's tables: same images, one run.

    python benchmarks/baselines.py                                            what is missing in benchmarks/results/baselines.json
    python benchmarks/baselines.py --models smallcnn-trades --attacks ddn,fmn/l1 --limit 50     one network, some attacks, fewer images
    python benchmarks/baselines.py --only-ours --again                        our cells anew, the peers' as they were kept
    python benchmarks/baselines.py --table                                    the kept results, nothing is run

For each network, attack and distance: success rate, median distance, forwards and backwards per attacked image and seconds of our default, of
our version with the paper's settings, of the peers, and of the paper (10 000 images there). A row is held when our default's success rate is at most half
a point below the best peer's and its median at most 2 % above the best peer's. Cells are kept one by one; what is kept is not run again.

The peers need an environment of their own, with ``src`` on PYTHONPATH and ALMAKIT_DATA set as for the tests:

    python3.11 -m venv bench && echo "setuptools<81" > constraint.txt
    PIP_CONSTRAINT=constraint.txt bench/bin/pip install torch==2.13.0 torchvision safetensors adv-lib==0.2.8 foolbox==3.3.4 torchattacks==3.5.1

(adv-lib runs only with a setuptools that still has pkg_resources. torchvision may lack its compiled operators beside a CPU torch: they are
declared, never called.)
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path

import common
import peers
import torch
from torch import nn

from almakit import data, models

HERE = Path(__file__).resolve().parent
MODELS = ("smallcnn", "smallcnn-ddn", "smallcnn-trades")
NORMS = {"l0": 0.0, "l1": 1.0, "l2": 2.0, "linf": math.inf}
RATE_WITHIN, MEDIAN_WITHIN = 0.5, 1.02


@dataclass(frozen=True)
class Row:
    """One line of the comparison: our default and our paper's version as text (``{steps}`` is filled in), the peers, the paper's (attack, budget)."""

    attack: str
    distance: str
    ours: str
    as_published: str | None = None
    peers: dict[str, peers.Peer] = field(default_factory=dict)
    paper: tuple[str, str] | None = None

    @property
    def key(self) -> str:
        return f"{self.attack}/{self.distance}"


def _for_norms() -> Iterator[Row]:
    """The attacks that exist for several norms."""
    for name, norm in NORMS.items():
        said = f"distance={name}, steps={{steps}}"
        title = "LInf" if name == "linf" else name.upper()
        in_paper = name in ("l1", "l2")
        yield Row("fmn", name, f"fmn({said})", f"fmn({said}, adaptive=false, overshoot=0)",
                  {"adv-lib": peers.adv_lib("fmn", norm=norm), "foolbox": peers.foolbox(f"{title}FMNAttack")},
                  ("fmn", "{steps}") if in_paper else None)
        yield Row("pdpgd", name, f"pdpgd({said})", f"pdpgd({said}, rate=0.1, ratio=0.01, scaled=false)",
                  {"adv-lib": peers.adv_lib("pdpgd", "num_steps", norm=norm)})
        if name == "l0":
            continue
        fab = {"adv-lib": peers.adv_lib("fab", "n_iter", norm=norm)}
        if name != "l1":  # torchattacks' l1 version stops with an error
            fab["torchattacks"] = peers.torchattacks("FAB", norm="Linf" if name == "linf" else "L2", eps=1e9)
        yield Row("fab", name, f"fab({said})", f"fab({said}, search=0)", fab, ("fab", "{steps}") if in_paper else None)
        yield Row("fab-t", name, f"fab({said}, targeted_classes=9)", None,
                  {"adv-lib": peers.adv_lib("fab", "n_iter", norm=norm, targeted_restarts=True, restarts=9)})
        if name == "l1":
            continue
        deepfool = {"adv-lib": peers.adv_lib("df", norm=norm), "foolbox": peers.foolbox("L2DeepFoolAttack" if name == "l2" else "LinfDeepFoolAttack")}
        if name == "l2":
            deepfool["torchattacks"] = peers.torchattacks("DeepFool")
        yield Row("deepfool", name, f"deepfool({said})", f"deepfool({said}, boxed=false, damping=1, pull_back=0)", deepfool)


ROWS: list[Row] = [
    Row("ddn", "l2", "ddn(steps={steps})", "ddn(steps={steps}, adaptive=false, levels=256)",
        {"adv-lib": peers.adv_lib("ddn", levels=None), "adv-lib, 256 levels": peers.adv_lib("ddn", levels=256),
         "foolbox": peers.foolbox("DDNAttack")}, ("ddn", "{steps}")),
    *_for_norms(),
    Row("superdeepfool", "l2", "superdeepfool(steps={steps})", "superdeepfool(steps={steps}, gain=none)", {"adv-lib": peers.adv_lib("sdf")}),
    Row("pdgd", "l2", "pdgd(steps={steps})", "pdgd(steps={steps}, rate=0.1, ratio=0.01, scaled=false)",
        {"adv-lib": peers.adv_lib("pdgd", "num_steps")}),
    Row("sigma-zero", "l0", "sigma-zero(steps={steps})", "sigma-zero(steps={steps}, trim=0)",
        {"adv-lib": peers.adv_lib("sigma_zero", "num_steps")}),
    Row("ead", "l1", "ead(steps={steps})", "ead(steps={steps}, rule=en)", {"foolbox": peers.foolbox("EADAttack")}, ("ead", "9x{steps}")),
    Row("cw", "l2", "cw(steps={steps})", None,
        {"adv-lib": peers.adv_lib("carlini_wagner_l2", "max_iterations"), "foolbox": peers.foolbox("L2CarliniWagnerAttack")}, ("cw", "9x{steps}")),
]  # fmt: skip


@cache
def _network(name: str) -> nn.Module:
    return models.load(f"mnist/{name}")


@cache
def _images(limit: int) -> tuple[torch.Tensor, torch.Tensor]:
    return data.load("mnist", limit=limit).tensors()


def _published(network: str, row: Row, steps: int) -> common.Cell | None:
    """The paper's line for a row, where it has one."""
    if row.paper is None:
        return None
    wanted = {"dataset": "mnist", "model": network, "distance": row.distance, "attack": row.paper[0], "budget": row.paper[1].format(steps=steps)}
    with (files("almakit.paper") / "tables.csv").open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            if wanted.items() <= line.items():
                return {"asr": float(line["asr_percent"]), "median": float(line["median_distance"]), "forwards": float(line["forwards"]),
                        "backwards": float(line["backwards"])}
    return None


def run(row: Row, network: str, results: common.Results, chosen: argparse.Namespace) -> dict[str, common.Cell]:
    """The cells of a row and a network, those that are missing run first."""
    texts = {"ours": row.ours, "ours, as published": row.as_published}
    cells: dict[str, common.Cell] = {}
    x, labels = _images(chosen.limit)
    for who, text in ((who, text.format(steps=chosen.steps)) for who, text in texts.items() if text):
        key = f"{network}|{row.key}|{who}|{text}|{chosen.limit} images"
        if not chosen.table and (chosen.again or key not in results.cells):
            results.keep(key, common.run_ours(text, _network(network), x, labels, chosen.batch))
        cells |= {who: results.cells[key]} if key in results.cells else {}
    for who, peer in row.peers.items():
        key = f"{network}|{row.key}|{who}|{chosen.steps} steps|{chosen.limit} images"
        if not (chosen.table or chosen.only_ours or key in results.cells):
            torch.manual_seed(0)
            results.keep(key, common.run_peer(peer, _network(network), x, labels, chosen.steps, row.distance, chosen.batch))
        cells |= {who: results.cells[key]} if key in results.cells else {}
    return cells


def lines(row: Row, network: str, cells: dict[str, common.Cell], steps: int) -> list[list[str]]:
    """A row and a network as lines of the table; the verdict stands beside our default."""
    paper = _published(network, row, steps)
    shown = []
    for who, cell in [*cells.items(), *([("paper", paper)] if paper else [])]:
        median = cell["median"]
        passes = f"{cell['forwards']:.4g} / {cell['backwards']:.4g}"
        shown.append([network, row.key, who, f"{cell['asr']:.1f}", "∞" if median is None else f"{median:.4g}", passes,
                      f"{cell['seconds']:.0f}" if "seconds" in cell else "", verdict(cells) if who == "ours" else ""])
    return shown


def verdict(cells: dict[str, common.Cell]) -> str:
    """How our default compares with the best peer, success rate and median each for itself; empty where there is none."""
    others = [cell for who, cell in cells.items() if not who.startswith("ours")]
    if not others:
        return ""
    ours, best_rate = cells["ours"], max(cell["asr"] for cell in others)
    best = min((cell["median"] for cell in others if cell["median"] is not None), default=math.inf)
    median = math.inf if ours["median"] is None else ours["median"]
    ratio = median / best if best < math.inf else 0.0 if median < math.inf else 1.0
    held = ours["asr"] >= best_rate - RATE_WITHIN and ratio <= MEDIAN_WITHIN
    return f"{ours['asr'] - best_rate:+.1f} points, x {ratio:.3f}: {'held' if held else '**missed**'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", default=",".join(MODELS), help="networks of the paper's MNIST table, comma-separated")
    parser.add_argument("--attacks", default="", help="attack or attack/distance, comma-separated; all when left out")
    parser.add_argument("--limit", type=int, default=200, help="the first so many test images")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only-ours", action="store_true", help="run no peer, so that no other library is needed")
    parser.add_argument("--again", action="store_true", help="run our cells again even where they are kept")
    parser.add_argument("--table", action="store_true", help="print the kept results and run nothing")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "baselines.json", help="where results are kept")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    wanted = {name for name in chosen.attacks.split(",") if name}
    unknown = wanted - {name for row in ROWS for name in (row.attack, row.key)}
    if unknown:
        parser.error(f"there is no row {', '.join(sorted(unknown))}; the rows are {', '.join(row.key for row in ROWS)}.")
    results, table = common.Results(chosen.out), []
    for network in chosen.models.split(","):
        for row in ROWS:
            if not wanted or row.attack in wanted or row.key in wanted:
                found = lines(row, network, run(row, network, results, chosen), chosen.steps)
                for line in found:
                    print(" | ".join(line), flush=True)
                table += found
    head = ["network ", "attack ", "who ", "success %", "median", "forwards / backwards", "seconds", "ours against the best peer "]
    print("\n" + common.markdown(head, table))


if __name__ == "__main__":
    main()
