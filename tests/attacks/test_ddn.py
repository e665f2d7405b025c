"""DDN: the radius' rules, rounding inside the loop, closed forms, counts and refusals."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from closed_form.linear import Linear, random_problem, smallest

from almakit import attacks
from almakit.attacks.ddn import DDN
from almakit.core import Box
from almakit.errors import BadInput


def radii(attack: DDN, seed: int = 0) -> tuple[list[dict[str, Any]], torch.Tensor]:
    """The notes of an attack's steps, and the linearised (here exact, but for the box) distances of the clean
    images."""
    model, x, labels = random_problem(seed, 4, (30,))
    notes: list[dict[str, Any]] = []
    attack(model, x, labels, trace=notes.append)
    logits = model(x)
    rival = logits.scatter(1, labels[:, None], float("-inf")).argmax(1)
    gap = logits.gather(1, labels[:, None])[:, 0] - logits.gather(1, rival[:, None])[:, 0]
    return notes, gap / (model.weight[rival] - model.weight[labels]).norm(dim=1)


@pytest.mark.parametrize("shrink", [1.0, 0.05, 0.001])
def test_linear_models_whatever_the_distance(shrink: float) -> None:
    """The original starts at radius 1 and cannot come down to an optimum of 0.001 in 100 steps; the default can."""
    found, original = [], []
    for seed in range(2):
        model, x, labels = random_problem(seed, 6, (3, 6, 6), shrink=shrink, dtype=torch.float64)
        optimum = smallest(model, x, labels, 2.0)
        found.append(DDN()(model, x, labels).distances / optimum)
        original.append(DDN(adaptive=False)(model, x, labels).distances / optimum)
    assert float(torch.cat(found).median()) < 1.002
    assert shrink > 0.001 or float(torch.cat(original).median()) > 2


def test_the_original_radius_changes_by_gamma_and_starts_at_one() -> None:
    notes, _ = radii(DDN(adaptive=False, steps=20))
    assert torch.allclose(notes[0]["radius"], torch.tensor(1.05))
    for before, after in itertools.pairwise(notes):
        factor = torch.where(after["success"], 0.95, 1.05)
        assert torch.allclose(after["radius"], (before["radius"] * factor).clamp_max(30**0.5), rtol=1e-5)


def test_the_default_starts_at_the_linearised_distance_and_moves_within_gamma() -> None:
    notes, linear = radii(DDN(steps=20))
    given, _ = radii(DDN(steps=3, initial_norm=0.5))
    assert bool(((given[0]["radius"] - 0.5).abs() <= 0.1 + 1e-6).all())
    # The soft maximum over the other classes lies a little above the hard one.
    assert torch.allclose(notes[0]["radius"], linear, rtol=0.15)
    for before, after in itertools.pairwise(notes):
        change = after["radius"] / before["radius"] - 1
        assert torch.equal(change < 0, after["success"])
        assert bool((change.abs() <= 0.2 + 1e-5).all()) and bool((change.abs() >= 0.002 - 1e-5).all())


def test_the_direction_is_the_cross_entropys_but_does_not_vanish() -> None:
    """Saturated logits: the cross-entropy's gradient is zero in float32, that of its logit is not."""
    model, x, labels = random_problem(2, 4, (20,))
    saturated = Linear(1e4 * model.weight, 1e4 * model.bias)
    leaf = x.clone().requires_grad_(True)
    (flat,) = torch.autograd.grad(torch.nn.functional.cross_entropy(saturated(leaf), labels, reduction="sum"), leaf)
    assert not flat.any(), "or the test shows nothing"
    result = DDN(adaptive=False)(saturated, x, labels)
    assert bool(result.success.all())
    assert bool((result.distances.double() < 1.2 * smallest(model, x, labels, 2.0)).all())


def test_levels_round_every_iterate() -> None:
    model, x, labels = random_problem(3, 4, (3, 6, 6))
    x = (x * 15).round() / 15
    labels = model(x).argmax(1)
    result = DDN(levels=16)(model, x, labels)
    assert bool(result.success.any())
    assert torch.allclose(result.adversarials * 15, (result.adversarials * 15).round(), atol=1e-5)
    # Rounding costs distance, never saves it.
    assert bool((result.distances >= DDN()(model, x, labels).distances * 0.999).all())
    wide = DDN(levels=16)(lambda y: model((y + 1) / 4), 4 * x - 1, labels, box=Box(-1, 3))
    steps = (wide.adversarials + 1) / 4 * 15
    assert torch.allclose(steps, steps.round(), atol=1e-4)


def test_counts_and_presets() -> None:
    model, x, labels = random_problem(0, 3, (20,))
    for attack in (DDN(steps=15), DDN(steps=15, **DDN.presets["paper"])):  # type: ignore[arg-type]
        result = attack(model, x, labels)
        assert result.forwards.tolist() == [15] * 3 and result.backwards.tolist() == [14] * 3
    assert attacks.get("ddn(adaptive=false, levels=256)") == DDN(**DDN.presets["paper"])  # type: ignore[arg-type]


@pytest.mark.parametrize("setting", ["gamma=0", "gamma=1", "initial_norm=0", "levels=1", "steps=0", "distance=l1"])
def test_refusals(setting: str) -> None:
    with pytest.raises(BadInput):
        attacks.get(f"ddn({setting})")
