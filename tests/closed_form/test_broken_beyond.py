"""A network whose logits stop being finite just beyond the boundary: a step too far must be taken back, not followed by
longer ones."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from almakit import attacks

SMALLEST = 0.323418
"""The root of 0.1 - 0.1 t - 2 t^3: seen from t = 0 the boundary seems three times as far."""


class Cliff(nn.Module):
    """The margin is 0.1 - 0.1 t - 2 t^3 along one direction from ``centre``, and not a number where |t| > ``edge``."""

    def __init__(self, centre: Tensor, edge: float):
        super().__init__()
        weight = torch.randn(centre.numel(), generator=torch.Generator().manual_seed(0))
        self.weight, self.centre, self.edge = nn.Parameter(weight / weight.norm()), centre, edge

    def forward(self, x: Tensor) -> Tensor:
        t = (x - self.centre).flatten(1) @ self.weight
        margin = 0.1 - 0.1 * t - 2 * t**3
        logits = torch.stack([margin, torch.zeros_like(margin)], 1)
        return torch.where((t.abs() <= self.edge).unsqueeze(1), logits, torch.full_like(logits, float("nan")))


def attacked(attack: str, edge: float) -> Tensor:
    """(2,) the distances found on two images, both ``centre``."""
    centre = torch.rand(1, 1, 6, 8, generator=torch.Generator().manual_seed(1)) * 0.4 + 0.3
    return attacks.get(attack)(
        Cliff(centre, edge), centre.expand(2, -1, -1, -1), torch.zeros(2, dtype=torch.long), check=False
    ).distances


def test_the_boundary_is_where_the_closed_form_says() -> None:
    assert abs(0.1 - 0.1 * SMALLEST - 2 * SMALLEST**3) < 1e-5


@pytest.mark.parametrize("edge", [0.35, 0.5])
@pytest.mark.parametrize(
    "attack",
    [
        "alma-plus",
        "ddn",
        "fmn(distance=l2)",
        "deepfool",
        "superdeepfool",
        "fab(distance=l2)",
        "pdgd",
        "pdpgd(distance=l2)",
    ],
)
def test_attacks_come_back_from_where_the_logits_are_not_finite(attack: str, edge: float) -> None:
    steps = attack.rstrip(")") + (", " if "(" in attack else "(") + "steps=200)"
    ratio = attacked(steps, edge) / SMALLEST
    assert bool(((ratio > 0.999) & (ratio < 1.05)).all()), ratio


def test_alma_plus_shortens_its_steps_before_anything_is_found() -> None:
    ratio = attacked("alma-plus(steps=60)", 0.34) / SMALLEST
    assert bool((ratio < 1.25).all()), ratio
