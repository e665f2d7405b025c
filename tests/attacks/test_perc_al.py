"""PerC-AL: its two kinds of steps to the letter, its counts with and without rounding, and what it refuses."""

from __future__ import annotations

from itertools import pairwise

import torch
from attacks.small_problem import MODEL, X, fools, traced
from torch import Tensor

from almakit import distances
from almakit.attacks.perc_al import PART, PerCAL
from almakit.optim.steps import cosine_decay
from almakit.tensors import unit

# Away from the ends of the box, so that no step is clipped.
MIDDLE = 0.4 + 0.2 * X
with torch.no_grad():
    OWN = MODEL(MIDDLE).argmax(1)


def visited(attack: PerCAL) -> list[Tensor]:
    """The points (B, ...) the model was asked about, in order."""
    points: list[Tensor] = []

    def spy(x: Tensor) -> Tensor:
        points.append(x.detach().clone())
        return MODEL(x)

    attack(spy, MIDDLE, OWN, check=False)
    return points


def test_steps_follow_the_algorithm() -> None:
    """Up the cross-entropy where the class still holds, down the colour difference where it does not, each of its own
    length."""
    attack = PerCAL(steps=15, class_rate=0.2, colour_rate=0.05, scaled=False)
    points = visited(attack)
    assert len(points) == 16
    kinds = set()
    bound = distances.get("ciede2000").bind(MIDDLE)
    for step, (before, after) in enumerate(pairwise(points)):
        leaf = before.clone().requires_grad_(True)
        logits = MODEL(leaf)
        up = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, OWN, reduction="sum"), leaf)[0]
        away = logits.argmax(1) != OWN
        back = bound.value_and_grad(before)[1]
        expected = torch.where(
            away[:, None, None, None],
            -cosine_decay(step, 15, 0.05, 0.005) * unit(back),
            cosine_decay(step, 15, 0.2, 0.002) * unit(up),
        )
        inside = ((before + expected > 0) & (before + expected < 1)).flatten(1).all(1)
        assert bool(inside.any()) and torch.allclose(after[inside], (before + expected)[inside], atol=1e-9)
        kinds |= set(away.tolist())
    assert kinds == {True, False}


def test_scaled_steps_are_parts_of_the_perturbation() -> None:
    points = visited(PerCAL(steps=15, class_rate=0.2, colour_rate=0.05))
    for step, (before, after) in enumerate(pairwise(points)):
        length = torch.linalg.vector_norm((before - MIDDLE).flatten(1), dim=1)
        rate = max(cosine_decay(step, 15, 0.2, 0.002), cosine_decay(step, 15, 0.05, 0.005))
        longest = PART * rate * torch.where(length > 0, length.clamp_max(1), 1.0)
        assert bool((torch.linalg.vector_norm((after - before).flatten(1), dim=1) <= longest * (1 + 1e-6)).all())


def test_scaled_steps_end_nearer_where_little_is_needed() -> None:
    """A boundary one hundredth away: steps of a fixed length jump across it and the image until the end."""
    with torch.no_grad():
        edge = MODEL(MIDDLE)
        bias = edge.amax(1, keepdim=True) - edge

    def near(x: Tensor) -> Tensor:
        return MODEL(x) + 0.99 * bias

    scaled, fixed = (PerCAL(steps=60, scaled=way)(near, MIDDLE, OWN, check=False).distances for way in (True, False))
    assert float((scaled / fixed).log().mean().exp()) < 0.7


def test_with_levels_it_is_the_original_unless_asked() -> None:
    original, same, scaled = (visited(PerCAL(steps=6, levels=256, scaled=way))[-1] for way in (None, False, True))
    assert torch.equal(original, same) and not torch.equal(original, scaled)


def test_with_levels_only_rounded_images_count() -> None:
    grid = (X * 255).round() / 255
    labels = MODEL(grid).argmax(1)
    result = PerCAL(steps=40, levels=256)(MODEL, grid, labels)
    assert result.success_rate == 1
    assert torch.allclose(result.adversarials * 255, (result.adversarials * 255).round(), atol=1e-9)
    free = PerCAL(steps=40)(MODEL, grid, labels)
    off = ((free.adversarials * 255) - (free.adversarials * 255).round()).abs().flatten(1).amax(1)
    assert bool((off > 1e-3).all()), "without levels nothing is rounded"


def test_it_comes_back_after_the_first_success() -> None:
    result, notes = traced(PerCAL(steps=100))
    distance = torch.stack([note["distance"] for note in notes])
    success = torch.stack([note["success"] for note in notes])
    first = distance.gather(0, success.int().argmax(0, keepdim=True)).squeeze(0)
    assert result.success_rate == 1 and bool(fools(result.adversarials).all())
    assert bool((result.distances < 0.6 * first).all())
    assert torch.allclose(result.distances, distances.get("ciede2000")(X, result.adversarials))
