"""Robust accuracy at one radius: the standard evaluation beside AutoAttack standard, on the same images.

    python -m benchmarks baselines standard            every network and radius that is not measured yet
    python -m benchmarks baselines standard --only cnn-a   cells whose name contains a word
    python -m benchmarks baselines standard --again    our side of the cells again, beside AutoAttack's as kept
    python -m benchmarks baselines standard --docs     also writes the table into docs/standard.md

Both run with seed 0, and both are judged by a fresh pass of the model in float64. Seconds are processor
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
    parser.add_argument("--only", default="", help="cells whose name contains this, such as cnn-a or L2")
    parser.add_argument("--again", action="store_true", help="measure our side of the cells again, not AutoAttack's")


def measure(results: common.Results, args: argparse.Namespace) -> None:
    for name, norms in NETWORKS.items():
        data = "cifar10" if name.startswith("cifar10") or name == "masked/median" else "mnist"
        model, (x, labels) = network(name), almakit.data.load(data, limit=args.images).tensors()
        for norm, eps in ((norm, eps) for norm, radii in norms.items() for eps in radii):
            key = f"{name}|{norm}|{eps:.6g}|{args.images}"
            kept = results.cells.get(key, {})
            if args.only not in key:
                continue
            sides = {side: kept[side] for side in SIDES if side in kept and not (args.again and side == "almakit")}
            for side in SIDES:
                if side not in sides:
                    sides[side] = SIDES[side](model, x, labels, norm, eps)
                    results.keep(key, sides)
                    print(key, side, {**sides[side], "broken": len(sides[side]["broken"])}, flush=True)


def ours(model: nn.Module, x: Tensor, labels: Tensor, norm: str, eps: float) -> dict[str, Any]:
    """The standard evaluation: what a re-judgement counts as broken, and its cost."""
    began = time.process_time()
    found = almakit.standard_evaluation(model, x, labels, norm, eps)
    seconds = time.process_time() - began
    stages = [[stage.name, stage.images, stage.broken, round(stage.seconds, 2)] for stage in found.stages]
    return outcome(model, x, labels, found, norm, eps, seconds) | {"stages": stages, "signs": list(found.signs)}


def theirs(model: nn.Module, x: Tensor, labels: Tensor, norm: str, eps: float) -> dict[str, Any]:
    """AutoAttack standard, likewise."""
    began = time.process_time()
    found = get(f"autoattack:standard(norm={norm}, eps={eps!r}, seed=0)")(model, x, labels, batch_size=250)
    return outcome(model, x, labels, found, norm, eps, time.process_time() - began)


SIDES = {"almakit": ours, "autoattack": theirs}


def outcome(
    model: nn.Module, x: Tensor, labels: Tensor, found: Result, norm: str, eps: float, seconds: float
) -> dict[str, Any]:
    """The images that are wrong or broken, passes per image and seconds."""
    broken = holds(model, x, labels, found, norm, eps).nonzero().flatten().tolist()
    return {"images": len(x), "broken": broken, "passes": passes(found), "seconds": seconds}


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
    rows, times, passed, alone = [], [], [], []
    for key, kept in results.cells.items():
        if not SIDES.keys() <= kept.keys():
            continue
        name, norm, eps, images = key.split("|")
        mine, other = (kept[side] for side in SIDES)
        threat = f"{norm.replace('L', 'ℓ').replace('inf', '∞')} {common_radius(float(eps))}"
        times.append(mine["seconds"] / other["seconds"])
        passed.append(mine["passes"] / other["passes"])
        broken = {"almakit": {*mine["broken"]}, "AutoAttack": {*other["broken"]}}
        sides = [
            f"{side} alone breaks {', '.join(map(str, more))}"
            for side, images_of in broken.items()
            if (more := sorted(images_of - set.intersection(*broken.values())))
        ]
        alone += [f"- {name}, {threat}: {'; '.join(sides)}"] if sides else []
        rows.append(
            [
                f"{name}, {threat}",
                images,
                *(f"{100 * (1 - len(side['broken']) / side['images']):.1f}" for side in (mine, other)),
                f"{mine['passes']:.0f} / {other['passes']:.0f}",
                f"{mine['seconds']:.1f} / {other['seconds']:.1f}",
                f"{times[-1]:.2f}",
            ]
        )
    head = ["network and radius ", "images", "robust %", "AutoAttack's", "passes per image", "seconds", "ratio"]
    text = (
        f"**Geometric means over {len(rows)} rows: {common.geometric_mean(times):.2f} of AutoAttack's processor time, "
        f"{common.geometric_mean(passed):.2f} of its forwards and backwards.** almakit-standard-v1 / AutoAttack "
        "*standard* (seed 0), the first test images, one thread; every point judged again."
    )
    rest = "\n".join(
        ["In the other rows both break the same images; in these they differ (images by number):", "", *alone]
    )
    return {"standard": "\n\n".join([text, common.markdown(head, rows), *([rest] if alone else [])])}


def common_radius(eps: float) -> str:
    """A radius as people write it: 8/255 where it is one."""
    levels = eps * 255
    return f"{levels:.3g}/255" if eps < 0.06 and abs(levels * 2 - round(levels * 2)) < 1e-3 else f"{eps:g}"
