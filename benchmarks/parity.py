"""Our ALMA beside the authors' library (adv-lib 0.2.8) and their paper: the same networks, the same images, in one run.

    python -m benchmarks parity --quick   every pair once, with 20 images and 50 steps; into --out FILE
    python -m benchmarks parity   what is missing in benchmarks/results/parity.json (about 1.5 hours of one core)
    python -m benchmarks parity --cells mnist-100,lpips   only cells whose name contains one of these words
    python -m benchmarks parity --table   the kept results as markdown; with --docs also into its page

Cells are ``group|network|distance|first step|steps|images``; each is kept as soon as it is done. A cell is held when
all images succeed and our median is within 2 % of adv-lib's (group mnist-100: of the figures measured with adv-lib on
the same 500 images before). The ratio of medians comes with 90 % of its bootstraps over images, the paired ratios of
single images with their median and geometric mean.

adv-lib needs an environment of its own, with ``src`` on PYTHONPATH and ALMAKIT_DATA set as for the tests:

    python3.11 -m venv bench && echo "setuptools<81" > constraint.txt
    PIP_CONSTRAINT=constraint.txt bench/bin/pip install torch==2.13.0 torchvision safetensors adv-lib==0.2.8

(adv-lib runs only with a setuptools that still has pkg_resources. torchvision may lack its compiled operators beside a
CPU torch: they are declared, never called. adv-lib's LPIPS would download torchvision's AlexNet; it is given the same
file that our LPIPS reads.)
"""

from __future__ import annotations

import argparse
import math
import statistics
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import nn

from almakit import data, models
from benchmarks import RESULTS, common, peers

MNIST = ("mnist/smallcnn", "mnist/smallcnn-ddn", "mnist/smallcnn-trades")
CIFAR = ("cifar10/resnet20", "cifar10/resnet4b-adv")
WITHIN = 0.02

# The settings of the authors' runs, written out here and not taken from our own presets, so that a wrong preset shows.
ALPHA = {50: 0.5, 100: 0.5, 1000: 0.9}
FIRST_STEP = {
    "paper": {"l1": 0.5, "l2": 0.1, "ciede2000-paper": 0.05, "ssim": 3e-5, "lpips": 1e-3},
    "scripts": {"ssim": 1e-4, "lpips": 1e-2},
}
ADV_LIB_NAME = {"l1": "l1", "l2": "l2", "ciede2000-paper": "ciede2000", "ssim": "ssim", "lpips": "lpips"}

# adv-lib's ALMA with 100 steps on the first 500 MNIST test images, one thread: medians, 100 % success in all.
MEASURED_500 = {
    ("mnist/smallcnn", "l2"): 1.332,
    ("mnist/smallcnn-ddn", "l2"): 2.590,
    ("mnist/smallcnn-trades", "l2"): 1.658,
    ("mnist/smallcnn", "l1"): 6.315,
    ("mnist/smallcnn-ddn", "l1"): 13.923,
    ("mnist/smallcnn-trades", "l1"): 5.802,
}


@dataclass(frozen=True)
class Case:
    """One line of the tables: a network, a distance, a first step and a budget."""

    group: str
    network: str
    distance: str
    steps: int
    images: int
    first_step: str = "paper"
    layout: str = "contiguous_format"

    @property
    def key(self) -> str:
        name = f"{self.group}|{self.network}|{self.distance}|{self.first_step}|{self.steps} steps|{self.images} images"
        return name if self.layout == "contiguous_format" else f"{name}|{self.layout}"

    @property
    def ours(self) -> str:
        return f"alma(distance={self.distance}, steps={self.steps}, epsilon={self.first_step})"

    @property
    def measured_before(self) -> float | None:
        """adv-lib's median from an earlier measurement, where there is one."""
        return MEASURED_500.get((self.network, self.distance)) if (self.steps, self.images) == (100, 500) else None

    @property
    def adv_lib(self) -> peers.Peer | None:
        """The authors' ALMA with the same settings; None where it lacks the distance."""
        if self.distance not in ADV_LIB_NAME:
            return None
        epsilon = FIRST_STEP[self.first_step][self.distance]
        settings: dict[str, Any] = {
            "distance": ADV_LIB_NAME[self.distance],
            "init_lr_distance": epsilon,
            "α": ALPHA[self.steps],
        }
        attack = peers.adv_lib("alma", "num_steps", **settings)
        if self.distance != "lpips":
            return attack

        def with_the_same_alexnet(model: nn.Module, x: torch.Tensor, labels: torch.Tensor, steps: int) -> torch.Tensor:
            peers.library("adv_lib.distances.lpips").models.alexnet = _alexnet
            return attack(model, x, labels, steps)

        return with_the_same_alexnet


