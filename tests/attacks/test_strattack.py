"""StrAttack: groups and their shrinkage in closed form, sparsity of what it returns, counts, and what it refuses."""

from __future__ import annotations

import math

import pytest
import torch
from attacks.small_problem import LABELS, MODEL, SECOND, X, fools
from closed_form.linear import random_problem, smallest
from torch import Tensor

from almakit import attacks
from almakit.attacks.strattack import StrAttack
from almakit.errors import AlmakitError

SMALL = {"steps": 25, "searches": 3, "refine": 10}


def group_sizes(delta: Tensor) -> Tensor:
    """(B, G) the l2 lengths of the 2 x 2 groups of ``delta`` (B, C, H, W), counted without the attack's own code."""
    batch, channels, height, width = delta.shape
    blocks = delta.reshape(batch, channels, height // 2, 2, width // 2, 2).permute(0, 2, 4, 1, 3, 5)
    return blocks.reshape(batch, -1, channels * 4).norm(dim=2)


def test_a_group_is_a_square_with_all_its_channels() -> None:
    c = torch.zeros(1, 2, 3, 4)
    c[0, 0, 0, 0], c[0, 1, 1, 1], c[0, 0, 2, 3] = 3.0, 4.0, 7.0
    size = StrAttack()._group_length(c)
    assert (
        bool((size[0, :, :2, :2] == 5).all())
        and bool((size[0, :, 2, 2:] == 7).all())
        and float(size.sum()) == 2 * (4 * 5 + 2 * 7)
    )
    flat = torch.tensor([[1.0, 1.0, 1.0, 1.0, 2.0, 0.0]])
    assert StrAttack()._group_length(flat).tolist() == [[2.0, 2.0, 2.0, 2.0, 2.0, 2.0]], (
        "runs of four, the last one shorter"
    )


def test_short_groups_go_to_zero_and_long_ones_lose_tau_over_rho() -> None:
    """y_g = max(0, 1 - tau/(rho |c_g|)) c_g."""
    c = torch.zeros(1, 1, 2, 4)
    c[0, 0, 0, 0], c[0, 0, 1, 0], c[0, 0, 0, 3] = 0.3, 0.4, 0.09
    y = StrAttack(tau=0.2, rho=2.0)._thin(c)
    assert y[0, 0, 0, 0] == pytest.approx(0.3 * 0.8) and y[0, 0, 1, 0] == pytest.approx(0.4 * 0.8)
    assert bool((y[..., 2:] == 0).all()) and bool(
        torch.isfinite(StrAttack(tau=0.0)._thin(torch.zeros(1, 1, 2, 2))).all()
    )


def test_more_weight_on_groups_leaves_fewer_of_them() -> None:
    dense = StrAttack(**SMALL, tau=0.0)(MODEL, X, LABELS)  # type: ignore[arg-type]
    sparse = StrAttack(**SMALL, tau=0.5)(MODEL, X, LABELS)  # type: ignore[arg-type]
    used = [(group_sizes(result.adversarials - X) > 0).sum(1) for result in (dense, sparse)]
    assert dense.success_rate == sparse.success_rate == 1 and bool(fools(sparse.adversarials).all())
    assert bool((used[0] == 4).all()) and bool((used[1] < 4).any())
    assert bool((sparse.distances[used[1] < 4] > dense.distances[used[1] < 4]).all()), (
        "sparsity costs l2, as the ALMA paper says"
    )


def test_refining_comes_nearer_and_keeps_zero_groups_zero() -> None:
    rough = StrAttack(**{**SMALL, "refine": 0}, tau=0.5)(MODEL, X, LABELS)  # type: ignore[arg-type]
    fine = StrAttack(**{**SMALL, "refine": 60}, tau=0.5)(MODEL, X, LABELS)  # type: ignore[arg-type]
    before, after = group_sizes(rough.adversarials - X), group_sizes(fine.adversarials - X)
    assert bool((after[before == 0] == 0).all()) and bool((before == 0).any())
    assert bool((fine.distances <= rough.distances).all()) and bool((fine.distances < 0.99 * rough.distances).any())


def test_counts() -> None:
    result = StrAttack(**SMALL)(MODEL, X, LABELS)  # type: ignore[arg-type]
    # The clean image's gradient serves every search's first step; y is judged in each step, z gets a gradient for the
    # next.
    assert bool((result.forwards == 1 + 3 * (2 * 25 - 1) + 10).all()) and bool(
        (result.backwards == 1 + 3 * 24 + 9).all()
    )


def test_without_groups_it_finds_the_l2_optimum() -> None:
    model, x, labels = random_problem(2, 6, (6, 6), 2)
    result = StrAttack(steps=80, tau=0.0)(model, x, labels)
    ratio = result.distances.double() / smallest(model, x, labels, 2.0)
    assert bool((ratio > 1 - 1e-4).all()) and float(ratio.median()) < 1.01 and math.isfinite(float(ratio.max()))


def test_targets_presets_and_refusals() -> None:
    result = StrAttack(steps=40, refine=20)(MODEL, X, LABELS, SECOND)
    assert result.success_rate == 1 and bool((MODEL(result.adversarials).argmax(1) == SECOND).all())
    assert StrAttack(**StrAttack.presets["paper"]) == attacks.get("strattack(steps=2000, tau=2)")  # type: ignore[arg-type]
    for settings, words in [
        ({"group": 0}, "must be at least 1"),
        ({"refine": -1}, "at least 0"),
        ({"rho": 0.0}, "must be positive"),
        ({"tau": -1.0}, "at least 0"),
        ({"distance": "l1"}, "StrAttack does l2, not l1"),
    ]:
        with pytest.raises(AlmakitError, match=words):
            StrAttack(**settings)  # type: ignore[arg-type]
