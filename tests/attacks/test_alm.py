"""The generic augmented Lagrangian method: its multipliers in the trace, its inner stops, any distance."""

from __future__ import annotations

import itertools

import pytest
import torch
from attacks.small_problem import LABELS, MODEL, SECOND, X, fools, traced
from closed_form.linear import random_problem, smallest
from torch import Tensor

from almakit import ALMA, registry
from almakit.attacks.alm import ALM
from almakit.errors import AlmakitError


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


def test_counts_never_exceed_outer_times_inner() -> None:
    result = ALM(outer=3, inner=20)(MODEL, X, LABELS)
    assert (
        bool((result.forwards <= 60).all())
        and bool((result.backwards <= 60).all())
        and bool((result.forwards > 20).all())
    )


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


def test_linear_models_and_targets() -> None:
    model, x, labels = random_problem(3, 6, (40,), 2)
    ratio = ALM(outer=8, inner=60)(model, x, labels).distances.double() / smallest(model, x, labels, 2.0)
    assert bool((ratio > 1 - 1e-4).all()) and float(ratio.median()) < 1.1
    result = ALM(outer=6, inner=50)(MODEL, X, LABELS, SECOND)
    assert bool((MODEL(result.adversarials).argmax(1) == SECOND).all())


def test_refusals() -> None:
    for settings, words in [
        ({"outer": 0}, "outer=0: it must be at least 1"),
        ({"gamma": 1.0}, "must be above 1"),
        ({"penalty": "p9"}, "no penalty called"),
        ({"epsilon": 0.0}, "must be positive"),
    ]:
        with pytest.raises(AlmakitError, match=words):
            ALM(**settings)  # type: ignore[arg-type]
