"""VFGA: few values on linear models, at most one change of each, counts, and refusals."""

from __future__ import annotations

from itertools import pairwise

from attacks.small_problem import traced
from closed_form.linear import random_problem
from torch import Tensor

from almakit.attacks.vfga import VFGA
from almakit.core import Box
from almakit.optim import bounds, l0_distance


def test_linear_models() -> None:
    model, x, labels = random_problem(0, 8, (3, 8, 8), classes=2)
    w = (model.weight[1 - labels] - model.weight[labels]).view_as(x)
    need = (model.weight[labels] - model.weight[1 - labels]).mul(x.flatten(1)).sum(1)
    need = need + model.bias[labels] - model.bias[1 - labels]
    least = l0_distance(w, need, *bounds(Box(), x))
    found = VFGA(samples=30)(model, x, labels).distances
    assert bool((found >= least).all())
    # Folded normal steps reach the end of the box in a third of the draws: with 30 of them nearly the exact number.
    assert float((found / least).median()) <= 1.2


def test_each_step_changes_one_value_and_no_value_twice() -> None:
    points: list[Tensor] = []
    model, x, labels = random_problem(0, 64, (3, 8, 8))
    lead = model(x).topk(2, dim=1).values
    row = (lead[:, 0] - lead[:, 1]).argmax()
    x, labels = x[row : row + 1], labels[row : row + 1]

    def seen(images: Tensor) -> Tensor:
        if len(images) == 1:
            points.append(images.detach().clone())
        return model(images)

    result = VFGA(samples=4)(seen, x, labels, check=False)
    assert bool(result.success.all()) and len(points) > 3
    for before, after in pairwise(points):
        changed = before != after
        assert int(changed.sum()) == 1 and bool((before[changed] == x[changed]).all())


def test_counts_and_stop_at_the_first_success() -> None:
    result, notes = traced(VFGA(samples=3))
    assert bool(result.success.all())
    assert (result.forwards == 7 * result.backwards).all() and int(result.forwards.max()) == 7 * len(notes)
    assert (result.distances == result.backwards).all(), "one value for each gradient"
    capped = traced(VFGA(samples=3), budget=10)[0]
    assert int(capped.forwards.max()) <= 10