def _cases() -> list[Case]:
    cases = [Case("mnist-100", network, distance, 100, 500) for distance in ("l2", "l1") for network in MNIST]
    presets = [
        ("l1", "paper"),
        ("l2", "paper"),
        ("ciede2000-paper", "paper"),
        ("ssim", "paper"),
        ("lpips", "paper"),
        ("ciede2000", "0.05"),
        ("ciede2000", "0.5"),
        ("ssim", "scripts"),
        ("lpips", "scripts"),
    ]
    cases += [
        Case("cifar-100", network, distance, 100, 64, preset) for network in CIFAR for distance, preset in presets
    ]
    cases += [Case("mnist-1000", network, distance, 1000, 200) for distance in ("l2", "l1") for network in MNIST]
    for network in reversed(CIFAR):
        for distance, preset in presets:
            # A thousand steps through ResNet-20 cost minutes for each distance: one first step each.
            if not (network == "cifar10/resnet20" and preset in ("scripts", "0.05")):
                cases.append(Case("cifar-1000", network, distance, 1000, 64, preset))
    # The same convolutions in another memory layout round differently: what both libraries' medians owe to rounding
    # alone.
    again = [Case("mnist-100", "mnist/smallcnn-trades", "l1", 100, 500)]
    again += [Case("mnist-1000", network, "l1", 1000, 200) for network in ("mnist/smallcnn", "mnist/smallcnn-ddn")]
    return cases + [replace(case, layout="channels_last") for case in again]


@cache
def _alexnet(pretrained: bool = True) -> nn.Module:
    """torchvision's AlexNet with the convolutions our LPIPS uses; its linear layers take no part in LPIPS and stay
    random."""
    from safetensors.torch import load_file

    net = peers.library("torchvision.models").AlexNet()
    state = load_file(data.hub.path("lpips/alexnet-features.safetensors"))
    net.features.load_state_dict({name.removeprefix("features."): value for name, value in state.items()})
    return net


@cache
def _network(name: str, layout: str) -> nn.Module:
    return models.load(name).to(memory_format=getattr(torch, layout))  # type: ignore[call-overload]


def run(case: Case, results: common.Results, only_ours: bool) -> None:
    """Runs what the results lack of a case."""
    x, labels = data.load(case.network.split("/")[0], limit=case.images).tensors()
    batch = 100 if case.network in MNIST else 64
    if f"{case.key}|ours" not in results.cells:
        results.keep(
            f"{case.key}|ours", common.run_ours(case.ours, _network(case.network, case.layout), x, labels, batch)
        )
    peer = case.adv_lib
    if peer is not None and not only_ours and f"{case.key}|adv-lib" not in results.cells:
        results.keep(
            f"{case.key}|adv-lib",
            common.run_peer(peer, _network(case.network, case.layout), x, labels, case.steps, case.distance, batch),
        )


def line(case: Case, results: common.Results) -> list[str] | None:
    """A case as a row of the table; None where it has not been run."""
    ours, theirs = results.cells.get(f"{case.key}|ours"), results.cells.get(f"{case.key}|adv-lib")
    if ours is None:
        return None
    successes = f"{ours['asr']:.4g} / {theirs['asr']:.4g}" if theirs else f"{ours['asr']:.4g}"
    row = [
        case.network.split("/")[1],
        case.distance,
        case.first_step,
        str(case.images),
        successes,
        common.figure(ours["median"]),
    ]
    if theirs:
        low, high = common.medians_ratio_interval(ours, theirs)
        ratios = common.paired(ours, theirs)
        row += [common.figure(theirs["median"]), f"{_ratio(ours, theirs['median']):.3f} ({low:.2f}–{high:.2f})"]
        row.append(f"{statistics.median(ratios):.3f}, {common.geometric_mean(ratios):.3f}")
    else:
        row += ["–"] * 3
    before = case.measured_before
    if case.group == "mnist-100":
        row.append(f"{before:.4g} ({_ratio(ours, before):.3f})" if before else "–")
    if case.network in MNIST:
        median = common.published(*case.network.split("/"), case.distance, "alma", str(case.steps)).get(
            "median_distance"
        )
        row.append(f"{float(median):g}" if median else "–")
    reference = before or (theirs["median"] if theirs else None)
    row.append(_verdict(ours, reference))
    return row


