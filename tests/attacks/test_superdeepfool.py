"""SuperDeepFool: exact on linear models, nearer than one DeepFool run on curved ones, its stop, counts and refusals."""

from __future__ import annotations

import pytest
import torch
from closed_form.linear import random_problem
from laws.models import Counted, RowWise
from torch import Tensor

from almakit.attacks.deepfool import DeepFool
from almakit.attacks.superdeepfool import SuperDeepFool
from almakit.core import Status


def ellipse(x: Tensor) -> Tensor:
    """Class 1 outside (u/0.3)^2 + (v/0.1)^2 = 1 around the middle: from off the axes the shortest way out is not the
    first linearised one."""
    u, v = x[:, 0] - 0.5, x[:, 1] - 0.5
    return torch.stack([torch.ones_like(u), (u / 0.3).square() + (v / 0.1).square()], 1)


def nearest_on_ellipse(x: Tensor) -> Tensor:
    angle = torch.linspace(0, 2 * torch.pi, 200_001, dtype=x.dtype)
    rim = torch.stack([0.5 + 0.3 * angle.cos(), 0.5 + 0.1 * angle.sin()], 1)
    return torch.stack([(rim - image).norm(dim=1).min() for image in x])


X = torch.tensor([[0.55, 0.53], [0.62, 0.52], [0.42, 0.46]], dtype=torch.float64)


def test_a_curved_boundary_is_met_at_its_nearest_point() -> None:
    labels = torch.zeros(3, dtype=torch.long)
    exact = nearest_on_ellipse(X)
    ours = SuperDeepFool()(ellipse, X, labels).distances / exact
    once = DeepFool(damping=1.0)(ellipse, X, labels).distances / exact
    assert float(ours.max()) < 1.01
    assert float(once.max()) > 1.02


def test_counts_and_the_stop() -> None:
    model, x, labels = random_problem(0, 4, (40,))
    result = SuperDeepFool(pull_back=0, damping=1.0, patience=1)(model, x, labels)
    # 1: clean pass, gradient of the first plane, and its query again for the three others. 2: across, projected. 3: on
    # the boundary, no gain left after at most one more turn.
    assert bool((result.status == Status.SUCCESS).all())
    assert int(result.forwards.max()) <= 8 and int(result.backwards.max()) <= 13
    published = SuperDeepFool(gain=None, damping=1.0, pull_back=0)(model, x, labels)
    # The plane through the crossing is 2 % past the boundary: its nearest point is adversarial and ends the attack at
    # the third query.
    assert published.forwards.tolist() == [4] * 4 and published.backwards.tolist() == [6] * 4
    assert int(SuperDeepFool(steps=4)(model, x, labels).forwards.max()) <= 8


@pytest.mark.parametrize("budget", [78, 90])
def test_no_backward_row_goes_uncounted_in_a_batch(budget: int) -> None:
    """Images take one plane or nine at a step, so that their budgets end at different moments of one query."""
    model = RowWise((3, 5, 5), classes=12)
    x = torch.rand(24, 3, 5, 5, generator=torch.Generator().manual_seed(7))
    labels = model.eval()(x).argmax(1)
    counted = Counted(model)
    result = SuperDeepFool()(model, x, labels, budget=budget, check=False)
    counted.remove()
    assert counted.backwards == int(result.backwards.sum()) and counted.forwards == int(result.forwards.sum())
    assert int(result.backwards.max()) <= budget and len(set(result.backwards.tolist())) > 1
    for row in (0, 11, 23):
        alone = SuperDeepFool()(model, x[row : row + 1], labels[row : row + 1], budget=budget)
        assert torch.equal(alone.adversarials[0], result.adversarials[row]) and int(alone.backwards) == int(
            result.backwards[row]
        )
