"""A certificate and an attack test each other: no attack may succeed below the radius the interval bounds prove, and
the proof must not be empty."""

from __future__ import annotations

import pytest
import torch

from almakit import attacks, data, models
from almakit.certify import certified_radius
from almakit.core import Status

NAME, COUNT = "mnist/smallcnn-tiny-ibp", 12
MINIMAL = (
    "alma-plus(distance=linf, steps=100)",
    "fmn(distance=linf, steps=100)",
    "pdpgd(distance=linf, steps=100)",
    "fab(distance=linf, steps=20)",
    "deepfool(distance=linf)",
    "search(attack=apgd(distance=linf, steps=30), halvings=8)",
)


@pytest.fixture(scope="module")
def certified() -> tuple[models.Classifier, torch.Tensor, torch.Tensor, torch.Tensor]:
    model = models.load(NAME)
    x, labels = data.load("mnist", limit=COUNT).tensors()
    return model, x, labels, certified_radius(model, x, labels, method="ibp")


def test_the_certificate_is_not_vacuous(
    certified: tuple[models.Classifier, torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:
    radius = certified[3]
    assert float((radius >= 0.2).double().mean()) > 0.7
    # Nor is it a claim about everything: nobody is proved robust where one half of the grey scale can be reached from
    # anywhere.
    assert float(radius.max()) < 0.5


@pytest.mark.parametrize("text", MINIMAL)
def test_no_attack_succeeds_below_the_certified_radius(
    text: str, certified: tuple[models.Classifier, torch.Tensor, torch.Tensor, torch.Tensor]
) -> None:
    model, x, labels, radius = certified
    result = attacks.get(text)(model, x, labels)
    attacked = result.status != Status.ALREADY_WRONG
    assert bool((result.distances.double()[attacked] >= radius[attacked]).all())
    # An image that is wrong already has no certificate.
    assert bool((radius[~attacked] == 0).all())


OTHER_NORMS = {
    "l2": ("alma-plus(distance=l2, steps=50)", "ddn(steps=50)", "fmn(distance=l2, steps=50)", "deepfool(distance=l2)"),
    "l1": ("alma-plus(distance=l1, steps=50)", "fmn(distance=l1, steps=50)", "ead(steps=90)"),
}


@pytest.mark.parametrize("norm", OTHER_NORMS)
@pytest.mark.parametrize("name", [pytest.param(NAME, marks=pytest.mark.slow), "mnist/mlp-2x100"])
def test_no_attack_succeeds_below_a_radius_in_other_norms(norm: str, name: str) -> None:
    model = models.load(name)
    x, labels = data.load("mnist", limit=3).tensors()
    radius = certified_radius(model, x, labels, norm, "ibp" if name == NAME else "crown")
    assert float(radius.median()) > 0
    for text in OTHER_NORMS[norm]:
        result = attacks.get(text)(model, x, labels)
        attacked = result.status != Status.ALREADY_WRONG
        assert bool((result.distances.double()[attacked] >= radius[attacked]).all()), text


def test_attacks_at_the_radius_itself_find_nothing_and_far_beyond_it_something(
    certified: tuple[models.Classifier, torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:
    model, x, labels, radius = certified
    proved = radius >= 0.2
    inside = attacks.get("apgd(distance=linf, epsilon=0.2, steps=40, loss=targeted-dlr)")(
        model, x[proved], labels[proved]
    )
    assert not bool(inside.success.any())
    beyond = attacks.get("pgd(distance=linf, epsilon=0.6, steps=40)")(model, x[proved], labels[proved])
    assert float(beyond.success.double().mean()) > 0.5
