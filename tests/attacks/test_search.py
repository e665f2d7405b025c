"""The search on the radius: its sequence, what it finds, and what it refuses."""

from __future__ import annotations

import torch
from attacks.small_problem import LABELS, MODEL, SECOND, X, traced

from almakit import attacks
from almakit.attacks.apgd import APGD
from almakit.attacks.pgd import PGD
from almakit.attacks.search import Search


def test_the_radii_follow_the_bracket_of_each_image() -> None:
    _, notes = traced(Search(attack=APGD(distance="l2", steps=10), halvings=8, largest=3.0))
    notes = [note for note in notes if "best" in note]
    epsilon, lower, best = (torch.stack([note[name] for note in notes]) for name in ("epsilon", "lower", "best"))
    assert len(notes) == 8 and bool((epsilon[0] == 3).all())
    assert bool((lower.diff(dim=0) >= 0).all()) and bool((best.diff(dim=0) <= 0).all())
    for before, after in zip(range(7), range(1, 8), strict=True):
        failed = lower[before] > 0
        expected = torch.where(failed, (lower[before] + best[before]) / 2, best[before] / 4)
        assert torch.allclose(epsilon[after], expected)
    assert bool((best[-1] - lower[-1] < 0.3 * best[-1]).all()) and len(set(epsilon[-1].tolist())) == 5


def test_a_first_radius_that_is_too_small_doubles() -> None:
    result, notes = traced(Search(attack=PGD(distance="l2", steps=20), halvings=12, largest=0.02))
    radii = torch.stack([note["epsilon"] for note in notes if "best" in note])
    assert torch.allclose(radii[1], torch.full_like(radii[1], 0.04)) and result.success_rate == 1


def test_every_success_is_within_the_nested_attack_and_successes_are_cheap() -> None:
    result = Search(attack=APGD(distance="l2", steps=20), halvings=6, largest=50.0)(MODEL, X, LABELS)
    assert result.success_rate == 1
    # Six radii of at most 21 points each, and far fewer where the first points succeed.
    assert bool((result.forwards <= 1 + 6 * 21).all()) and bool((result.forwards < 100).all())


def test_texts_targets_and_presets() -> None:
    attack = attacks.get("search(attack=apgd(distance=l2, steps=50, loss=targeted-dlr), largest=5, halvings=13)")
    assert attack == Search(attack=APGD(distance="l2", steps=50, loss="targeted-dlr"), largest=5, halvings=13)
    assert repr(attack.measure) == "l2" and attack.minimal and attack.can_target and hash(attack) == hash(attack)
    assert Search.presets["paper-mnist"] == {"largest": 5.0, "halvings": 13}
    result = Search(attack=PGD(distance="linf", steps=15), halvings=6)(MODEL, X, LABELS, SECOND)
    assert bool((MODEL(result.adversarials).argmax(1) == SECOND).all())
