"""Every attack of ours beside the same attack in other libraries and in the paper, on the same images in one run.

    python benchmarks/baselines.py --models smallcnn,smallcnn-trades --attacks ddn,fmn/l1 --limit 200 --steps 100 --out baselines.json

For each network, attack and distance it prints success rate, median distance, forwards, backwards and seconds of our default, of our version
with the paper's settings, of the peers, and of the paper's table (10 000 images there). Below stand our default's success rate minus the best peer's
and its median divided by the best peer's. Cells already in the JSON file are not run again.

The peers need an environment of their own, with ``src`` on PYTHONPATH and ALMAKIT_DATA set as for the tests:

    python3.11 -m venv bench && echo "setuptools<81" > constraint.txt
    PIP_CONSTRAINT=constraint.txt bench/bin/pip install torch==2.13.0 safetensors scipy adv-lib==0.2.8 foolbox==3.3.4 torchattacks==3.5.1

(adv-lib 0.2.8 builds and runs only with a setuptools that still has pkg_resources and distutils.)
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import peers
import torch
from torch import Tensor, nn

from almakit import attacks, data, distances, models
from almakit.core import Status

MODELS = ("smallcnn", "smallcnn-ddn", "smallcnn-trades")
Cell = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One line of the comparison: our attack as text (``{steps}`` is filled in), the same attack elsewhere, and its name in the paper's tables."""

    attack: str
    distance: str
    ours: dict[str, str]
    peers: dict[str, peers.Peer] = field(default_factory=dict)
    paper: str | None = None
    paper_budget: str = "{steps}"

    @property
    def key(self) -> str:
        return f"{self.attack}/{self.distance}"


def _norm_rows() -> list[Row]:
    norms = {"l0": 0.0, "l1": 1.0, "l2": 2.0, "linf": float("inf")}
    rows = []
    for name, norm in norms.items():
        title = {"l0": "L0", "l1": "L1", "l2": "L2", "linf": "LInf"}[name]
        published = name in ("l1", "l2")
        rows.append(Row(
            "fmn", name,
            {"ours": f"fmn(distance={name}, steps={{steps}})", "ours, paper's": f"fmn(distance={name}, steps={{steps}}, overshoot=0)"},
            {"adv-lib": peers.adv_lib("fmn", norm=norm), "foolbox": peers.foolbox(f"{title}FMNAttack")},
            "fmn" if published else None,
        ))
        rows.append(Row("pdpgd", name, {"ours": f"pdpgd(distance={name}, steps={{steps}})"},
                        {"adv-lib": peers.adv_lib("pdpgd", "num_steps", norm=norm)}))
        if name == "l0":
            continue
        others = {"adv-lib": peers.adv_lib("fab", "n_iter", norm=norm)}
        several = {"adv-lib": peers.adv_lib("fab", "n_iter", norm=norm, targeted_restarts=True, restarts=9)}
        if name != "l1":  # torchattacks' l1 version stops with an error; its targeted one stops at the first success below eps
            letter = {"l2": "L2", "linf": "Linf"}[name]
            others["torchattacks"] = peers.torchattacks("FAB", norm=letter, eps=1e9)
        rows.append(Row("fab", name, {"ours": f"fab(distance={name}, steps={{steps}})"}, others, "fab" if published else None))
        rows.append(Row("fab-t", name, {"ours": f"fab(distance={name}, steps={{steps}}, targeted_classes=9)"}, several))
        if name == "l1":
            continue
        fools = {"adv-lib": peers.adv_lib("df", norm=norm),
                 "foolbox": peers.foolbox({"l2": "L2DeepFoolAttack", "linf": "LinfDeepFoolAttack"}[name])}
        if name == "l2":
            fools["torchattacks"] = peers.torchattacks("DeepFool")
        rows.append(Row("deepfool", name, {"ours": f"deepfool(distance={name}, steps={{steps}})"}, fools))
    return rows


ROWS: list[Row] = [
    Row("ddn", "l2", {"ours": "ddn(steps={steps})", "ours, paper's": "ddn(steps={steps}, levels=256)"},
        {"adv-lib": peers.adv_lib("ddn", levels=None), "adv-lib, 256 levels": peers.adv_lib("ddn", levels=256),
         "foolbox": peers.foolbox("DDNAttack")}, "ddn"),
    *_norm_rows(),
    Row("superdeepfool", "l2", {"ours": "superdeepfool(steps={steps})"}, {"adv-lib": peers.adv_lib("sdf")}),
    Row("pdgd", "l2", {"ours": "pdgd(steps={steps})"}, {"adv-lib": peers.adv_lib("pdgd", "num_steps")}),
    Row("sigma-zero", "l0", {"ours": "sigma-zero(steps={steps})"}, {"adv-lib": peers.adv_lib("sigma_zero", "num_steps")}),
]


def run_ours(text: str, model: nn.Module, x: Tensor, labels: Tensor, batch: int) -> Cell:
    """Our attack on the images ``x`` (B, ...): what the result says, counts averaged over the attacked images."""
    started = time.perf_counter()
    result = attacks.get(text)(model, x, labels, batch_size=batch)
    seconds = time.perf_counter() - started
    attacked = result.status != Status.ALREADY_WRONG
    return _cell(result.distances, seconds, float(result.forwards[attacked].double().mean()), float(result.backwards[attacked].double().mean()))


