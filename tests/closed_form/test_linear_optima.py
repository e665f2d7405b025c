"""The exact optima themselves, against general solvers and against each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from closed_form.linear import Linear, random_problem, shortest, smallest, to_halfspace, to_polytope
from scipy.optimize import LinearConstraint, minimize

NORMS = [1.0, 2.0, math.inf]


@pytest.mark.parametrize("norm", NORMS)
def test_the_closed_forms_are_what_solvers_find(norm: float) -> None:
    generator = np.random.default_rng(0)
    for trial in range(12):
        image, w = generator.random(9), generator.normal(size=9) * (generator.random(9) > 0.2)
        reach = float(np.abs(w) @ np.where(w > 0, 1 - image, image))
        # From easy needs, where the box is far, to almost all that the box allows.
        need = reach * (0.02, 0.3, 0.7, 0.98)[trial % 4]
        exact = to_halfspace(torch.from_numpy(image), torch.from_numpy(w), need, norm)
        assert exact == pytest.approx(shortest(w, need, -image, 1 - image, norm), rel=1e-5)
    assert to_halfspace(torch.from_numpy(image), torch.from_numpy(w), 1.01 * reach, norm) == math.inf
    assert to_halfspace(torch.from_numpy(image), torch.from_numpy(w), -0.1, norm) == 0


@pytest.mark.parametrize("norm", NORMS)
def test_a_target_of_two_classes_is_the_other_class(norm: float) -> None:
    model, x, labels = random_problem(1, 6, (9,), 2, dtype=torch.float64)
    free, aimed = smallest(model, x, labels, norm), smallest(model, x, labels, norm, 1 - labels)
    assert torch.allclose(free, aimed, rtol=1e-6)


@pytest.mark.parametrize("norm", NORMS)
def test_the_nearest_target_is_the_untargeted_optimum(norm: float) -> None:
    model, x, labels = random_problem(2, 4, (10,), 4, dtype=torch.float64)
    aimed = torch.stack(
        [
            torch.where(labels == t, math.inf, smallest(model, x, labels, norm, torch.full_like(labels, t)))
            for t in range(4)
        ]
    )
    assert torch.allclose(aimed.amin(0), smallest(model, x, labels, norm), rtol=1e-6)


def test_quadratic_programs_agree_with_an_interior_point_method() -> None:
    model, x, labels = random_problem(3, 3, (8,), 5, dtype=torch.float64)
    for image, label in zip(x, labels.tolist(), strict=True):
        target = (label + 1) % 5
        others = [k for k in range(5) if k != target]
        a = (model.weight[others] - model.weight[target]).numpy()
        b = -(a @ image.numpy() + (model.bias[others] - model.bias[target]).numpy())
        answer = minimize(
            lambda d: d @ d,
            np.zeros(8),
            jac=lambda d: 2 * d,
            method="trust-constr",
            constraints=[LinearConstraint(a, -np.inf, b)],
            bounds=list(zip(-image.numpy(), 1 - image.numpy(), strict=True)),
            options={"gtol": 1e-10, "xtol": 1e-12, "maxiter": 2000},
        )
        exact = to_polytope(image, model.weight, model.bias, target, 2.0)
        assert exact == pytest.approx(float(np.sqrt(answer.fun)), rel=1e-4)


def test_an_unreachable_target_is_infinite() -> None:
    model = Linear(
        torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], dtype=torch.float64),
        torch.tensor([0.0, 0.0, -5.0], dtype=torch.float64),
    )
    x = torch.tensor([[0.8, 0.3]], dtype=torch.float64)
    for norm in NORMS:
        assert float(smallest(model, x, torch.tensor([0]), norm, torch.tensor([2]))) == math.inf
        assert float(smallest(model, x, torch.tensor([0]), norm)) == pytest.approx(
            {1.0: 0.5, 2.0: 0.5 / 2**0.5, math.inf: 0.25}[norm]
        )
