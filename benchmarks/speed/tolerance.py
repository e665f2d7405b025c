"""What `--budget auto` saves and what it costs: forwards spent and distances found with a tolerance of 1 %, against the
same attack to its end.

    python -m benchmarks speed tolerance   the cells that are not in the results yet, then the table, also into
      docs/speed-and-reliability.md

Results: results/tolerance.json.
"""

from __future__ import annotations

import argparse
import statistics

from almakit import attacks, data, models
from almakit.core import Status
from almakit.runs.job import TOLERANCE
from benchmarks import common

IMAGES, STEPS = 16, (100, 300)
NETWORKS = ("mnist/smallcnn-tiny-trades", "mnist/smallcnn-tiny-ibp", "cifar10/cnn-a-adv")
ATTACKS = (
    "soft-walk(distance=l2",
    "soft-walk(distance=linf",
    "alma(distance=l2",
    "fmn(distance=linf",
    "ddn(distance=l2",
)


def measure(results: common.Results, args: argparse.Namespace) -> None:
    for name in NETWORKS:
        model = models.load(name)
        x, labels = data.load(str(model.dataset), limit=IMAGES).tensors()
        for text in (f"{attack}, steps={steps})" for attack in ATTACKS for steps in STEPS):
            key = f"{name}|{IMAGES}|{text}"
            if key in results.cells or (args.attacks and not text.startswith(tuple(args.attacks.split(",")))):
                continue
            whole, early = (attacks.get(text)(model, x, labels, tolerance=tolerance) for tolerance in (None, TOLERANCE))
            open_rows = whole.status == Status.SUCCESS
            ratios = (early.distances[open_rows] / whole.distances[open_rows]).double().tolist()
            spent = float(early.forwards[open_rows].sum()) / float(whole.forwards[open_rows].sum())
            results.keep(key, {"spent": round(spent, 4), "ratios": [float(f"{value:.5g}") for value in ratios]})
            print(key, spent, statistics.fmean(ratios), flush=True)


def sections(results: common.Results, args: argparse.Namespace) -> dict[str, str]:
    rows = []
    for text in (f"{attack}, steps={steps})" for attack in ATTACKS for steps in STEPS):
        cells = [results.cells[key] for name in NETWORKS if (key := f"{name}|{IMAGES}|{text}") in results.cells]
        if cells:
            ratios = [ratio for cell in cells for ratio in cell["ratios"]]
            mean = common.geometric_mean(ratios)
            rows.append(
                [
                    f"`{text}`",
                    str(len(ratios)),
                    f"{statistics.fmean(cell['spent'] for cell in cells):.2f}",
                    f"{mean:.4f}",
                    f"{max(ratios):.2f}",
                ]
            )
    head = ["attack ", "images", "forwards, of all", "distance, geometric mean of ratios", "worst image"]
    return {"tolerance": common.markdown(head, rows)}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--attacks", default="", metavar="A,B", help="only these, e.g. alma,ddn")
