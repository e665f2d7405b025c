"""LPA: the length of its steps, the weight that calls it back, the radius it holds, and what it refuses."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from attacks.small_problem import LABELS, MODEL, X, fools, traced
from closed_form.linear import random_problem, smallest
from torch import Tensor

from almakit.attacks.lpa import LPA
from almakit.attacks.search import Search


@pytest.mark.parametrize(("distance", "radius"), [("l2", 1.5), ("l1", 9.0), ("linf", 0.25)])
def test_successes_hold_the_radius(distance: str, radius: float) -> None:
    result = LPA(distance=distance, epsilon=radius, steps=30)(MODEL, X, LABELS)
    assert result.success_rate == 1 and bool(fools(result.adversarials).all())
    assert bool((result.distances <= radius * (1 + 1e-6)).all())


def test_counts_of_an_image_that_is_never_found() -> None:
    lost = LPA(distance="l2", epsilon=1e-3, steps=7, searches=3)(MODEL, X, LABELS)
    # The clean pass, three rounds of seven and the point drawn back at the end.
    assert (
        lost.success_rate == 0
        and bool((lost.forwards == 1 + 3 * 7 + 1).all())
        and bool((lost.backwards == 3 * 7).all())
    )
    found = LPA(distance="l2", epsilon=3.0, steps=7, searches=3)(MODEL, X, LABELS)
    assert found.success_rate == 1 and bool((found.forwards < 23).all())


def test_a_step_is_as_long_as_the_distance_it_may_change() -> None:
    """With l2 the distance grows by one a unit of length: the steps are epsilon 0.1^(k/steps) long."""
    points: list[Tensor] = []

    def spy(x: Tensor) -> Tensor:
        points.append(x.detach().clone())
        return MODEL(x)

    middle = 0.4 + 0.2 * X[:1]
    LPA(distance="l2", epsilon=0.02, steps=6, searches=1)(spy, middle, MODEL(middle).argmax(1), check=False)
    walked = points[1:8]  # after the clean image: the random start, five steps, and the point drawn back
    lengths = [float((after - before).norm()) for before, after in pairwise(walked[:6])]
    assert lengths == pytest.approx([0.02 * 0.1 ** (k / 6) / (1 + 1e-4) for k in range(5)], rel=1e-6)
    assert float((points[-1] - middle).norm()) == pytest.approx(0.02, rel=1e-4), "drawn back to the radius"


def test_the_weight_calls_far_points_back() -> None:
    """In the first round the margin outweighs the distance, in the fifth, with ten thousand times the weight, the
    distance does."""
    _, notes = traced(LPA(distance="l2", epsilon=0.05, steps=20, searches=5))
    distance = torch.stack([note["distance"] for note in notes])
    farthest = distance[:20].amax(0)
    assert bool((farthest > 2.5 * 0.05).all())
    assert bool((distance[-5:].amax(0) < 1.6 * 0.05).all()) and bool((distance[-5:].amax(0) < 0.6 * farthest).all())


def test_search_makes_it_minimal() -> None:
    model, x, labels = random_problem(0, 6, (3, 5, 5), 2)
    result = Search(attack=LPA(distance="l2", steps=20, searches=4), halvings=10)(model, x, labels)
    ratio = result.distances.double() / smallest(model, x, labels, 2.0)
    assert bool((ratio > 1 - 1e-4).all()) and float(ratio.median()) < 1.05, ratio


def test_lpips_is_its_own_distance() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(2, 3, 32, 32, generator=generator)
    weight = torch.randn(4, 3 * 32 * 32, generator=generator) / 55

    def model(images: Tensor) -> Tensor:
        return (images - 0.5).flatten(1) @ weight.T

    labels = model(x).argmax(1)
    result = LPA(epsilon=0.5, steps=10, searches=2)(model, x, labels)
    assert repr(LPA().measure) == "lpips" and result.success_rate == 1
    assert bool((result.distances <= 0.5 * (1 + 1e-6)).all()) and bool(
        (model(result.adversarials).argmax(1) != labels).all()
    )
