"""Law 6: every attack that claims l1, l2 or linf has its ratios to the exact optimum on record, and keeps to them at 100 steps."""

from __future__ import annotations

import math
from dataclasses import MISSING, fields

import pytest
import torch
from closed_form.linear import random_problem, smallest
from closed_form.ratios import RATIOS, SETTINGS
from torch import Tensor

from almakit import attacks, registry

NORM = {"l1": 1.0, "l2": 2.0, "linf": math.inf}
# Two classes, where there is one boundary, and five, where the nearest of four must be found; optima from 0.01 to 1 (l2).
PROBLEMS = [(seed, shape, classes) for seed, shape in enumerate([(12,), (6, 6), (3, 5, 5)]) for classes in (2, 5)]


def claims(name: str) -> list[str]:
    """The distances with exact optima that an attack minimises; none for attacks at a fixed radius and for wrappers of others."""
    kind = registry.get("attacks", name)
    if not kind.minimal or any(f.default is MISSING and f.default_factory is MISSING for f in fields(kind)) or name in ("search", "ensemble"):
        return []
    if "distance" not in {field.name for field in fields(kind)}:
        return [repr(kind().measure)]
    return [distance for distance in NORM if kind.does is None or distance in kind.does]


def ratios(text: str, distance: str) -> Tensor:
    """(36,) distance found over the smallest possible; infinite where nothing was found."""
    found = []
    for seed, shape, classes in PROBLEMS:
        model, x, labels = random_problem(seed, 6, shape, classes)
        result = attacks.get(text)(model, x, labels)
        found.append(result.distances.double() / smallest(model, x, labels, NORM[distance]))
    return torch.cat(found)


def text_of(name: str, distance: str) -> str:
    """The attack with 100 steps where it has steps, and what ``SETTINGS`` adds."""
    names = {field.name for field in fields(registry.get("attacks", name))}
    settings = [f"distance={distance}"] if "distance" in names else []
    extra = SETTINGS.get(name, "steps=100" if "steps" in names else "")
    return f"{name}({', '.join([*settings, *filter(None, [extra])])})"


@pytest.mark.parametrize("name", registry.names("attacks"))
def test_every_attack_has_its_ratios_on_record(name: str) -> None:
    wanted = claims(name)
    assert not wanted or name in RATIOS, f"measure {name} and write its ratios into tests/closed_form/ratios.py"
    assert set(RATIOS.get(name, {})) == set(wanted)


@pytest.mark.parametrize(("name", "distance"), [(name, distance) for name, held in RATIOS.items() for distance in held])
def test_ratios_are_held(name: str, distance: str) -> None:
    found = ratios(text_of(name, distance), distance)
    worst, median = RATIOS[name][distance]
    assert bool((found > 1 - 1e-4).all()), "nothing is nearer than the optimum"
    assert float(found.max()) <= worst, f"worst {float(found.max()):.4f}: {found}"
    assert float(found.median()) <= median, f"median {float(found.median()):.4f}: {found}"
