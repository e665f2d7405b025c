"""What each piece of the soft walk is worth: the attack with one setting changed, against the whole, on the networks
and images for choosing.

    python -m benchmarks walk ablation   every row in l1, l2 and linf at 100 queries on the
      pool's choosing half; 32 images each
    python -m benchmarks walk ablation --rows "one walk,no momentum" --distances l2 --networks mnist-pgd --images 8
    python -m benchmarks walk ablation --networks cifar10/cnn-a-adv --distances lpips,ssim,ciede2000
    python -m benchmarks walk ablation --table --docs

A figure is the geometric mean over networks of the paired ratio to the whole attack, with its standard error: above 1,
the piece is worth having. Nothing here is reported on: the images are MNIST's test images from 9000 and CIFAR-10's from
2000 on, the networks are not the sealed ones.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from torch import Tensor, nn

from almakit import data, models
from almakit.attacks import soft_walk
from almakit.attacks.soft_walk import SETTINGS, SoftWalk
from benchmarks import common
from benchmarks.pool import networks

WHOLE = "the whole"
ROWS = {
    WHOLE: SETTINGS,
    "one walk of all queries": replace(SETTINGS, queries=(100, 100)),
    "walks half as long": replace(SETTINGS, queries=(25, 50)),
    "hard margin": replace(SETTINGS, warm=(1e-3, 1e-3), cold=1e-3),
    "warm to the end": replace(SETTINGS, cold=0.2),
    "the other warmth": replace(SETTINGS, warm=(0.2, 0.6)),
    "no momentum": replace(SETTINGS, momentum=0.0),
    "strides of equal length": replace(SETTINGS, growth=1.0),
    "half as many strides": replace(SETTINGS, strides=7),
    "no bisections": replace(SETTINGS, bisections=0),
    "half the radius": replace(SETTINGS, radius=SETTINGS.radius / 2),
    "radius kept": replace(SETTINGS, halvings=0.0),
    "no overshoot": replace(SETTINGS, overshoot=1.0),
    "one rival": replace(SETTINGS, rivals=1),
    "half the gradients": replace(SETTINGS, gradients=200),
    "unlimited memory": replace(SETTINGS, memory=10**6),
    "memory of four": replace(SETTINGS, memory=4),
    "no smoothing": replace(SETTINGS, smoothing=0.0),
}
# Rows that change nothing in norms, and those that change nothing in other distances within one walk from inside.
OTHERS = ("half the gradients", "unlimited memory", "memory of four", "no smoothing")
NORMS = ("one rival", "strides of equal length", "half as many strides", "no bisections")
FIRST = {"mnist": 9000, "cifar10": 2000}


@contextmanager
def settings(changed: soft_walk.Settings) -> Iterator[None]:
    """The attack with other settings inside."""
    soft_walk.SETTINGS = changed
    try:
        yield
    finally:
        soft_walk.SETTINGS = SETTINGS


def subject(name: str, count: int) -> tuple[nn.Module, Tensor, Tensor]:
    """A network of the pool's choosing half or of the zoo, and images for choosing."""
    first = FIRST[name.replace("/", "-").split("-")[0]]
    if "/" not in name:
        return networks.load(name), *networks.images(name, range(first, first + count))
    x, labels = data.load(name.split("/")[0], limit=first + count).tensors()
    return models.load(name), x[first:], labels[first:]


def measure(results: common.Results, args: argparse.Namespace) -> None:
    for name in args.networks.split(",") if args.networks else networks.halves()["choosing"]:
        model, x, labels = subject(name, args.images)
        for distance in args.distances.split(","):
            for row in args.rows.split(",") if args.rows else ROWS:
                key = f"{name}|{distance}|{row}|{args.steps}|{args.images}"
                if key in results.cells or row in (OTHERS if distance in ("l0", "l1", "l2", "linf") else NORMS):
                    continue
                with settings(ROWS[row]):
                    attack = SoftWalk(distance=distance, steps=args.steps)
                    results.keep(key, common.run_ours(attack, model, x, labels, 64, args.steps))
                print(key, results.cells[key]["median"], flush=True)


def sections(results: common.Results, args: argparse.Namespace) -> dict[str, str]:
    """Rows by distances: the geometric mean over networks of the ratio to the whole."""
    distances = sorted({key.split("|")[1] for key in results.cells})
    lines = []
    for row in ROWS:
        cells = [row]
        for distance in distances:
            ratios = []
            for key, cell in results.cells.items():
                name, of, which, steps, count = key.split("|")
                whole = results.cells.get(f"{name}|{of}|{WHOLE}|{steps}|{count}")
                if of == distance and which == row and whole is not None:
                    ratios += common.paired(cell, whole)
            cells.append("{:.3f} ± {:.3f}".format(*common.mean_and_error(ratios)) if ratios else "–")
        lines.append(cells)
    return {"ablation": common.markdown(["changed ", *distances], lines)}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", default="", help=f"comma-separated, of: {', '.join(ROWS)}")
    parser.add_argument("--distances", default="l1,l2,linf")
    parser.add_argument("--networks", default="", help="of the pool's choosing half or of the zoo; default: that half")
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--steps", type=int, default=100)
