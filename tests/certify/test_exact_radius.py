"""Exact distances: those of tiny networks as another program finds them, a found distance that is too small, and what
cannot be solved."""

from __future__ import annotations

import math

import pytest
import torch
from exact.relu import images, optima, tiny_network
from torch import nn

from almakit.certify import certified_radius
from almakit.certify.exact import exact_radius
from almakit.certify.intervals import NORMS
from almakit.errors import BadInput, BadModel

COUNT = 2


@pytest.mark.parametrize(
    ("norm", "start"), [("linf", "nothing"), ("l1", "nothing"), ("linf", "the truth"), ("l1", "far above")]
)
def test_brackets_of_tiny_networks_close_around_the_truth(norm: str, start: str) -> None:
    model = tiny_network(1)
    x, labels = images(1, COUNT)
    truth = torch.tensor(
        [optima(model, image, label)[NORMS[norm]][0] for image, label in zip(x, labels.tolist(), strict=True)],
        dtype=torch.float64,
    )
    found = {"nothing": None, "the truth": truth * (1 + 1e-6), "far above": truth * 1.3}[start]
    for bracket, value in zip(exact_radius(model, x, labels, norm, found=found), truth.tolist(), strict=True):
        assert bracket.closed, bracket
        assert bracket.lower <= value * (1 + 1e-6) and value * (1 - 1e-6) <= bracket.upper <= value * 1.0012


def test_a_claim_that_crown_passes_is_contradicted_by_the_lower_end() -> None:
    model = tiny_network(0)
    x, labels = images(0, 2)
    truth = [optima(model, image, label)[math.inf][0] for image, label in zip(x, labels.tolist(), strict=True)]
    for bracket, value in zip(exact_radius(model, x, labels, found=torch.tensor(truth) * 0.2), truth, strict=True):
        assert bracket.closed and bracket.lower == pytest.approx(value, rel=1.2e-3)


def test_time_runs_out_without_a_false_claim() -> None:
    model = tiny_network(0)
    x, labels = images(0, 1)
    truth = optima(model, x[0], int(labels[0]))[math.inf][0]
    (bracket,) = exact_radius(model, x, labels, found=torch.tensor([truth * 1.2]), seconds=1e-9)
    assert 0 < bracket.lower <= truth and bracket.upper == pytest.approx(truth * 1.2) and not bracket.closed


def test_a_convolution_with_a_residual_sum_is_solved_and_never_below_crown() -> None:
    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(2, 2, 3, padding=1)
            self.last = nn.Linear(32, 3)

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            inside = torch.relu(self.one(image))
            return self.last(torch.relu(self.two(inside) + inside).flatten(1))

    torch.manual_seed(0)
    model = Small().double().eval()
    x = torch.rand(1, 1, 4, 4, dtype=torch.float64)
    labels = model(x).argmax(1)
    (bracket,) = exact_radius(model, x, labels)
    assert bracket.closed and bracket.lower >= float(certified_radius(model, x, labels)) * (1 - 2e-3)
    far = torch.rand(2000, 1, 4, 4, dtype=torch.float64)
    near = (x + (2 * far - 1) * bracket.lower).clamp(0, 1)
    assert math.isfinite(bracket.lower) and bool((model(near).argmax(1) == labels).all())


def test_what_cannot_be_solved_is_refused_with_a_sentence() -> None:
    x, labels = torch.rand(1, 1, 8, 8), torch.zeros(1, dtype=torch.long)
    plain = nn.Sequential(nn.Flatten(), nn.Linear(64, 3)).eval()
    with pytest.raises(BadInput, match="solved in linf and l1, not in l2"):
        exact_radius(plain, x, labels, "l2")
    with pytest.raises(BadModel, match="has a MaxPool layer; exact distances need networks of ReLU"):
        exact_radius(nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)).eval(), x, labels)
    with pytest.raises(BadModel, match="6000 ReLU units; exact distances are out of reach beyond 5000"):
        exact_radius(nn.Sequential(nn.Flatten(), nn.Linear(64, 6000), nn.ReLU(), nn.Linear(6000, 2)).eval(), x, labels)
