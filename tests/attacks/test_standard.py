"""The standard evaluation: a name that stands for one composition, and robust accuracy read off at any radius."""

from __future__ import annotations

import hashlib

import pytest
import torch
from laws.models import RowWise

import almakit
from almakit.attacks import get, standard
from almakit.errors import AlmakitError
from almakit.runs.attack_text import text_of

PUBLISHED = {"almakit-standard-v1": "538e992f61585649"}


@pytest.fixture(scope="module")
def evaluated():
    model = RowWise((3, 5, 5)).eval()
    x = torch.rand(4, 3, 5, 5, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        labels = model(x).argmax(1)
    labels[2] = (labels[2] + 1) % 5
    return model, x, labels, almakit.standard_evaluation(model, x, labels, norm="L2", bs=4)


def test_a_published_ensemble_is_never_changed() -> None:
    """If this fails, give the new composition a new version name; papers quote the old one."""
    found = {
        name: hashlib.sha256(repr(sorted(members.items())).encode()).hexdigest()[:16]
        for name, members in standard.ENSEMBLES.items()
    }
    assert found == PUBLISHED
    for members in standard.ENSEMBLES.values():
        for distance, texts in members.items():
            assert all(repr(get(text).measure) == distance and get(text).minimal for text in texts)


def test_robust_accuracy_at_any_radius(evaluated) -> None:
    _, _, _, found = evaluated
    assert found.version == "almakit-standard-v1" and found.norm == "l2" and "almakit-standard-v1" in repr(found)
    assert found.clean_accuracy == 3 / 4 == found.robust_accuracy(0)
    ordered = sorted(found.distances.tolist())
    assert ordered[0] == 0
    for rank, distance in enumerate(ordered):
        assert found.robust_accuracy(distance) == (3 - rank) / 4, "a point at the radius is inside"
    assert found.curve([0, ordered[-1]]) == [(0.0, 3 / 4), (ordered[-1], 0.0)]
    with pytest.raises(AlmakitError, match="0 or more"):
        found.robust_accuracy(-1)


def test_it_is_at_least_as_good_as_its_first_member_and_costs_more(evaluated) -> None:
    """The later members start from what the first has found, so only the first is the same alone."""
    model, x, labels, found = evaluated
    alone = get(standard.ENSEMBLES["almakit-standard-v1"]["l2"][0])(model, x, labels, batch_size=4)
    assert bool((found.distances <= alone.distances).all()) and int(found.forwards.sum()) > 2 * int(
        alone.forwards.sum()
    )
    with torch.no_grad():
        assert bool((model(found.adversarials).argmax(1) != labels).all())


def test_norms_as_people_write_them() -> None:
    for norm in ("Linf", "linf", "L_inf".replace("_", ""), float("inf"), "inf"):
        assert standard.Standard.of(norm).norm == "linf"
    assert standard.Standard.of(2).norm == standard.Standard.of("L2").norm == "l2"
    with pytest.raises(AlmakitError, match="defined for linf, l2, l1, l0"):
        standard.Standard.of("ssim")
    with pytest.raises(AlmakitError, match="known: almakit-standard-v1"):
        standard.Standard.of("l2", "almakit-standard-v0")


def test_it_is_an_attack_of_the_command_line() -> None:
    attack = get("almakit:standard-v1(distance=l1)")
    assert attack == standard.Standard.of("L1") and text_of(attack) == "almakit:standard-v1(distance=l1)"
    with pytest.raises(AlmakitError, match="no knobs"):
        get("almakit:standard-v1(steps=3)")
