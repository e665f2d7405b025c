"""APGD: its step rules, the radius it promises to hold, its multi-class form, and its refusals."""

from __future__ import annotations

import pytest
import torch
from attacks.small_problem import LABELS, MODEL, X, fools, traced
from closed_form.linear import random_problem, smallest
from torch import Tensor

from almakit.attacks.apgd import APGD, _HalvedSteps

NORM = {"l1": 1.0, "l2": 2.0, "linf": float("inf")}
RADIUS = {"l1": 6.0, "l2": 1.2, "linf": 0.25}


@pytest.mark.parametrize("loss", ["ce", "dlr", "margin", "targeted-dlr"])
@pytest.mark.parametrize("distance", NORM)
def test_every_loss_finds_points_inside_the_radius(distance: str, loss: str) -> None:
    radius = RADIUS[distance]
    result = APGD(distance=distance, epsilon=radius, steps=30, loss=loss)(MODEL, X, LABELS)
    assert result.success_rate == 1 and bool(fools(result.adversarials).all())
    assert bool((result.distances <= radius * (1 + 1e-6)).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("distance", NORM)
def test_a_linear_model_falls_exactly_when_the_radius_exceeds_the_optimum(distance: str, dtype: torch.dtype) -> None:
    model, x, labels = random_problem(3, 4, (3, 8, 8), 2, dtype=dtype)
    optimum = smallest(model, x, labels, NORM[distance])
    for row in range(4):
        for factor, expected in ((0.98, False), (1.03, True)):
            attack = APGD(distance=distance, epsilon=factor * float(optimum[row]), steps=100)
            result = attack(model, x[row : row + 1], labels[row : row + 1])
            assert bool(result.success[0]) == expected, (row, factor)
            assert not expected or float(result.distances[0]) <= attack.radius() * (1 + 1e-6)


def test_counts_of_a_run_that_finds_nothing() -> None:
    plain = APGD(distance="l2", epsilon=1e-3, steps=25)(MODEL, X, LABELS)
    # The clean pass, then steps + 1 points; no backward at the last one.
    assert bool((plain.forwards == 1 + 26).all()) and bool((plain.backwards == 25).all())
    several = APGD(distance="l2", epsilon=1e-3, steps=25, loss="targeted-dlr")(MODEL, X, LABELS)
    assert bool((several.forwards == 1 + 4 * 26).all()) and bool((several.backwards == 4 * 25).all())
    assert bool(
        (APGD(distance="l2", epsilon=1e-3, steps=25, restarts=3)(MODEL, X, LABELS).forwards == 1 + 3 * 26).all()
    )
    few = APGD(distance="l2", epsilon=1e-3, steps=25, loss="targeted-dlr", finalists=2)(MODEL, X, LABELS)
    assert bool((few.forwards == 1 + 4 * 4 + 2 * 23).all()) and bool((few.backwards == 4 * 3 + 2 * 22).all())
    sparse = APGD(distance="l1", epsilon=1e-3, steps=25, loss="targeted-dlr", finalists=2)(MODEL, X, LABELS)
    assert bool((sparse.forwards == 1 + 4 * 4 + 2 * (22 + 2)).all()), "the rest is two phases"
    wide = APGD(distance="l1", epsilon=1e-3, steps=25)(MODEL, X, LABELS)
    assert bool((wide.forwards == 1 + 25 + 3).all()), "three phases, one starting point each"


def test_the_original_runs_on_after_a_success() -> None:
    stopped, whole = (APGD(distance="l2", epsilon=1.2, steps=25, stop=stop)(MODEL, X, LABELS) for stop in (True, False))
    assert bool((whole.forwards == 27).all()) and bool((stopped.forwards < 15).all())


def test_apgd_t_reaches_a_class_that_the_margin_does_not_see() -> None:
    """The likeliest rival stays just below the label and is flat; another class is in reach, but never second on the
    way there."""

    def model(x: Tensor) -> Tensor:
        pixel = x.flatten(1)[:, 0]
        last = 2.0 * torch.relu(pixel - 0.3) - 1.0
        return torch.stack(
            [torch.ones_like(pixel), torch.full_like(pixel, 0.99), torch.where(pixel > 0.85, last + 1.5, last)], 1
        )

    x, labels = torch.full((1, 1, 4, 4), 0.4), torch.tensor([0])
    plain, likeliest, several, one = (
        APGD(distance="linf", epsilon=0.5, steps=30, **settings)(model, x, labels)
        for settings in (
            {},
            {"loss": "targeted-dlr", "rivals": 1},
            {"loss": "targeted-dlr"},
            {"loss": "targeted-dlr", "finalists": 1},
        )
    )
    assert not bool(plain.success[0] | likeliest.success[0]) and bool(several.success[0])
    assert bool(one.success[0]), "of all classes the one whose loss rises"


def test_the_step_is_halved_where_it_does_not_pay() -> None:
    radius = torch.ones(2)
    rule = _HalvedSteps(2 * radius, 100, 2.0, 0.75)
    best = torch.full((2,), -10.0)
    halved_at = []
    for step in range(23):
        # Image 0 rises in every step, image 1 swings.
        loss = torch.tensor([-10.0 + step, -10.0 + step % 2])
        best = torch.maximum(best, loss)
        back = rule.check(step, loss, best, torch.zeros(2, 4))
        if bool(back.any()):
            halved_at.append((step, back.tolist()))
    assert halved_at == [(22, [False, True])] and rule.size.tolist() == [2.0, 1.0]
    assert rule.window == 22 - 3


def test_two_classes_and_saturated_logits() -> None:
    weight = torch.randn(48, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

    def steep(x: Tensor) -> Tensor:
        score = 1e8 * ((x - 0.5).flatten(1) @ weight)
        return torch.stack([score, -score], 1)

    labels = steep(X).argmax(1)
    for loss in ("dlr", "margin", "targeted-dlr"):
        assert APGD(distance="l2", epsilon=3.0, steps=20, loss=loss)(steep, X, labels).success_rate == 1


def test_the_radius_is_traced_per_step() -> None:
    _, notes = traced(APGD(distance="l2", epsilon=0.5, steps=10))
    assert all(bool((note["distance"] <= 0.5 * (1 + 1e-6)).all()) for note in notes) and len(notes) <= 10
