"""How much rounding moves the default attack's distances: each image alone against the same image in a batch of
sixteen, in float32.

    python -m benchmarks walk spread   six networks, l2, 100 queries, 16 images
    python -m benchmarks walk spread --table --docs

A convolution rounds differently in batches of different size, and a walk amplifies it: both end on the boundary,
sometimes in other basins. Figures are over images, of
|log(alone / in company)|.
"""

from __future__ import annotations

import argparse
import math
import statistics

from almakit.attacks.soft_walk import SoftWalk
from benchmarks import common, subjects

NETWORKS = (
    "mnist/smallcnn",
    "mnist/smallcnn-ddn",
    "mnist/smallcnn-trades",
    "masked/ibp",
    "cifar10/resnet4b-adv",
    "cifar10/cnn-a-adv",
)


def one(name: str, distance: str, steps: int, count: int) -> common.Cell:
    (x, labels), net = subjects.images(name, count), subjects.network(name)
    attack = SoftWalk(distance=distance, steps=steps)
    company, alone = (attack(net, x, labels, batch_size=size, check=False).distances.tolist() for size in (16, 1))
    apart = [abs(math.log(a / b)) for a, b in zip(alone, company, strict=True) if 0 < b < math.inf and 0 < a < math.inf]
    return {
        "median": statistics.median(apart),
        "largest": max(apart),
        "within 1 %": sum(value <= 0.01 for value in apart) / len(apart),
        "images": len(apart),
    }


def measure(results: common.Results, args: argparse.Namespace) -> None:
    for name in NETWORKS:
        for distance in args.distances.split(","):
            key = f"{name}|{distance}|{args.steps}"
            if key not in results.cells:
                results.keep(key, one(name, distance, args.steps, args.images))
                print(key, results.cells[key], flush=True)


def sections(results: common.Results, args: argparse.Namespace) -> dict[str, str]:
    rows = [
        [
            *key.split("|"),
            f"{100 * cell['median']:.3f} %",
            f"{100 * cell['largest']:.1f} %",
            f"{100 * cell['within 1 %']:.0f} %",
            str(cell["images"]),
        ]
        for key, cell in sorted(results.cells.items())
    ]
    head = ["network ", "distance ", "budget", "median", "largest", "within 1 %", "images"]
    return {"spread": common.markdown(head, rows)}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--distances", default="l2")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--images", type=int, default=16)
