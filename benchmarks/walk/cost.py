"""What the soft walk costs outside the model: processor seconds of one thread, its runs and the reference's by turns.

python -m benchmarks walk cost   norms on a 784-20-10 MLP, 256 digits, over as many bare forward and backward passes
python -m benchmarks walk cost --distances ssim,ciede2000,lpips --images 8   over ALMA with 1000 steps, on cnn-a
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from almakit import ALMA, SoftWalk
from benchmarks import subjects

Case = tuple[nn.Module, Tensor, Tensor, str, int]
"""Model, images, labels, distance and steps."""


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 20), nn.ReLU(), nn.Linear(20, 10)).eval().requires_grad_(False)


def seconds(run: Callable[..., None], case: Case) -> float:
    started = time.process_time()
    run(*case)
    return time.process_time() - started


def walk(model: nn.Module, x: Tensor, labels: Tensor, distance: str, steps: int) -> None:
    SoftWalk(distance=distance, steps=steps)(model, x, labels, batch_size=len(x), check=False)


def bare(model: nn.Module, x: Tensor, labels: Tensor, distance: str, steps: int) -> None:
    """As many forward and backward passes."""
    for _ in range(steps):
        leaf = x.clone().requires_grad_(True)
        torch.autograd.grad(model(leaf).sum(), leaf)


def alma(model: nn.Module, x: Tensor, labels: Tensor, distance: str, steps: int) -> None:
    """1000 steps, whatever the soft walk's ``steps``."""
    ALMA(distance=distance, steps=1000)(model, x, labels, batch_size=len(x), check=False)


def main(args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    for distance in args.distances.split(","):
        norm = distance in ("l0", "l1", "l2", "linf")
        name = "mnist/smallcnn" if norm else "cifar10/cnn-a-adv"
        (x, _), model = subjects.images(name, args.images), mlp() if norm else subjects.network(name)
        with torch.no_grad():
            case = model, x, model(x).argmax(1), distance, args.steps
        reference = bare if norm else alma
        ratio = statistics.median(seconds(walk, case) / seconds(reference, case) for _ in range(args.rounds))
        print(f"{distance}: {ratio:.3g} times {reference.__name__}, {len(x)} images, {args.rounds} rounds", flush=True)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--distances", default="l0,l1,l2,linf")
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
