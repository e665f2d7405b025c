"""Square and HopSkipJump beside those of other libraries: the same digits, the same number of queries, no gradients.

    python -m benchmarks libraries black-box   the cells that are not in the results yet, then the table

Every attack gets 1000 forwards per image and is judged by our engine. Needs the environment of
bridges.py. Results: results/black_box.json.
"""

from __future__ import annotations

import argparse
import math
import re
import time

import torch

from almakit import attacks, data, models
from benchmarks import common

MODEL, IMAGES, BUDGET = "mnist/smallcnn", 16, 1000
ATTACKS = (
    "hopskipjump(distance=l2, steps=1000)",
    "foolbox:HopSkipJumpAttack(steps=64, constraint=l2)",
    "foolbox:BoundaryAttack(steps=1000)",
    "hopskipjump(distance=linf, steps=1000)",
    "foolbox:HopSkipJumpAttack(steps=64, constraint=linf)",
    "square(distance=linf, epsilon=0.15, steps=999)",
    "torchattacks:Square(norm=Linf, eps=0.15, n_queries=999)",
    "autoattack:square(norm=Linf, eps=0.15)",
    "square(distance=l2, epsilon=2, steps=999)",
    "torchattacks:Square(norm=L2, eps=2, n_queries=999)",
    "autoattack:square(norm=L2, eps=2)",
)


def measure(results: common.Results, args: argparse.Namespace) -> None:
    model = models.load(MODEL)
    x, labels = data.load("mnist", limit=IMAGES).tensors()
    for text in ATTACKS:
        if text in results.cells:
            continue
        started = time.process_time()
        found = attacks.get(text)(model, x, labels, batch_size=IMAGES, budget=BUDGET)
        assert int(found.backwards.max()) == 0 and int(found.forwards.max()) <= BUDGET
        cell = {
            "distances": [None if math.isinf(value) else float(f"{value:.5g}") for value in found.distances.tolist()],
            "forwards": found.forwards.tolist(),
            "cpu": round(time.process_time() - started, 1),
        }
        results.keep(text, cell)
        print(text, cell["cpu"], flush=True)


def sections(results: common.Results, args: argparse.Namespace) -> dict[str, str]:
    rows = []
    for text, cell in ((text, results.cells[text]) for text in ATTACKS if text in results.cells):
        values = torch.tensor([math.inf if value is None else value for value in cell["distances"]])
        median = (
            "-" if re.search(r"\b(eps|epsilon)=", text) else f"{float(values.quantile(0.5, interpolation='lower')):.4g}"
        )
        share = f"{100 * float(torch.isfinite(values).double().mean()):.0f}"
        rows.append([f"`{text}`", share, median, f"{sum(cell['forwards']) / len(values):.0f}"])
    lines = [compared(results, ATTACKS[mine], ATTACKS[theirs]) for mine, theirs in ((0, 1), (0, 2), (3, 4))]
    return {
        "table": common.markdown(["attack ", "found %", "median", "forwards, mean"], rows),
        "pairs": "\n".join(lines),
    }


def compared(results: common.Results, ours: str, theirs: str) -> str:
    """The geometric mean of the images' ratios and its standard error."""
    ratios = common.paired(results.cells[ours], results.cells[theirs])
    return "{} over {}: {:.2f} +- {:.2f} ({} images)".format(ours, theirs, *common.mean_and_error(ratios), len(ratios))
