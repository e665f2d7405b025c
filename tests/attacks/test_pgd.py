"""PGD: the radius it holds, its directions, and linear models where one run is enough."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from attacks.small_problem import LABELS, MODEL, X, fools
from closed_form.linear import random_problem, smallest
from torch import Tensor

import almakit
from almakit.attacks.apgd import APGD
from almakit.attacks.pgd import PGD
from almakit.errors import AlmakitError

NORM = {"l1": 1.0, "l2": 2.0, "linf": float("inf")}


@pytest.mark.parametrize(("distance", "radius"), [("l1", 8.0), ("l2", 1.2), ("linf", 0.2)])
@pytest.mark.parametrize("loss", ["ce", "dlr", "margin"])
def test_successes_hold_the_radius(distance: str, radius: float, loss: str) -> None:
    result = PGD(distance=distance, epsilon=radius, steps=30, loss=loss)(MODEL, X, LABELS)
    assert result.success_rate == 1 and bool(fools(result.adversarials).all())
    assert bool((result.distances <= radius * (1 + 1e-6)).all())


@pytest.mark.parametrize("distance", NORM)
def test_rounding_does_not_push_points_out_of_small_balls(distance: str) -> None:
    """In float32 the rounding of x + delta is 6e-8 per pixel: far more than 1e-6 of a small radius."""
    model, x, labels = random_problem(0, 8, (3, 16, 16), 2, shrink=1e-3)
    optimum = smallest(model, x, labels, NORM[distance])
    epsilon = 3 * float(optimum.median())
    result = PGD(distance=distance, epsilon=epsilon, steps=30)(model, x, labels)
    found = result.status == 1
    assert int(found.sum()) >= 3 and bool((result.distances[found] <= epsilon * (1 + 1e-6)).all())


def test_a_sparse_step_has_unit_length_and_leaves_pixels_at_their_bound() -> None:
    slope = torch.tensor([[5.0, -4.0, 3.0, 0.1]])
    low, high = torch.full_like(slope, -0.5), torch.tensor([[0.0, 0.5, 0.5, 0.5]])
    step = PGD(distance="l1", epsilon=1.0, share=0.5)._direction(slope, torch.zeros_like(slope), low, high, 1.0)
    assert step.tolist() == [[0.0, -0.5, 0.5, 0.0]]


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.logsumexp(1) - logits.gather(1, labels[:, None])[:, 0]


@pytest.mark.parametrize("attack", [PGD, APGD])
def test_a_loss_of_the_callers_own(attack: type[PGD] | type[APGD]) -> None:
    settings = {"distance": "l2", "epsilon": 1.2, "steps": 20}
    named = attack(loss="ce", **settings)(MODEL, X, LABELS)  # type: ignore[arg-type]
    own = attack(loss=cross_entropy, **settings)(MODEL, X, LABELS)  # type: ignore[arg-type]
    assert own.success_rate == 1 and torch.allclose(own.distances, named.distances, rtol=1e-4)
    assert torch.equal(
        almakit.attack(MODEL, X, LABELS, attack=attack(loss=cross_entropy, **settings)).status, own.status
    )  # type: ignore[arg-type]
    for wrong, words in (
        (lambda z, y: z.mean(), r"must return shape \(5,\), one value per image, got \(\)"),
        (lambda z, y: 3.0, "got float"),
    ):
        with pytest.raises(AlmakitError, match=words):
            attack(loss=wrong, **settings)(MODEL, X, LABELS)  # type: ignore[arg-type]
    with pytest.raises(AlmakitError, match="give labels, or loss='margin'"):
        attack(loss=cross_entropy, **settings)(MODEL, X, goal=lambda z: z[:, 0])  # type: ignore[arg-type]
    with pytest.raises(AlmakitError, match=r"or give a function of \(logits, labels\)"):
        attack(loss=3, **settings)  # type: ignore[arg-type]


def test_a_loss_of_the_callers_own_in_a_run(tmp_path: Path) -> None:
    run = almakit.evaluate(MODEL, (X, LABELS), [PGD(epsilon=0.2, steps=5, loss=cross_entropy)], out=tmp_path / "run")
    assert "cross_entropy#" in run.summary["attacks"][0]["name"]
