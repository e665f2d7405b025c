"""DeepFool: exact on linear models, its published first step, its counts and its refusals."""

from __future__ import annotations

import torch
from closed_form.linear import random_problem, smallest

from almakit.attacks.deepfool import DeepFool


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
