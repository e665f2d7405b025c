"""ALMA-prox: pixels as constraints, the share that may stay right, exact optima, counts, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from attacks.small_problem import LABELS, MODEL, SECOND, X, fools
from torch import Tensor

from almakit import attacks, goals
from almakit.attacks.alma_prox import ALMAProx
from almakit.core import Box
from almakit.errors import AlmakitError

SETTINGS = {"steps": 150, "rate": 0.005}


def pixels(x: Tensor) -> Tensor:
    """Logits (B, 2, H, W) of grey images (B, 1, H, W): each pixel is in class 1 where it is brighter than 1/2, whatever
    the others are."""
    away = (x[:, 0] - 0.5) * 4
    return torch.stack([-away, away], 1)


def scene() -> tuple[Tensor, Tensor]:
    """Two images (1, 4, 5) whose pixels lie 0.05, 0.07, ... from the threshold, on either side, and their maps."""
    away = 0.05 + 0.02 * torch.arange(20.0).reshape(1, 1, 4, 5)
    x = torch.cat([0.5 + away, 0.5 - away.flip(3)])
    return x, pixels(x).argmax(1)


@pytest.mark.parametrize(("share", "expected"), [(1.0, 0.43), (0.9, 0.39), (0.5, 0.23)])
def test_the_optimum_is_the_distance_of_the_decisive_pixel(share: float, expected: float) -> None:
    """Moving every pixel by the ceil(share 20)-th smallest distance is enough, and nothing less is."""
    x, labels = scene()
    result = ALMAProx(share=share, steps=300, rate=0.01)(pixels, x, labels)
    wrong = (pixels(result.adversarials).argmax(1) != labels).flatten(1).double().mean(1)
    assert bool((wrong >= share - 1e-9).all())
    assert bool((result.distances > expected * (1 - 1e-4)).all()) and bool(
        (result.distances < 1.05 * expected).all()
    ), result.distances


def test_unlabelled_and_masked_pixels_do_not_count() -> None:
    x, labels = scene()
    far = (x - 0.5).abs()[:, 0] > 0.3
    unlabelled = torch.where(far, torch.full_like(labels, 255), labels)
    nearest = float((x - 0.5).abs()[:, 0][~far].max())
    attack = ALMAProx(share=1.0, steps=300, rate=0.01)
    by_label, by_mask = (
        attack(pixels, x, unlabelled),
        attack(pixels, x, labels, goal=goals.pixels(mask=~far, share=1.0)),
    )
    assert torch.equal(by_label.adversarials, by_mask.adversarials)
    assert bool((by_label.distances < 1.05 * nearest).all()) and bool((by_label.distances > nearest * (1 - 1e-4)).all())


def test_target_maps() -> None:
    x, labels = scene()
    targets = 1 - labels
    targets[:, 2:] = labels[:, 2:]
    result = ALMAProx(share=1.0, steps=300, rate=0.01)(pixels, x, labels, targets)
    assert result.success_rate == 1 and torch.equal(pixels(result.adversarials).argmax(1), targets)
    assert bool(Box().contains(result.adversarials, x).all())


def test_far_boundaries_are_reached_by_growing_steps() -> None:
    """300 steps of 0.001 move nothing farther than 0.3: as published, an optimum at 0.39 is out of reach."""
    x, labels = scene()
    assert ALMAProx(share=0.9, steps=300, growth=1.0)(pixels, x, labels).success_rate == 0
    result = ALMAProx(share=0.9, steps=300)(pixels, x, labels)
    assert result.success_rate == 1 and bool((result.distances < 1.05 * 0.39).all())


def test_targets_presets_and_refusals() -> None:
    result = ALMAProx(**SETTINGS)(MODEL, X, LABELS, SECOND)  # type: ignore[arg-type]
    assert (
        result.success_rate == 1
        and bool((MODEL(result.adversarials).argmax(1) == SECOND).all())
        and bool(fools(result.adversarials).all())
    )
    assert ALMAProx(**ALMAProx.presets["paper"]) == attacks.get("alma-prox(steps=500, rate=0.001, growth=1)")  # type: ignore[arg-type]
    x, labels = scene()
    with pytest.raises(AlmakitError, match="must be boolean of shape"):
        ALMAProx()(pixels, x, labels, goal=goals.pixels(mask=torch.ones(2, 4, 5)))
    with pytest.raises(AlmakitError, match="has no labelled pixel"):
        ALMAProx()(pixels, x, torch.full_like(labels, 255))
    with pytest.raises(AlmakitError, match="height, width"):
        ALMAProx()(pixels, x, labels[:1])
    with pytest.raises(AlmakitError, match="resize one of them"):
        ALMAProx()(pixels, x, labels[:, :2])
    with pytest.raises(AlmakitError, match="target map of image 0 equals its labels"):
        ALMAProx()(pixels, x, labels, labels)
    assert len(ALMAProx()(pixels, x[:0], labels[:0])) == 0