def _verdict(ours: common.Cell, reference: float | None) -> str:
    if ours["asr"] < 100:
        return f"**{ours['asr']:.4g} % succeed**"
    off = 100 * (_ratio(ours, reference) - 1) if reference else 0.0
    return "held" if abs(off) <= 100 * WITHIN else f"{-off:.1f} % smaller" if off < 0 else f"**{off:.1f} % larger**"


def _ratio(ours: common.Cell, median: float | None) -> float:
    return ours["median"] / median if ours["median"] and median else math.nan


def sections(results: common.Results, args: argparse.Namespace) -> dict[str, str]:
    """All groups as markdown."""
    parts, cases = [], chosen(args)
    titles = {
        "mnist-100": "MNIST, 100 steps",
        "mnist-1000": "MNIST, 1000 steps",
        "cifar-100": "CIFAR-10, 100 steps",
        "cifar-1000": "CIFAR-10, 1000 steps",
    }
    for group, title in titles.items():
        members = [case for case in cases if case.group == group and case.layout == "contiguous_format"]
        shown = [(case, row) for case in members if (row := line(case, results)) is not None]
        if not shown:
            continue
        head = [
            "network ",
            "distance ",
            "ε ",
            "images",
            "success %: ours / adv-lib",
            "median: ours",
            "adv-lib",
            "ratio (90 %)",
            "paired: median, mean",
        ]
        head += ["adv-lib before (ratio)"] if group == "mnist-100" else []
        head += ["paper"] if shown[0][0].network in MNIST else []
        head += ["within 2 % "]
        parts.append(
            "### "
            f"{title}\n\n{common.markdown(head, [row for _, row in shown])}\n\n"
            f"{_passes([case for case, _ in shown], results)}"
        )
    rows = [
        row for case in cases if case.layout != "contiguous_format" and (row := _rounding(case, results)) is not None
    ]
    if rows:
        head = [
            "network ",
            "distance ",
            "steps",
            "images",
            "ours: median, and other layout",
            "paired mean",
            "adv-lib: median, and other layout",
            "paired mean",
            "ours / adv-lib, other layout",
        ]
        parts.append(
            f"### The same attack through the same network in another memory layout\n\n{common.markdown(head, rows)}"
        )
    return {"parity": "\n\n".join(parts)}


def _rounding(case: Case, results: common.Results) -> list[str] | None:
    """Each library against itself with the network's convolutions in another layout; None where a part has not been
    run."""
    plain, cells = replace(case, layout="contiguous_format").key, results.cells
    names = [f"{key}|{who}" for who in ("ours", "adv-lib") for key in (plain, case.key)]
    if any(name not in cells for name in names):
        return None
    row = [case.network.split("/")[1], case.distance, str(case.steps), str(case.images)]
    for first, second in (names[:2], names[2:]):
        medians = f"{common.figure(cells[first]['median'])}, {common.figure(cells[second]['median'])}"
        ratio, paired = _ratio(cells[second], cells[first]["median"]), common.paired(cells[second], cells[first])
        row += [f"{medians} ({ratio:.3f})", f"{common.geometric_mean(paired):.3f}"]
    return [*row, f"{_ratio(cells[names[1]], cells[names[3]]['median']):.3f}"]


def _passes(cases: list[Case], results: common.Results) -> str:
    """A sentence on the forwards and backwards of an attacked image."""
    said = []
    for who, name in (("ours", "Ours"), ("adv-lib", "adv-lib's")):
        found = [results.cells[key] for case in cases if (key := f"{case.key}|{who}") in results.cells]
        if found:
            most = max(cell["forwards"] for cell in found), max(cell["backwards"] for cell in found)
            said.append(f"{name}: at most {most[0]:g} forwards and {most[1]:g} backwards per attacked image.")
    return " ".join(said)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quick", action="store_true", help="20 images and 50 steps, into another file than the kept one"
    )
    parser.add_argument("--cells", default="", help="words, comma-separated: cells whose name contains one of them")
    parser.add_argument("--only-ours", action="store_true", help="leave adv-lib out")


def chosen(args: argparse.Namespace) -> list[Case]:
    cases, words = _cases(), [word for word in args.cells.split(",") if word]
    if args.quick:
        plain = [case for case in cases if case.steps == 100 and case.layout == "contiguous_format"]
        cases = [replace(case, steps=50, images=20) for case in plain]
    return [case for case in cases if not words or any(word in case.key for word in words)]


def measure(results: common.Results, args: argparse.Namespace) -> None:
    if args.quick and results.path == RESULTS / "parity.json":
        raise SystemExit("--quick is not for the kept results: name another file with --out.")
    for case in chosen(args):
        run(case, results, args.only_ours)
        print(case.key, *(line(case, results) or [])[4:], sep=" | ", flush=True)
