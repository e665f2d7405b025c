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
from pathlib import Path

import torch

from almakit import attacks, data, models
from benchmarks import RESULTS, common

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


def measure(results: common.Results) -> None:
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


def table(cells: dict[str, common.Cell]) -> str:
    lines = ["| attack | found % | median | forwards, mean |", "| :-- | --: | --: | --: |"]
    for text in ATTACKS:
        if text in cells:
            values = torch.tensor([math.inf if value is None else value for value in cells[text]["distances"]])
            share = 100 * float(torch.isfinite(values).double().mean())
            middle, mean = (
                float(values.quantile(0.5, interpolation="lower")),
                sum(cells[text]["forwards"]) / len(values),
            )
            shown = "-" if re.search(r"\b(eps|epsilon)=", text) else f"{middle:.4g}"
            lines.append(f"| `{text}` | {share:.0f} | {shown} | {mean:.0f} |")
    return "\n".join(lines)


def paired(cells: dict[str, common.Cell], ours: str, theirs: str) -> str:
    """The geometric mean of the images' ratios and its standard error."""
    pairs = zip(cells[ours]["distances"], cells[theirs]["distances"], strict=True)
    logs = torch.tensor([math.log(one / other) for one, other in pairs if one and other], dtype=torch.float64)
    ratio = math.exp(float(logs.mean()))
    return (
        f"{ours} over {theirs}: {ratio:.2f} +- {ratio * float(logs.std()) / len(logs) ** 0.5:.2f} ({len(logs)} images)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / "black_box.json")
    kept = common.Results(parser.parse_args().out)
    torch.set_num_threads(1)
    measure(kept)
    print(table(kept.cells))
    for mine, theirs in (0, 1), (0, 2), (3, 4):
        print(paired(kept.cells, ATTACKS[mine], ATTACKS[theirs]))