def run_peer(peer: peers.Peer, model: nn.Module, x: Tensor, labels: Tensor, steps: int, distance: str, batch: int) -> Cell:
    """A peer on the images it has to attack, judged by a fresh pass over what it returned."""
    with torch.no_grad():
        todo = (model(x).argmax(1) == labels).nonzero().flatten()
    counting = peers.Counting(model).eval()
    values = torch.zeros(len(x))
    started = time.perf_counter()
    found = torch.cat([peer(counting, x[rows], labels[rows], steps).detach() for rows in todo.split(batch)])
    seconds = time.perf_counter() - started
    with torch.no_grad():
        wrong = (model(found).argmax(1) != labels[todo]) & ((found >= 0) & (found <= 1)).flatten(1).all(1)
        values[todo] = torch.where(wrong, distances.get(distance)(x[todo], found), torch.tensor(float("inf")))
    return _cell(values, seconds, counting.forwards / len(todo), counting.backwards / len(todo))


def _cell(values: Tensor, seconds: float, forwards: float, backwards: float) -> Cell:
    ordered = values.double().sort().values
    middle = [float(ordered[(len(ordered) - 1) // 2]), float(ordered[len(ordered) // 2])]
    return {"asr": 100 * float(torch.isfinite(values).double().mean()), "median": sum(middle) / 2, "forwards": forwards,
            "backwards": backwards, "seconds": seconds, "distances": [round(float(v), 6) for v in values]}


def paper_cells(path: Path) -> dict[tuple[str, ...], Cell]:
    """The paper's MNIST rows by (model, distance, attack, budget); empty where the file is not at hand."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {(r["model"], r["distance"], r["attack"], r["budget"]): {
            "asr": float(r["asr_percent"]), "median": float(r["median_distance"] or "inf"), "forwards": float(r["forwards"]),
            "backwards": float(r["backwards"])} for r in csv.DictReader(file) if r["dataset"] == "mnist" and r["forwards"]}


def show(row: Row, network: str, cells: dict[str, Cell], published: Cell | None) -> None:
    """Prints the cells of one row and network, and how our default compares with the best peer."""
    print(f"\n{row.key} on {network}")
    print(f"  {'':22}{'ASR %':>8}{'median':>10}{'forwards':>10}{'backwards':>11}{'seconds':>9}")
    for name, cell in cells.items():
        print(f"  {name:22}{cell['asr']:8.1f}{cell['median']:10.4f}{cell['forwards']:10.1f}{cell['backwards']:11.1f}{cell['seconds']:9.1f}")
    if published:
        print(f"  {'paper':22}{published['asr']:8.1f}{published['median']:10.4f}{published['forwards']:10.0f}{published['backwards']:11.0f}")
    others = [cell for name, cell in cells.items() if not name.startswith("ours")]
    if others:
        ours = next(cell for name, cell in cells.items() if name.startswith("ours"))
        best_rate, best_median = max(c["asr"] for c in others), min(c["median"] for c in others)
        ratio = ours["median"] / best_median if best_median not in (0.0, float("inf")) else float("nan")
        held = ours["asr"] >= best_rate - 0.5 and (ours["median"] <= 1.02 * best_median)
        print(f"  ours - best peer: {ours['asr'] - best_rate:+.1f} points; median ratio {ratio:.4f}; {'held' if held else 'MISSED'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", default=",".join(MODELS), help="networks of the paper's MNIST table, comma-separated")
    parser.add_argument("--attacks", default="", help="attack or attack/distance, comma-separated; all when left out")
    parser.add_argument("--limit", type=int, default=200, help="the first so many test images")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only-ours", action="store_true", help="leave the peers out (no other library is needed)")
    parser.add_argument("--again", action="store_true", help="run our cells again even where the file has them")
    parser.add_argument("--tables", type=Path, default=None, help="the paper's tables.csv; beside the data folder when left out")
    parser.add_argument("--out", type=Path, default=Path("baselines.json"))
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    wanted = [name for name in chosen.attacks.split(",") if name]
    rows = [row for row in ROWS if not wanted or row.attack in wanted or row.key in wanted]
    x, labels = data.load("mnist", limit=chosen.limit).tensors()
    tables = chosen.tables or Path(os.environ.get("ALMAKIT_DATA", ".")).parent / "paper" / "tables.csv"
    published = paper_cells(tables)
    store: dict[str, Cell] = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
    for network in chosen.models.split(","):
        model = models.load(f"mnist/{network}")
        for row in rows:
            cells: dict[str, Cell] = {}
            jobs: dict[str, Any] = {name: text.format(steps=chosen.steps) for name, text in row.ours.items()}
            jobs |= {} if chosen.only_ours else row.peers
            for name, job in jobs.items():
                key = f"{network}|{row.key}|{name}|steps {chosen.steps}|{chosen.limit} images"
                if isinstance(job, str):
                    key += f"|{job}"
                if key not in store or (chosen.again and isinstance(job, str)):
                    store[key] = (run_ours(job, model, x, labels, chosen.batch) if isinstance(job, str)
                                  else run_peer(job, model, x, labels, chosen.steps, row.distance, chosen.batch))
                    part = chosen.out.with_suffix(".part")
                    part.write_text(json.dumps(store))
                    part.replace(chosen.out)
                cells[name] = store[key]
            show(row, network, cells, published.get((network, row.distance, row.paper or "", row.paper_budget.format(steps=chosen.steps))))


if __name__ == "__main__":
    main()
