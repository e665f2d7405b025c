"""DDN: the radius' rules, rounding inside the loop, closed forms, counts and refusals."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from closed_form.linear import Linear, random_problem, smallest

from almakit.attacks.ddn import DDN
from almakit.core import Box


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
