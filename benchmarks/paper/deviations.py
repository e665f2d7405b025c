"""Lines of the paper's MNIST tables that ours differ from by more than 3 %: the authors' library on the same images.

    python -m benchmarks paper deviations   every line, with an interpreter that has adv-lib; 30 minutes
    python -m benchmarks paper deviations --table   the table alone, from what is stored

Where the two libraries agree on the same images, the difference from the paper is one of images or of the version that
the paper ran. Results: results/deviations.json; the table goes to docs/results.md.
"""

from __future__ import annotations

import argparse
import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from almakit import data, models
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


class Watched(nn.Module):
    """A model that keeps the nearest wrongly classified point, in l2, of all it is asked about one image (1, ...)."""

    def __init__(self, model: nn.Module, x: Tensor, label: Tensor):
        super().__init__()
        self.model, self.x, self.label = model, x, label
        self.best, self.distance = x, float("inf")

    def forward(self, points: Tensor) -> Tensor:
        logits: Tensor = self.model(points)
        for point, guess in zip(points.detach(), logits.argmax(1), strict=True):
            distance = float((point - self.x[0]).norm())
            if guess != self.label[0] and distance < self.distance:
                self.best, self.distance = point.clone()[None], distance
        return logits


def every_query(peer: peers.Peer) -> peers.Peer:
    """The same, but the answer is the nearest adversarial point of all queries, whichever class it is of."""

    def run(model: nn.Module, x: Tensor, labels: Tensor, steps: int) -> Tensor:
        found = []
        for image, label in zip(x.split(1), labels.split(1), strict=True):
            watched = Watched(model, image, label)
            peer(watched, image, label, steps)
            found.append(watched.best)
        return torch.cat(found)

    return run


DDN = peers.adv_lib("ddn", levels=256)
APGD_T = peers.adv_lib(
    "auto_pgd.minimal_apgd", "n_iter", norm=2.0, max_eps=5.0, binary_search_steps=13, targeted_version=True
)
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
        "search(attack=apgd(distance=l2, steps=100, loss=targeted-dlr), largest=5.0, halvings=13)",
        {"adv-lib": APGD_T, "adv-lib, every query": every_query(APGD_T)},
        32,
    ),
)


def measure(results: Results, args: argparse.Namespace) -> None:
    for line in LINES:
        model = models.load(line.network)
        x, labels = data.load("mnist", limit=line.images).tensors()
        if f"{line.key}|almakit" not in results.cells:
            results.keep(f"{line.key}|almakit", run_ours(line.ours, model, x, labels, batch=100))
        for name, peer in line.theirs.items():
            if f"{line.key}|{name}" not in results.cells:
                cell = run_peer(peer, model, x, labels, line.steps, line.distance, batch=100)
                results.keep(f"{line.key}|{name}", cell)


def sections(results: Results, args: argparse.Namespace) -> dict[str, str]:
    rows = []
    for line in LINES:
        for name in ("almakit", *line.theirs):
            if cell := results.cells.get(f"{line.key}|{name}"):
                rows.append([line.network, line.distance, line.attack, name, len(cell["distances"])])
                rows[-1] += [f"{cell['asr']:.1f}", "–" if cell["median"] is None else f"{cell['median']:.4g}"]
    head = ["network ", "distance ", "attack ", "library ", "images", "success %", "median"]
    return {"deviations": markdown(head, [[str(value) for value in row] for row in rows])}
