"""The generic augmented Lagrangian method: its multipliers in the trace, its inner stops, any distance."""

from __future__ import annotations

import itertools

import pytest
import torch
from attacks.small_problem import LABELS, MODEL, X, fools, traced
from torch import Tensor

from almakit import ALMA, registry
from almakit.attacks.alm import ALM


def test_mu_and_rho_change_between_inner_minimisations_only() -> None:
    attack = ALM(outer=4, inner=30)
    _, notes = traced(attack)
    starts = [index for index, note in enumerate(notes) if note["step"] == 1]
    assert len(starts) == 4
    penalty = registry.get("penalties", "p2")()
    for begin, end in zip(starts, [*starts[1:], len(notes)], strict=True):
        for note in notes[begin:end]:
            assert torch.equal(note["mu"], notes[begin]["mu"]) and torch.equal(note["rho"], notes[begin]["rho"])
    for begin, following in itertools.pairwise(starts):
        last, fresh = notes[following - 1], notes[following]
        expected = penalty.derivative(last["constraint"], last["rho"], last["mu"]).clamp(1e-6, 1e12)
        assert torch.allclose(fresh["mu"], expected)
        grew = fresh["rho"] > last["rho"]
        assert torch.allclose(fresh["rho"][grew], attack.gamma * last["rho"][grew])
        assert bool((last["constraint"][grew] > 0).all()), "rho grows only where the constraint is violated"
        assert begin < following


@pytest.mark.parametrize("distance", ["l1", "l2"])
def test_it_comes_near_what_alma_finds(distance: str) -> None:
    result, better = (
        ALM(distance=distance, outer=8, inner=60)(MODEL, X, LABELS),
        ALMA(distance=distance, steps=300)(MODEL, X, LABELS),
    )
    assert result.success_rate == 1 and bool(fools(result.adversarials).all())
    assert float((result.distances / better.distances).median()) < 1.3


@pytest.mark.parametrize("penalty", registry.names("penalties"))
def test_every_penalty_and_a_function_as_distance(penalty: str) -> None:
    def l4(x: Tensor, y: Tensor) -> Tensor:
        return ((y - x) ** 4).flatten(1).sum(1).clamp_min(1e-30) ** 0.25

    assert ALM(distance=l4, penalty=penalty, outer=5, inner=40)(MODEL, X, LABELS).success_rate == 1
