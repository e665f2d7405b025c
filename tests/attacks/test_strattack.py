"""StrAttack: groups and their shrinkage in closed form, sparsity of what it returns, counts, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from attacks.small_problem import LABELS, MODEL, X, fools
from torch import Tensor

from almakit.attacks.strattack import StrAttack

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
