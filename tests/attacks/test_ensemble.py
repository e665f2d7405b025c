"""The ensemble: the best of its members, at the sum of their costs."""

from __future__ import annotations

import pytest
import torch
from attacks.small_problem import LABELS, MODEL, SECOND, X, fools
from laws.samples import SAMPLES
from torch import Tensor

from almakit import ALMA, attacks
from almakit.attacks.bb import BB
from almakit.attacks.ensemble import Ensemble
from almakit.attacks.pgd import PGD
from almakit.errors import AlmakitError


def test_the_smallest_distance_of_each_image_wins() -> None:
    members = [
        ALMA(steps=20, epsilon=0.3),
        ALMA(steps=20, epsilon=0.4, penalty="phr"),
        attacks.get("ddn(steps=6)"),
        ALMA(steps=20, epsilon=0.2, alpha=0.8),
    ]
    alone = torch.stack([member(MODEL, X, LABELS).distances for member in members])
    together = Ensemble(attacks=members)(MODEL, X, LABELS)
    assert torch.equal(together.distances, alone.amin(0)) and bool(fools(together.adversarials).all())
    assert len(set(alone.argmin(0).tolist())) > 1, "else the test shows nothing"


# EAD's elastic-net rule says which of its points EAD returns; an ensemble returns the nearest.
NORMS = [sample.text for sample in SAMPLES if sample.attack.measure.norm is not None and "rule=en" not in sample.text]


@pytest.mark.parametrize("text", NORMS)
def test_each_member_does_what_it_does_alone(text: str) -> None:
    member = attacks.get(text)
    # A member that finds something at once and far away: what it knows must not help or mislead the next.
    first = (
        PGD(distance=member.measure, epsilon=20.0, steps=1)
        if member.measure.norm
        else attacks.get("sigma-zero(steps=3)")
    )
    one, two = (each(MODEL, X, LABELS) for each in (first, member))
    both = Ensemble(attacks=(first, member))(MODEL, X, LABELS)
    assert torch.equal(both.distances, torch.minimum(one.distances, two.distances))
    # Images that the first has released take part again. A later member that uses the clean pass pays for it again.
    assert set((one.forwards + two.forwards - both.forwards).tolist()) in ({0}, {1})
    assert torch.equal(both.backwards, one.backwards + two.backwards)


def test_a_fixed_radius_member_neither_widens_its_radius_nor_spoils_others() -> None:
    tiny = PGD(distance="l2", epsilon=1e-4, steps=5)
    first, last = (
        Ensemble(attacks=order)(MODEL, X, LABELS) for order in ((ALMA(steps=40), tiny), (tiny, ALMA(steps=40)))
    )
    alone = ALMA(steps=40)(MODEL, X, LABELS)
    assert torch.equal(first.distances, alone.distances) and torch.equal(last.distances, alone.distances)


def test_a_budget_is_spent_in_order() -> None:
    result = Ensemble(attacks=(ALMA(steps=30), BB(steps=15)))(MODEL, X, LABELS, budget=30)
    assert torch.equal(result.distances, ALMA(steps=30)(MODEL, X, LABELS).distances) and bool(
        (result.forwards == 30).all()
    )


def test_texts_and_targets() -> None:
    text = "ensemble(attacks=[alma(distance=l1, steps=20), bb(distance=l1, steps=10)])"
    assert attacks.get(text) == Ensemble(attacks=(ALMA(distance="l1", steps=20), BB(distance="l1", steps=10)))
    assert repr(attacks.get(text).measure) == "l1" and hash(attacks.get(text)) == hash(attacks.get(text))
    assert attacks.get("ensemble(attacks=[alma, ddn(steps=9)])") == Ensemble(
        attacks=(ALMA(), attacks.get("ddn(steps=9)"))
    )
    assert attacks.get("ensemble(attacks=alma)") == Ensemble(attacks=ALMA())  # type: ignore[arg-type]
    result = attacks.get(text)(MODEL, X, LABELS, SECOND)
    assert bool((MODEL(result.adversarials).argmax(1) == SECOND).all())


def test_refusals() -> None:
    def own(x: Tensor, y: Tensor) -> Tensor:
        return (y - x).flatten(1).abs().amax(1)

    with pytest.raises(AlmakitError, match="ALMA has l2 and BB has l1: set distance="):
        Ensemble(attacks=(ALMA(), BB(distance="l1")))
    with pytest.raises(AlmakitError, match="must measure the same distance"):
        Ensemble(attacks=(ALMA(distance=own), ALMA(distance=lambda x, y: own(x, y))))
    assert Ensemble(attacks=(ALMA(distance=own), ALMA(distance=own, steps=5))).measure(X, X).shape == (5,)
    with pytest.raises(AlmakitError, match="an ensemble needs attacks"):
        Ensemble()
    with pytest.raises(AlmakitError, match="is no attack"):
        Ensemble(attacks=(3,))  # type: ignore[arg-type]
    with pytest.raises(AlmakitError, match="give epsilon="):
        Ensemble(attacks=(ALMA(), PGD(distance="l2")))
