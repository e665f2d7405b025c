"""What each piece of the soft walk is worth: the attack with one setting changed, against the whole, on the networks
and images for choosing.

    python -m benchmarks walk ablation      every row in l1, l2, linf and SSIM at 30, 100 and 300 queries, twelve digits
      on each of four networks of the pool's choosing half; ten to twenty minutes of one processor
    python -m benchmarks walk ablation --rows "the whole,no momentum" --distances l2 --networks cifar10-pgd --out a.json
    python -m benchmarks walk ablation --distances weighted-l1 --steps 100
    python -m benchmarks walk ablation --distances lpips,ciede2000 --steps 100 --images 24
      --networks cifar10/cnn-a-adv,cifar10/resnet4b-adv,cifar10/resnet20
    python -m benchmarks walk ablation --table --docs

A figure is the geometric mean over all images of the paired ratio to the whole attack, with its standard error: above
1, the piece is worth having. Nothing here is reported on: the images are MNIST's test images from 9000 and CIFAR-10's
from 2000 on, the networks are not the sealed ones.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from almakit import data, models
from almakit.attacks import soft_walk
from almakit.attacks.soft_walk import SETTINGS, SoftWalk
from almakit.core import Box
from almakit.distances.base import Bound
from almakit.optim import QuasiNewton
from almakit.tensors import per_image
from benchmarks import common, subjects
from benchmarks.pool import networks


class AsIfItFell(Bound):
    """A distance that no step seems to raise."""

    def __init__(self, inner: Bound):
        super().__init__(inner.distance, inner.x)
        self.inner = inner

    def value_and_grad(self, y: Tensor) -> tuple[Tensor, Tensor]:
        value, slope = self.inner.value_and_grad(y)
        return torch.zeros_like(value), slope


class NotBack(QuasiNewton):
    """No step is taken back."""

    def __init__(self, bound: Bound, box: Box, gradients: int, memory: int, smoothing: float):
        super().__init__(bound, box, gradients, memory, smoothing)
        self.bound = AsIfItFell(bound)


class WithoutClean(QuasiNewton):
    """The clean image is not among the pairs."""

    def _learn(self, moved: Tensor, slope: Tensor, fresh: Tensor | None) -> Tensor:
        guess = super()._learn(moved, slope, fresh)
        self.whole = moved, slope, torch.zeros_like(self.whole[2])
        return guess


class Even(QuasiNewton):
    """The first guess is the same for all values of an image."""

    def _learn(self, moved: Tensor, slope: Tensor, fresh: Tensor | None) -> Tensor:
        guess = super()._learn(moved, slope, fresh)
        return per_image(guess.flatten(1).mean(1), guess).expand_as(guess)


class SlopesAlone(QuasiNewton):
    """The first guess is by slopes: how far values have moved is left out."""

    def _learn(self, moved: Tensor, slope: Tensor, fresh: Tensor | None) -> Tensor:
        super()._learn(moved, slope, fresh)
        far, steep = self.far.sqrt().flatten(1).mean(1), self.steep.sqrt()
        return per_image(self.scale * far, steep) / (steep + 1e-3 * per_image(steep.flatten(1).mean(1), steep) + 1e-30)


WHOLE = "the whole"
ROWS = {
    WHOLE: SETTINGS,
    "blocks twice as long": replace(SETTINGS, queries=200),
    "blocks half as long": replace(SETTINGS, queries=50),
    "hard margin": replace(SETTINGS, warm=(1e-3, 1e-3), cold=1e-3),
    "warm to the end": replace(SETTINGS, cold=0.2),
    "no momentum": replace(SETTINGS, momentum=0.0),
    "half the radius": replace(SETTINGS, radius=SETTINGS.radius / 2),
    "radius kept": replace(SETTINGS, halvings=(0.0, 0.0)),
}
IN_NORMS = {
    "no overshoot": replace(SETTINGS, overshoot=1.0),
    "one start": replace(SETTINGS, starts=1),
    "two starts": replace(SETTINGS, starts=2),
    "a quarter before the choice": replace(SETTINGS, trial=0.25),
    "more strides": replace(SETTINGS, strides=8),
    "no bisections": replace(SETTINGS, bisections=0),
    "five bisections": replace(SETTINGS, bisections=5),
    "best values not kept": replace(SETTINGS, kept=1.0),
}
ELSEWHERE = {
    "half the gradients": replace(SETTINGS, gradients=2),
    "memory of four": replace(SETTINGS, memory=4),
    "no smoothing": replace(SETTINGS, smoothing=0.0),
    "clean image not in memory": WithoutClean,
    "steps not taken back": NotBack,
    "first guess by slopes alone": SlopesAlone,
    "first guess even": Even,
}
ALL: dict[str, soft_walk.Settings | type[QuasiNewton]] = {**ROWS, **IN_NORMS, **ELSEWHERE}
FIRST = {"mnist": 9000, "cifar10": 2000}


@contextmanager
def changed(what: soft_walk.Settings | type[QuasiNewton]) -> Iterator[None]:
    """The attack with other settings, or another solver, inside."""
    if isinstance(what, soft_walk.Settings):
        soft_walk.SETTINGS = what
    else:
        soft_walk.QuasiNewton = what
    try:
        yield
    finally:
        soft_walk.SETTINGS, soft_walk.QuasiNewton = SETTINGS, QuasiNewton


def subject(name: str, count: int) -> tuple[nn.Module, Tensor, Tensor]:
    """A network of the pool's choosing half or of the zoo, and images for choosing."""
    first = FIRST[name.replace("/", "-").split("-")[0]]
    if "/" not in name:
        return networks.load(name), *networks.images(name, range(first, first + count))
    x, labels = data.load(name.split("/")[0], limit=first + count).tensors()
    return models.load(name), x[first:], labels[first:]


