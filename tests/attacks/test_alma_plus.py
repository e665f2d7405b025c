"""ALMA-plus: its budget, the rooms it is divided into, and the start from outside on a network whose clean gradient misleads."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from almakit import attacks, models
from almakit.attacks.plus.far import PASSES, far_start
from almakit.core import Attack, Problem
from almakit.data import load


@pytest.mark.parametrize("distance", ["l0", "l1", "l2", "linf", "ssim"])
@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8, 21, 60, 190])
def test_no_budget_is_exceeded_however_small(distance: str, steps: int) -> None:
    model = models.load("mnist/smallcnn-tiny")
    x, labels = load("mnist-demo", limit=3).tensors()
    result = attacks.get(f"alma-plus(distance={distance}, steps={steps})")(model, x, labels)
    assert int(result.forwards.max()) <= steps and int(result.backwards.max()) <= steps
    if steps >= 21:
        assert bool((result.distances < float("inf")).all()), "twenty passes suffice on an ordinary network"


class Plateau(nn.Module):
    """Two classes whose boundary is |x| = 1, behind a plateau: around zero the margin's slope is a hundred times too small."""

    def forward(self, x: Tensor) -> Tensor:
        square = x.flatten(1).square().sum(1)
        outside = torch.sigmoid(20 * (square - 0.2))
        margin = (1 - square) * outside + (1 - outside) - 0.01 * x.flatten(1).sum(1) * (1 - outside)
        return torch.stack([margin, torch.zeros_like(margin)], 1)


class _FarStart(Attack):
    """Only the start from outside."""

    def run(self, problem: Problem) -> None:
        self.point.append(far_start(problem))

    point: list[Tensor] = []


def test_a_far_start_ends_just_outside_the_boundary_and_keeps_its_budget() -> None:
    _FarStart.point.clear()
    x = torch.zeros(2, 1, 2, 2)
    result = _FarStart()(Plateau(), x, torch.zeros(2, dtype=torch.long), check=False)
    assert int(result.forwards.max()) <= PASSES + 1
    (point,) = _FarStart.point
    radius = point.flatten(1).norm(dim=1)
    assert bool(((radius > 1) & (radius < 1.2)).all()), radius


def test_a_network_whose_clean_gradient_misleads_is_reached_from_outside() -> None:
    """On the interval-trained network a start from outside finds what the way out does not: at most 1.2 against 1.5 in the median of these digits."""
    model = models.load("mnist/smallcnn-tiny-ibp")
    x, labels = load("mnist-demo", limit=32).tensors()
    result = attacks.get("alma-plus(distance=l2, steps=300)")(model, x, labels)
    assert bool((result.distances < float("inf")).all())
    assert float(result.distances.median()) < 1.2
