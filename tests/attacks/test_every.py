"""What tests of single attacks have in common: counts, the scale of the box, the reach of radius rules, flat models,
and refusals. Ratios to exact optima are in tests/closed_form and tests/exact, invariants in tests/laws."""

from __future__ import annotations

import re

import pytest
import torch
from attacks.small_problem import LABELS, MODEL, X
from closed_form.linear import random_problem, smallest
from torch import Tensor

from almakit import attacks, registry
from almakit.core import Box
from almakit.errors import AlmakitError

NORM = {"l1": 1.0, "l2": 2.0, "linf": float("inf")}


@pytest.mark.parametrize(
    ("text", "forwards", "backwards"),
    [
        ("alma(steps=15)", 15, 14),
        ("ddn(steps=15)", 15, 14),
        ("ddn(steps=15, preset=paper)", 15, 14),
        *((f"fmn(distance={norm}, steps=15)", 15, 14) for norm in ("l0", *NORM)),
        *((f"fmn(distance={norm}, steps=15, preset=paper)", 15, 14) for norm in ("l0", *NORM)),
        ("pdgd(steps=15)", 15, 14),
        ("pdpgd(distance=l1, steps=15)", 15, 14),
        ("alma-prox(steps=30, rate=0.01)", 30, 29),
        ("sigma-zero(steps=30, trim=0)", 30, 29),
        # 9 N passes in the paper's tables, less the backward after the last query of each search.
        ("cw(steps=30, searches=4, abort_early=false)", 4 * 30, 4 * 29),
        # FISTA makes two forwards a step, but one where its momentum is zero and in the last; ISTA makes one.
        ("ead(steps=20, searches=3, abort_early=false)", 1 + 3 * 38, 1 + 3 * 19),
        ("ead(steps=20, searches=3, abort_early=false, accelerated=false)", 1 + 3 * 20, 1 + 3 * 19),
        # y is judged in each step, z gets a gradient for the next.
        ("strattack(steps=25, searches=3, refine=10)", 1 + 3 * (2 * 25 - 1) + 10, 1 + 3 * 24 + 9),
        ("perc-al(steps=12)", 13, 12),
        ("perc-al(steps=12, levels=256)", 24, 12),
        ("pgd(distance=l2, epsilon=0.001, steps=10, restarts=3)", 1 + 3 * 11, 3 * 10),
    ],
)
def test_counts(text: str, forwards: int, backwards: int) -> None:
    result = attacks.get(text)(MODEL, X, LABELS)
    assert result.forwards.tolist() == [forwards] * len(X) and result.backwards.tolist() == [backwards] * len(X)


@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize("distance", ["l0", *NORM, "deepfool"])
def test_pixels_from_0_to_255_give_the_same_scaled(distance: str, adaptive: bool) -> None:
    model, x, labels = random_problem(4, 4, (20,), dtype=torch.float64)
    fmn = f"fmn(distance={distance}, steps=40, adaptive={adaptive})"
    attack = attacks.get(f"deepfool(boxed={adaptive})" if distance == "deepfool" else fmn)
    small, large = attack(model, x, labels), attack(lambda y: model(y / 255), 255 * x, labels, box=Box(0, 255))
    assert torch.allclose(large.distances, small.distances * (1 if distance == "l0" else 255), rtol=1e-6)


@pytest.mark.parametrize("shrink", [1.0, 0.05, 0.001])
@pytest.mark.parametrize("text", ["ddn", *(f"fmn(distance={norm})" for norm in NORM)])
def test_radii_find_optima_near_and_far(text: str, shrink: float) -> None:
    """The original of DDN starts at radius 1 and cannot come down to an optimum of 0.001 in 100 steps."""
    attack = attacks.get(text)
    model, x, labels = random_problem(0, 12, (3, 6, 6), shrink=shrink, dtype=torch.float64)
    optimum = smallest(model, x, labels, NORM[repr(attack.measure)])
    ratio = attack(model, x, labels).distances / optimum
    assert float(ratio.median()) < (1.002 if text == "ddn" else 1.02) and float(ratio.max()) < 1.3
    if text == "ddn" and shrink == 0.001:
        assert float((attacks.get("ddn(adaptive=false)")(model, x, labels).distances / optimum).median()) > 2


@pytest.mark.parametrize("text", ["deepfool(steps=5)", "superdeepfool(steps=5)", "fab(steps=5)", "tr(steps=5)"])
def test_a_flat_model_ends(text: str) -> None:
    result = attacks.get(text)(
        lambda x: x.flatten(1)[:, :3] * 0 + torch.tensor([2.0, 0.0, 0.0], dtype=x.dtype), X, [0] * len(X)
    )
    assert not result.success.any() and all("gradient was zero" in str(reason) for reason in result.reasons)
    assert int(result.forwards.max()) <= 20


@pytest.mark.parametrize(
    ("text", "forwards"),
    [
        ("bb(steps=10, start_tries=3)", 1 + 10 + 3),
        ("search(attack=pgd(distance=l2, steps=10), halvings=6)", 1 + 6 * 11),
        ("hopskipjump(steps=100, start_tries=12)", 1 + 12),
        ("soft-walk(steps=100)", 100),
    ],
)
def test_an_image_that_cannot_be_moved_fails_alone(text: str, forwards: int) -> None:
    def stubborn(x: Tensor) -> Tensor:
        locked = (x.flatten(1)[:, 0] == X[0].flatten()[0]).double() * 1e4
        return MODEL(x) + locked[:, None] * torch.nn.functional.one_hot(LABELS[:1], 5)

    mask = torch.ones(X.shape[1:], dtype=torch.bool)
    mask[0, 0, 0] = False
    result = attacks.get(text)(stubborn, X, LABELS, box=Box(mask=mask))
    assert result.success.tolist() == [False, True, True, True, True]
    assert int(result.forwards[0]) == forwards and bool(torch.isinf(result.distances[0]))


CLASSES = {name: registry.get("attacks", name) for name in registry.names("attacks")}


@pytest.mark.parametrize("name", [name for name, kind in CLASSES.items() if kind.does])
def test_a_distance_it_does_not_do(name: str) -> None:
    kind = CLASSES[name]
    other = next(each for each in ("l2", "l1", "l0", "ssim") if each not in kind.does)
    with pytest.raises(AlmakitError, match=f"does {', '.join(kind.does)}, not {other}; attacks for any distance: alma"):
        kind(distance=other)


@pytest.mark.parametrize("name", [name for name, kind in CLASSES.items() if kind.minimal is False])
def test_a_radius_is_asked_for(name: str) -> None:
    attack = CLASSES[name](distance="l2")
    with pytest.raises(AlmakitError, match=rf"give epsilon=..., or find the smallest one with search\(attack={name}"):
        attack(MODEL, X, LABELS)
    with pytest.raises(AlmakitError, match="must be a positive number"):
        CLASSES[name](epsilon=-1.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("alm(penalty=p9)", "no penalty called"),
        ("alma-prox(share=0.0)", "must be in (0, 1]"),
        ("ead(rule=l2)", "choose l1"),
        ("apgd(loss=cw)", "choose one of ce"),
        ("pgd(loss=targeted-dlr)", "choose one of ce, dlr, margin"),
        ("search", "search needs an attack"),
        ("search(attack=cw(steps=10))", "CW is none: use pgd, apgd, lpa or square"),
    ],
)
def test_settings_that_are_refused(text: str, words: str) -> None:
    with pytest.raises(AlmakitError, match=re.escape(words)):
        attacks.get(text)
