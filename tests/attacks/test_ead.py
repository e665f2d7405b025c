"""EAD against its algorithm in a plain loop, its counts and its decision rules."""

from __future__ import annotations

import math

import pytest
import torch
from attacks.small_problem import LABELS, MODEL, SECOND, X, fools
from torch import Tensor

from almakit.attacks.ead import EAD


def by_the_book(image: Tensor, label: int, c: float, steps: int, rate: float, beta: float, accelerated: bool) -> float:
    """One search for one image (1, ...): the smallest l1 among the iterates x_k and the points y_k."""

    def margin(point: Tensor) -> Tensor:
        logits = MODEL(point)[0]
        return logits[label] - torch.cat([logits[:label], logits[label + 1 :]]).max()

    best, x_k, y_k = math.inf, image, image
    for k in range(steps):
        leaf = y_k.clone().requires_grad_(True)
        loss = c * margin(leaf).clamp_min(0) + (leaf - image).square().sum()
        (gradient,) = torch.autograd.grad(loss, leaf)
        z = y_k - rate * math.sqrt(1 - k / steps) * gradient
        moved = torch.where(
            z - image > beta, (z - beta).clamp(max=1), torch.where(z - image < -beta, (z + beta).clamp(min=0), image)
        )
        before, x_k = x_k, moved
        y_k = (x_k + (k / (k + 3) if accelerated else 0) * (x_k - before)).clamp(0, 1)
        for point in (x_k, y_k) if k < steps - 1 else (x_k,):
            if float(margin(point)) < 0:
                best = min(best, float((point - image).abs().sum()))
    return best


@pytest.mark.parametrize("accelerated", [True, False])
@pytest.mark.parametrize("c", [3.0, 10.0])
def test_one_search_is_the_algorithm(c: float, accelerated: bool) -> None:
    result = EAD(steps=50, searches=1, weight=c, accelerated=accelerated, abort_early=False)(MODEL, X, LABELS)
    found = 0
    for row in range(4):
        expected = by_the_book(X[row : row + 1], int(LABELS[row]), c, 50, 0.01, 0.01, accelerated)
        found += math.isfinite(expected)
        assert float(result.distances[row]) == pytest.approx(expected, rel=1e-6)
    assert found >= 2


def test_only_searches_without_success_stop_early() -> None:
    early, full = (EAD(steps=60, searches=7, abort_early=early)(MODEL, X, LABELS) for early in (True, False))
    assert bool((early.forwards < full.forwards).all())
    assert bool((early.distances <= 1.02 * full.distances).all())


def test_the_elastic_net_rule_reports_l1_of_another_point() -> None:
    def elastic(images: Tensor) -> Tensor:
        delta = (images - X).flatten(1)
        return delta.square().sum(1) + 0.01 * delta.abs().sum(1)

    by_l1, by_en = (EAD(steps=60, rule=rule)(MODEL, X, LABELS) for rule in ("l1", "en"))
    assert torch.allclose(by_en.distances, (by_en.adversarials - X).abs().flatten(1).sum(1))
    assert bool(fools(by_en.adversarials).all()) and torch.equal(by_en.forwards, by_l1.forwards)
    assert bool((by_en.distances >= by_l1.distances).all()) and bool(
        (elastic(by_en.adversarials) <= elastic(by_l1.adversarials)).all()
    )
    assert not torch.equal(by_en.distances, by_l1.distances)


def test_an_already_wrong_image_and_a_lost_one_keep_their_distances_under_both_rules() -> None:
    labels = torch.cat([SECOND[:1], LABELS[1:]])
    result = EAD(steps=2, searches=1, rule="en")(MODEL, X, labels)
    assert float(result.distances[0]) == 0 and bool(torch.isinf(result.distances[1:]).all())
