"""Robust accuracy at one radius: the standard evaluation beside AutoAttack standard, on the same images.

    python -m benchmarks baselines standard            every network and radius that is not measured yet
    python -m benchmarks baselines standard --only cnn-a   networks whose name contains a word
    python -m benchmarks baselines standard --docs     also writes the table into docs/figures/standard.md

Both run in one process, with seed 0, and both are judged by a fresh pass of the model in float64. Seconds are processor
time of one thread. Needs pyautoattack (in the extra ``bridges``) and ALMAKIT_DATA as for the tests.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import almakit
from almakit.attacks import get
from almakit.core import Result
from almakit.radius import Grid
from benchmarks import common

RADII = {"Linf": (8 / 255, 2 / 255), "L2": (0.5,), "L1": (12.0,)}
DIGITS = {"Linf": (0.3, 0.1), "L2": (2.0,), "L1": (8.0,)}
NETWORKS: dict[str, dict[str, tuple[float, ...]]] = {
    "cifar10/cnn-a-adv": RADII,
    "cifar10/resnet4b-adv": RADII,
    "cifar10/resnet20": {"Linf": (2 / 255, 0.5 / 255), "L2": (0.25,), "L1": (4.0,)},
    "mnist/smallcnn-trades": DIGITS,
    "mnist/smallcnn-ddn": DIGITS,
    "mnist/smallcnn-tiny-ibp": DIGITS,
    "masked/three-bits": {"Linf": (0.2,)},
    "masked/loud": {"Linf": (0.1,)},
    "masked/median": {"Linf": (8 / 255,)},
    "masked/kwta": {"Linf": (0.1,)},
}
"""Reported networks and radii; the masked ones hide their gradients and were chosen before anything was run on them."""


class ThreeBits(nn.Module):
    """A network that sees its input rounded to eight levels: its gradient is zero."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner((7 * x).round() / 7)


class Loud(nn.Module):
    """A network whose logits are ten thousand times as large: the cross-entropy's gradient vanishes."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return 1e4 * self.inner(x)


class Median(nn.Module):
    """A network that sees the median of each value's 3 x 3 neighbours."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        windows = F.pad(x, (1, 1, 1, 1), mode="reflect").unfold(2, 3, 1).unfold(3, 3, 1)
        return self.inner(windows.flatten(4).median(-1).values)


def network(name: str) -> nn.Module:
    """The network by name; masked ones are made of the paper's."""
    if name == "masked/three-bits":
        return ThreeBits(almakit.models.load("mnist/smallcnn-trades")).eval()
    if name == "masked/loud":
        return Loud(almakit.models.load("mnist/smallcnn")).eval()
    if name == "masked/median":
        return Median(almakit.models.load("cifar10/cnn-a-adv")).eval()
    if name == "masked/kwta":
        from benchmarks import subjects

        return subjects.network(name)
    return almakit.models.load(name)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--only", default="", help="networks whose name contains this")


def measure(results: common.Results, args: argparse.Namespace) -> None:
    for name, norms in NETWORKS.items():
        if args.only not in name:
            continue
        data = "cifar10" if name.startswith("cifar10") or name == "masked/median" else "mnist"
        model, (x, labels) = network(name), almakit.data.load(data, limit=args.images).tensors()
        for norm, radii in norms.items():
            for eps in radii:
                key = f"{name}|{norm}|{eps:.6g}|{args.images}"
                if key not in results.cells:
                    results.keep(key, cell(model, x, labels, norm, eps))
                    print(key, results.cells[key], flush=True)


def cell(model: nn.Module, x: Tensor, labels: Tensor, norm: str, eps: float) -> dict[str, Any]:
    """Both on the same images: robust accuracy after re-judging, passes per image, seconds, and who is broken by one
    alone."""
    began = time.process_time()
    ours = almakit.standard_evaluation(model, x, labels, norm, eps)
    middle = time.process_time()
    theirs = get(f"autoattack:standard(norm={norm}, eps={eps!r}, seed=0)")(model, x, labels, batch_size=250)
    ended = time.process_time()
    mine, other = (holds(model, x, labels, found, norm, eps) for found in (ours, theirs))
    stages = [[stage.name, stage.images, stage.broken, round(stage.seconds, 2)] for stage in ours.stages]
    return {
        "images": len(x),
        "ours": 1 - float(mine.double().mean()),
        "autoattack": 1 - float(other.double().mean()),
        "only_ours": (mine & ~other).nonzero().flatten().tolist(),
        "only_autoattack": (other & ~mine).nonzero().flatten().tolist(),
        "passes": [passes(ours), passes(theirs)],
        "seconds": [middle - began, ended - middle],
        "stages": stages,
        "signs": list(ours.signs),
    }


def passes(found: Result) -> float:
    """Forwards and backwards per image."""
    return float((found.forwards + found.backwards).double().mean())


@torch.no_grad()
def holds(model: nn.Module, x: Tensor, labels: Tensor, found: Result, norm: str, eps: float) -> Tensor:
    """(B,) which images are wrong or broken within ``eps``, by a pass and a norm of our own."""
    points = found.adversarials.to(x)
    order = {"Linf": math.inf, "L2": 2, "L1": 1}[norm]
    near = torch.linalg.vector_norm((points - x).double().flatten(1), ord=order, dim=1) <= Grid().limit(eps)
    inside = ((points >= 0) & (points <= 1)).flatten(1).all(1)
    wrong = torch.cat([model(part).argmax(1) for part in points.split(32)]) != labels
    clean = torch.cat([model(part).argmax(1) for part in x.split(32)]) != labels
    return clean | (near & inside & wrong)


def sections(results: common.Results, args: argparse.Namespace) -> dict[str, str]:
    rows, times = [], []
    for key, kept in results.cells.items():
        if "only_ours" not in kept:
            continue
        name, norm, eps, images = key.split("|")
        ratio = kept["seconds"][0] / kept["seconds"][1]
        times.append(ratio)
        rows.append(
            [
                name,
                norm,
                common_radius(float(eps)),
                images,
                f"{100 * kept['ours']:.1f}",
                f"{100 * kept['autoattack']:.1f}",
                f"{len(kept['only_ours'])} / {len(kept['only_autoattack'])}",
                f"{kept['passes'][0]:.0f} / {kept['passes'][1]:.0f}",
                f"{kept['seconds'][0]:.1f} / {kept['seconds'][1]:.1f}",
                f"{ratio:.2f}",
            ]
        )
    head = [
        "network",
        "norm",
        "ε",
        "images",
        "robust %, almakit",
        "robust %, AutoAttack",
        "broken by one alone, almakit / AutoAttack",
        "passes per image",
        "seconds",
        "ratio",
    ]
    mean = math.exp(sum(map(math.log, times)) / len(times)) if times else math.nan
    text = (
        "almakit-standard-v1 beside AutoAttack standard (seed 0), the first test images, processor time of one thread; "
        f"every point judged again. Geometric mean of the ratios of seconds: {mean:.2f}."
    )
    return {"standard": f"{common.markdown(head, rows)}\n\n{text}"}


def common_radius(eps: float) -> str:
    """A radius as people write it: 8/255 where it is one."""
    levels = eps * 255
    return f"{levels:.3g}/255" if eps < 0.06 and abs(levels * 2 - round(levels * 2)) < 1e-3 else f"{eps:g}"
