"""Lines of the paper's MNIST tables that ours differ from by more than 3 %: the authors' library on the same images.

    python -m benchmarks paper deviations   every line, with an interpreter that has adv-lib; 20 minutes
    python -m benchmarks paper deviations --table   the table alone, from what is stored

Where the two libraries agree on the same images, the difference from the paper is one of images or of the version that
the paper ran. Results: results/deviations.json; the table goes to docs/results.md.
"""

from __future__ import annotations

import argparse
import copy
from dataclasses import dataclass
from unittest import mock

import torch
from torch import Tensor, nn

from almakit import attacks, data, models
from benchmarks import peers
from benchmarks.common import Results, markdown, run_ours, run_peer


@dataclass(frozen=True)
class Line:
    """One line of the paper: our attack with its settings, the authors' in one or more forms, on the first images."""

    network: str
    distance: str
    attack: str
    ours: str
    theirs: dict[str, peers.Peer]
    images: int
    steps: int = 100

    @property
    def key(self) -> str:
        return f"{self.network}|{self.distance}|{self.attack}"


def in_double(peer: peers.Peer) -> peers.Peer:
    """The same in float64, where the softmax of a confident network does not round to one."""

    def run(model: nn.Module, x: Tensor, labels: Tensor, steps: int) -> Tensor:
        return peer(copy.deepcopy(model).double(), x.double(), labels, steps).float()

    return run


def scaled_then_clipped(delta: Tensor, radius: Tensor, low: Tensor, high: Tensor, norm: float) -> Tensor:
    """What AutoPGD has in place of the projection onto ball and box in l2: ``delta`` scaled to ``radius`` and then
    clipped to the room between ``low`` and ``high``, which leaves it well inside the ball."""
    lengths = delta.flatten(1).norm(dim=1).clamp_min(1e-12)
    scale = torch.minimum(radius / lengths, torch.ones_like(radius))
    return (delta * scale.view(-1, *[1] * (delta.ndim - 1))).clamp(low, high)


def projected_as_theirs(attack: str) -> peers.Peer:
    """Our APGD with that projection, and nothing else changed."""

    def run(model: nn.Module, x: Tensor, labels: Tensor, steps: int) -> Tensor:
        with mock.patch("almakit.attacks.apgd.onto_ball", scaled_then_clipped):
            return attacks.get(attack)(model, x, labels).adversarials

    return run


DDN = peers.adv_lib("ddn", levels=256)
APGD_T = peers.adv_lib(
    "auto_pgd.minimal_apgd", "n_iter", norm=2.0, max_eps=5.0, binary_search_steps=13, targeted_version=True
)
APGD_T_OURS = "search(attack=apgd(distance=l2, steps=100, loss=targeted-dlr), largest=5.0, halvings=13)"
LINES = (
    Line(
        "mnist/smallcnn",
        "l2",
        "DDN 100",
        "ddn(steps=100, adaptive=false, levels=256)",
        {"adv-lib": DDN, "adv-lib in float64": in_double(DDN)},
        500,
    ),
    Line(
        "mnist/smallcnn",
        "l2",
        "FMN 100",
        "fmn(distance=l2, steps=100, adaptive=false, overshoot=0.0)",
        {"adv-lib": peers.adv_lib("fmn", norm=2)},
        500,
    ),
    Line(
        "mnist/smallcnn-trades",
        "l1",
        "FMN 100",
        "fmn(distance=l1, steps=100, adaptive=false, overshoot=0.0)",
        {"adv-lib": peers.adv_lib("fmn", norm=1)},
        500,
    ),
    Line(
        "mnist/smallcnn-trades",
        "l1",
        "FAB 100",
        "fab(distance=l1, steps=100, search=0)",
        {"adv-lib": peers.adv_lib("fab", "n_iter", norm=1)},
        200,
    ),
    Line(
        "mnist/smallcnn-trades",
        "l2",
        "APGD-T + search",
        APGD_T_OURS,
        {"ours, scaled and clipped": projected_as_theirs(APGD_T_OURS), "adv-lib": APGD_T},
        32,
    ),
)


def measure(results: Results, args: argparse.Namespace) -> None:
    for line in LINES:
        model = models.load(line.network)
        x, labels = data.load("mnist", limit=line.images).tensors()
        if f"{line.key}|ours" not in results.cells:
            results.keep(f"{line.key}|ours", run_ours(line.ours, model, x, labels, batch=100))
        for name, peer in line.theirs.items():
            if f"{line.key}|{name}" not in results.cells:
                cell = run_peer(peer, model, x, labels, line.steps, line.distance, batch=100)
                results.keep(f"{line.key}|{name}", cell)


def sections(results: Results, args: argparse.Namespace) -> dict[str, str]:
    rows = []
    for line in LINES:
        for name in ("ours", *line.theirs):
            if cell := results.cells.get(f"{line.key}|{name}"):
                rows.append([line.network, line.distance, line.attack, name, len(cell["distances"])])
                rows[-1] += [f"{cell['asr']:.1f}", "–" if cell["median"] is None else f"{cell['median']:.4g}"]
    head = ["network ", "distance ", "attack ", "whose ", "images", "success %", "median"]
    return {"deviations": markdown(head, [[str(value) for value in row] for row in rows])}
