"""The picture of docs/soft-walk.md: both ways of the soft walk to the boundary of a network of two inputs, every query
a dot.

    python -m benchmarks walk picture

The network's margin is flat around the clean point, as certified training makes it. A norm has one start inside and
one outside; the same distance as a function of the user's is walked from inside.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
import torch
from torch import Tensor, nn

from almakit import SoftWalk
from benchmarks import DOCS

matplotlib.use("agg")
from matplotlib import pyplot

CLEAN = torch.tensor([0.42, 0.5])


class Toy(nn.Module):
    """A wavy island of one class; its margin saturates inside. Remembers where it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        points = x.flatten(1)
        self.asked.append(points.detach().clone())
        away = points - 0.5
        angle = torch.atan2(away[:, 1], away[:, 0])
        margin = torch.tanh(
            5 * (0.3 + 0.07 * torch.sin(3 * angle + 0.6) - away.square().sum(1).clamp_min(1e-12).sqrt())
        )
        return torch.stack([margin, torch.zeros_like(margin)], 1)


def asked(distance: object, steps: int) -> Tensor:
    model = Toy()
    SoftWalk(distance=distance, steps=steps)(
        model, CLEAN.view(1, 1, 1, 2), torch.zeros(1, dtype=torch.long), check=False
    )
    return torch.cat([points[:1] for points in model.asked])


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("picture", nargs="?", type=Path, default=DOCS / "pictures" / "walk.png")


def main(args: argparse.Namespace) -> None:
    grid = torch.linspace(0, 1, 240)
    plane = torch.stack(torch.meshgrid(grid, grid, indexing="xy"), -1)
    logits = Toy()(plane.view(-1, 1, 1, 2))
    margin = (logits[:, 0] - logits[:, 1]).view(240, 240)
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 4.3), sharey=True)
    ways = (
        ("a norm: from inside and from outside", "l2"),
        ("any other distance: from inside", lambda a, b: (a - b).flatten(1).square().sum(1)),
    )
    for axis, (title, distance) in zip(axes, ways, strict=True):
        points = asked(distance, 40)
        axis.contourf(grid, grid, margin, levels=12, cmap="Greys_r", alpha=0.45)
        axis.contour(grid, grid, margin, levels=[0.0], colors="black", linewidths=1.5)
        axis.plot(points[1:, 0], points[1:, 1], color="tab:blue", linewidth=0.7, alpha=0.6)
        axis.scatter(points[1:, 0], points[1:, 1], c=range(1, len(points)), cmap="viridis", s=16, zorder=3)
        axis.scatter(*CLEAN, marker="*", s=140, color="tab:red", zorder=4)
        axis.set(title=title, xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=[], yticks=[])
    figure.tight_layout()
    figure.savefig(args.picture, dpi=110)
