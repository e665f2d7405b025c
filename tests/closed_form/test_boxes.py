"""Linear models on vectors whose features have boxes, grids and fixed places of their own, against exact optima."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from closed_form.linear import Linear, shortest
from torch import Tensor

import almakit
from almakit import Box

NORMS = {"l1": 1.0, "l2": 2.0, "linf": math.inf}


def vectors(seed: int, features: int, batch: int) -> tuple[Linear, Tensor, Tensor, Tensor, Tensor]:
    """A linear model of two classes, vectors in boxes of their features' own, their labels, and the boxes' ends."""
    generator = torch.Generator().manual_seed(seed)
    lo = 2 * torch.rand(features, generator=generator) - 3
    hi = lo + 0.2 + 3 * torch.rand(features, generator=generator)
    weight = torch.randn(2, features, generator=generator)
    x = lo + (hi - lo) * torch.rand(batch, features, generator=generator)
    model = Linear(weight, -(weight * (lo + hi) / 2).sum(1))
    return model, x, model(x).argmax(1), lo, hi


@pytest.mark.parametrize("distance", NORMS)
def test_the_smallest_change_in_a_box_per_feature_is_found(distance: str) -> None:
    model, x, labels, lo, hi = vectors(0, 9, 24)
    moves = torch.arange(9) != 4
    result = almakit.attack(model, x, labels, distance=distance, steps=100, box=Box(lo, hi, mask=moves))
    ratios = []
    for row, label in enumerate(labels.tolist()):
        w = (model.weight[1 - label] - model.weight[label]).double().numpy()
        need = -float(w @ x[row].double().numpy() + float(model.bias[1 - label] - model.bias[label]))
        low, high = ((end - x[row]).double() * moves for end in (lo, hi))
        best = shortest(w, need, low.numpy(), high.numpy(), NORMS[distance])
        ratios.append(float(result.distances[row]) / best)
    assert bool(result.success.all()) and torch.equal(result.adversarials[:, 4], x[:, 4])
    assert min(ratios) > 1 - 1e-4 and max(ratios) < 1.01, ratios


@pytest.mark.parametrize("distance", NORMS)
def test_whole_numbers_against_all_of_them(distance: str) -> None:
    """Five features of five whole numbers each: what is found is never below the best of the 3125, and seldom above."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(2, 5, generator=generator)
    model = Linear(weight, -(weight * 2).sum(1))
    x = torch.randint(0, 5, (32, 5), generator=generator).float()
    labels = model(x).argmax(1)
    every = torch.tensor(list(itertools.product(range(5), repeat=5)), dtype=torch.float32)
    wrong = model(every).argmax(1)[None] != labels[:, None]
    apart = torch.linalg.vector_norm(every[None] - x[:, None], ord=NORMS[distance], dim=2)
    best = torch.where(wrong, apart, torch.inf).amin(1)
    result = almakit.attack(model, x, labels, distance=distance, steps=100, box=Box(0, 4, step=1))
    assert bool(result.success.all()) and torch.equal(result.adversarials, result.adversarials.round())
    assert bool((result.distances >= best - 1e-5).all())
    assert float((result.distances / best).mean()) < 1.25
