"""Certified radii against the truth: linear models, where they are the optimum, and tiny ReLU networks, whose optimum a
mixed-integer program finds."""

from __future__ import annotations

import math

import pytest
import torch
from closed_form.linear import random_problem, smallest
from exact.relu import images, optima, tiny_network
from torch import nn

from almakit.certify import METHODS, certified_radius
from almakit.certify.intervals import NORMS


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shrink", [1.0, 0.05])
def test_linear_models_are_certified_up_to_the_optimum(norm: str, method: str, shrink: float) -> None:
    model, x, labels = random_problem(3, 12, (2, 5, 4), shrink=shrink, dtype=torch.float64)
    truth = smallest(model, x, labels, NORMS[norm])
    found = certified_radius(model, x, labels, norm, method, tolerance=1e-8)
    assert bool((found <= truth).all()) and bool((found >= truth * (1 - 1e-6)).all()), found / truth


@pytest.mark.parametrize("seed", [0, 1])
def test_never_above_the_optimum_of_a_tiny_network_and_not_far_below(seed: int) -> None:
    model = tiny_network(seed)
    x, labels = images(seed, 4)
    truth = [optima(model, image, label) for image, label in zip(x, labels.tolist(), strict=True)]
    for norm, power in NORMS.items():
        exact = torch.tensor([row[power][0] for row in truth], dtype=torch.float64)
        for method in METHODS:
            found = certified_radius(model, x, labels, norm, method)
            assert bool((found <= exact * (1 + 1e-6)).all()), (norm, method, found / exact)
            assert float((found / exact).median()) > {"ibp": 0.1, "crown": 0.4, "alpha-crown": 0.45}[method]


def test_a_wrong_image_has_radius_zero_and_a_model_that_never_changes_its_mind_an_infinite_one() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).double().eval()
    with torch.no_grad():
        model[1].weight.mul_(1e-3)
        model[1].bias.copy_(torch.tensor([5.0, 0.0, -5.0]))
    x = torch.rand(3, 1, 4, 4, dtype=torch.float64)
    for norm in NORMS:
        found = certified_radius(model, x, torch.tensor([0, 1, 2]), norm)
        assert found.tolist() == [math.inf, 0.0, 0.0]


def test_the_guess_decides_nothing_but_where_the_search_begins() -> None:
    model = tiny_network(0)
    x, labels = images(0, 6)
    plain = certified_radius(model, x, labels)
    for guess in (plain * 0.01, plain * 40, torch.full_like(plain, math.inf)):
        torch.testing.assert_close(certified_radius(model, x, labels, guess=guess), plain, rtol=2.1e-3, atol=0)