def measure(results: common.Results, args: argparse.Namespace) -> None:
    names, distances = args.networks.split(","), args.distances.split(",")
    for steps, name in itertools.product(map(int, args.steps.split(",")), names):
        model, x, labels = subject(name, args.images)
        for distance in distances:
            mine = {**ROWS, **(IN_NORMS if distance in ("l0", "l1", "l2", "linf") else ELSEWHERE)}
            for row in args.rows.split(",") if args.rows else mine:
                key = f"{name}|{distance}|{row}|{steps}|{args.images}"
                if key in results.cells or row not in mine:
                    continue
                with changed(ALL[row]):
                    attack = SoftWalk(distance=subjects.distance(distance), steps=steps)
                    results.keep(key, common.run_ours(attack, model, x, labels, 64, steps))
                print(key, results.cells[key]["median"], flush=True)


def sections(results: common.Results, args: argparse.Namespace) -> dict[str, str]:
    """Rows by distances and queries: the geometric mean over images of the ratio to the whole."""
    columns = sorted({(key.split("|")[1], int(key.split("|")[3])) for key in results.cells})
    lines = []
    for row in ALL:
        cells = [row]
        for column in columns:
            ratios = []
            for key, cell in results.cells.items():
                name, distance, which, steps, count = key.split("|")
                whole = results.cells.get(f"{name}|{distance}|{WHOLE}|{steps}|{count}")
                if (distance, int(steps)) == column and which == row and whole is not None:
                    ratios += common.paired(cell, whole)
            cells.append("{:.3f} ± {:.3f}".format(*common.mean_and_error(ratios)) if ratios else "–")
        lines.append(cells)
    head = ["changed ", *(f"{distance}, {steps}" for distance, steps in columns)]
    return {"ablation": common.markdown(head, lines[1:])}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", default="", help=f"comma-separated, of: {', '.join(ALL)}")
    parser.add_argument("--distances", default="l1,l2,linf,ssim")
    parser.add_argument(
        "--networks",
        default="mnist-mlp,mnist-pgd,mnist-trades-deep,mnist-kwta",
        help="of the pool's choosing half or of the zoo",
    )
    parser.add_argument("--images", type=int, default=12)
    parser.add_argument("--steps", default="100,30,300", help="comma-separated numbers of queries")
