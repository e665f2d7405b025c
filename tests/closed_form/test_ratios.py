"""Law 6: every attack that claims l1, l2 or linf has its ratios to the exact optimum on record, and keeps to them."""

from __future__ import annotations

import pytest
import torch
from closed_form.linear import random_problem, smallest
from closed_form.ratios import NORM, RATIOS, claims, text_of
from torch import Tensor

from almakit import attacks, registry

# Two classes, where there is one boundary, and five, where the nearest of four must be found; optima from 0.01 to 0.5
# (l2).
PROBLEMS = [(seed, shape, classes) for seed, shape in enumerate([(12,), (6, 6), (3, 5, 5)]) for classes in (2, 5)]


def ratios(text: str, distance: str) -> Tensor:
    """(24,) distance found over the smallest possible; infinite where nothing was found."""
    found = []
    for seed, shape, classes in PROBLEMS:
        model, x, labels = random_problem(seed, 4, shape, classes)
        result = attacks.get(text)(model, x, labels)
        found.append(result.distances.double() / smallest(model, x, labels, NORM[distance]))
    return torch.cat(found)


@pytest.mark.parametrize("name", registry.names("attacks"))
def test_every_attack_has_its_ratios_on_record(name: str) -> None:
    wanted = set(claims(name))
    assert set(RATIOS.get(name, {})) == wanted, f"measure {name} and write its ratios into tests/closed_form/ratios.py"


# Ten seconds or more each.
LONG = {"alma-prox", "cw", "ead", "search", "square", "strattack"}


@pytest.mark.parametrize(
    ("name", "distance"),
    [
        pytest.param(name, distance, marks=[pytest.mark.slow] if name in LONG else [])
        for name, held in RATIOS.items()
        for distance in held
    ],
)
def test_ratios_are_held(name: str, distance: str) -> None:
    found = ratios(text_of(name, distance), distance)
    worst, median = RATIOS[name][distance]
    assert bool((found > 1 - 1e-4).all()), "nothing is nearer than the optimum"
    assert float(found.max()) <= worst, f"worst {float(found.max()):.4f}: {found}"
    assert float(found.median()) <= median, f"median {float(found.median()):.4f}: {found}"
