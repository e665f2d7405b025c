"""TR: exact on linear models, the radius follows the prediction, counts, and refusals."""

from __future__ import annotations

import pytest
import torch
from closed_form.linear import random_problem
from torch import Tensor

from almakit.attacks.tr import TR
from almakit.core import Status


def test_the_nearest_class_is_chosen_in_the_norm_of_the_attack() -> None:
    """Class 1 has the nearer boundary in l2, class 2 in linf."""
    weight = torch.tensor([[0.0, 0.0, 0.0, 0.0], [4.0, 0.0, 0.0, 0.0], [1.5, 1.5, 1.5, 1.5]])
    bias = torch.tensor([0.0, -2.4, -3.3])
    x, labels = torch.full((1, 4), 0.5), torch.tensor([0])

    def model(images: Tensor) -> Tensor:
        return images @ weight.T + bias

    found = {name: model(TR(distance=name)(model, x, labels).adversarials).argmax(1) for name in ("l2", "linf")}
    assert int(found["l2"]) == 1 and int(found["linf"]) == 2


def test_the_radius_grows_where_the_margin_is_linear_and_shrinks_where_it_is_not() -> None:
    x, labels = torch.full((1, 2), 0.5, dtype=torch.float64), torch.tensor([0])

    def radii(model: object) -> list[float]:
        notes: list[dict[str, Tensor]] = []
        TR(radius=0.02, largest=0.05, steps=30, pull_back=0)(model, x, labels, trace=notes.append)  # type: ignore[arg-type]
        return [float(note["radius"]) for note in notes]

    def linear(images: Tensor) -> Tensor:
        return torch.stack([torch.full_like(images[:, 0], 0.3), images[:, 0] - 0.5], 1)

    def wavy(images: Tensor) -> Tensor:
        u = images[:, 0] - 0.5
        return torch.stack([torch.full_like(u, 0.3), u / 10 + torch.sin(100 * u) / 100], 1)

    grown, shrunk = radii(linear), radii(wavy)
    assert grown[:3] == pytest.approx([0.006, 0.0072, 0.00864], rel=1e-2) and max(grown) == pytest.approx(0.015)
    assert min(shrunk) < shrunk[0]


def test_counts_and_steps_left_over() -> None:
    model, x, labels = random_problem(0, 4, (40,), classes=5)
    result = TR(radius=1.0, largest=1.0, pull_back=0)(model, x, labels)
    # The clean pass with a gradient for each of four classes, and one step across with its gradient; where the box
    # lengthens the way, two.
    assert bool((result.status == Status.SUCCESS).all())
    assert sorted(result.forwards.tolist()) == [2, 2, 2, 3] and (result.backwards == result.forwards + 3).all()
    drawn = TR(radius=1.0, largest=1.0, overshoot=0.2)(model, x, labels)
    assert int(drawn.forwards.max()) <= 13 and bool((drawn.distances < 1.01 * result.distances).all())
    assert int(TR(steps=6)(model, x, labels).forwards.max()) <= 6


def test_a_step_that_raises_the_margin_is_taken_back() -> None:
    """Behind a ridge at u = 0.2 the margin grows: a first radius that leads beyond it has to shrink."""
    x, labels = torch.tensor([[0.1, 0.5]], dtype=torch.float64), torch.tensor([0])

    def model(images: Tensor) -> Tensor:
        u, v = images[:, 0] - 0.1, images[:, 1]
        lead = 0.2 - u + 30 * (u - 0.1).clamp_min(0) - 0.4 * (v - 0.5)
        return torch.stack([lead, torch.zeros_like(lead)], 1)

    notes: list[dict[str, Tensor]] = []
    TR(radius=1.0, largest=1.0, steps=3, pull_back=0)(model, x, labels, trace=notes.append)
    first, second = notes
    assert float(first["rho"]) < 0 and float(second["radius"]) == pytest.approx(float(first["radius"]) / 1.2)
    assert float(second["distance"]) == pytest.approx(float(second["radius"])), "it starts at the clean image again"
