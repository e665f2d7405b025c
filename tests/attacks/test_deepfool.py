"""DeepFool: exact on linear models, its published first step, its counts and its refusals."""

from __future__ import annotations

import math

import pytest
import torch
from closed_form.linear import random_problem, smallest
from laws.models import RowWise

from almakit import attacks
from almakit.attacks.deepfool import DeepFool
from almakit.core import Box
from almakit.errors import BadInput


@pytest.mark.parametrize(("distance", "norm"), [("l2", 2.0), ("linf", math.inf)])
def test_linear_models_are_solved_with_the_box(distance: str, norm: float) -> None:
    for seed, shape in enumerate([(40,), (3, 8, 8)]):
        model, x, labels = random_problem(seed, 8, shape)
        ratio = DeepFool(distance=distance)(model, x, labels).distances.double() / smallest(model, x, labels, norm)
        assert float(ratio.median()) < 1.002 and float(ratio.max()) < 1.005


def test_the_box_the_original_forgets() -> None:
    """White pixels cannot rise: a step that ignores this falls short of the boundary and needs more of them."""
    model, x, labels = random_problem(3, 4, (40,))
    x = torch.where(torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.5, x.round(), x)
    labels = model(x).argmax(1)
    boxed = DeepFool(damping=1.0, pull_back=0)(model, x, labels)
    free = DeepFool(damping=1.0, pull_back=0, boxed=False)(model, x, labels)
    assert bool((boxed.backwards == 4).all()) and bool((free.backwards > 4).any())
    exact = smallest(model, x, labels, 2)
    # Without a pull-back the answer lies the overshoot past the boundary.
    assert float((boxed.distances.double() / exact).max()) < 1.021


def test_the_published_step_by_hand() -> None:
    """Far from the box, one step of the paper's version is (1 + overshoot) |f_k| / |w_k|^2 w_k for the nearest class
    k."""
    model, x, labels = random_problem(1, 3, (40,), shrink=0.01, dtype=torch.float64)
    result = DeepFool(**{**DeepFool.presets["paper"], "steps": 1})(model, x, labels)  # type: ignore[arg-type]
    for row, label in enumerate(labels.tolist()):
        steps = []
        for k in set(range(5)) - {label}:
            w = model.weight[k] - model.weight[label]
            gap = -float(w @ x[row] + model.bias[k] - model.bias[label])
            steps.append(gap / float(w @ w) * w)
        nearest = min(steps, key=lambda step: float(step.norm()))
        assert torch.allclose(result.adversarials[row] - x[row], 1.02 * nearest, rtol=1e-6, atol=1e-12)


def test_counts() -> None:
    model, x, labels = random_problem(0, 4, (40,))
    # Undamped, a linear model takes one step: the clean pass, one check, then the bisections; one backward for each
    # other class.
    result = DeepFool(damping=1.0, pull_back=7)(model, x, labels)
    assert result.forwards.tolist() == [9] * 4 and result.backwards.tolist() == [4] * 4
    fewer = DeepFool(damping=1.0, candidates=3, pull_back=0)(model, x, labels)
    assert fewer.forwards.tolist() == [2] * 4 and fewer.backwards.tolist() == [2] * 4
    # Only steps that are left over are spent on pulling back.
    assert DeepFool(steps=3, damping=1.0)(model, x, labels).forwards.tolist() == [4] * 4


def test_two_classes_and_targets() -> None:
    model, x, labels = random_problem(2, 5, (40,), classes=2)
    result = DeepFool()(model, x, labels, targets=1 - labels)
    assert bool(result.success.all())
    assert float((result.distances.double() / smallest(model, x, labels, 2)).max()) < 1.005


def test_a_flat_model_ends() -> None:
    result = DeepFool(steps=5)(
        lambda x: x.flatten(1)[:, :3] * 0 + torch.tensor([2.0, -1.0, 0.0]), torch.rand(2, 6), torch.tensor([0, 0])
    )
    assert not bool(result.success.any()) and int(result.forwards.max()) <= 10


def test_other_boxes_give_the_same_attack() -> None:
    inner = RowWise((3, 4, 4)).double().eval()
    x = torch.rand(4, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = inner(x).argmax(1)
    small = DeepFool()(inner, x, labels)
    large = DeepFool()(lambda z: inner((z + 1) / 4), 4 * x - 1, labels, box=Box(-1.0, 3.0))
    assert torch.allclose(large.distances, 4 * small.distances, rtol=1e-6)


@pytest.mark.parametrize(
    "setting", ["candidates=1", "overshoot=-0.1", "damping=0", "damping=2", "pull_back=-1", "distance=l1"]
)
def test_refusals(setting: str) -> None:
    with pytest.raises(BadInput):
        attacks.get(f"deepfool({setting})")
