"""Faults that attacks are known for, each held as a test: none of them may come back."""

from __future__ import annotations

import pytest
import torch
from laws.models import RowWise
from torch import Tensor, nn

import almakit
from almakit import ALMA, Box, Status

X = torch.rand(4, 3, 4, 4, generator=torch.Generator().manual_seed(0))


def classifier(classes: int = 5) -> tuple[RowWise, Tensor]:
    model = RowWise((3, 4, 4), classes).eval()
    with torch.no_grad():
        return model, model(X).argmax(1)


@pytest.mark.parametrize("epsilon", [1e4, 1e-30])
def test_the_first_step_ends_where_epsilon_is_out_of_reach(epsilon: float) -> None:
    model, labels = classifier()
    result = ALMA(steps=40, epsilon=epsilon)(model, X, labels)
    assert len(result) == 4
    if epsilon > 1:
        assert result.success_rate == 1, "a step that is far too large is cut down by the decay and the box"


def test_one_image_without_a_gradient_blocks_nobody() -> None:
    model, labels = classifier()

    class Torn(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, gradient: Tensor) -> Tensor:  # type: ignore[override]
            gradient = gradient.clone()
            if len(gradient) == 4:
                gradient[1] = float("nan")
            return gradient

    alone = ALMA(steps=40)(model, X[[0, 2, 3]], labels[[0, 2, 3]])
    result = ALMA(steps=40)(lambda x: model(Torn.apply(x)), X, labels)
    assert torch.equal(result.adversarials[[0, 2, 3]], alone.adversarials) and bool(alone.success.all())
    assert int(result.forwards[1]) == 40


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("targeted", [False, True])
def test_models_of_two_and_three_classes(classes: int, targeted: bool) -> None:
    model, labels = classifier(classes)
    targets = (labels + 1) % classes if targeted else None
    result = ALMA(steps=60)(model, X, labels, targets)
    found = torch.cat([model(image[None]).argmax(1) for image in result.adversarials])
    assert result.success_rate == 1 and bool((found == targets if targeted else found != labels).all())


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("margin", [0.0, 1e-6, 1e-3])
@pytest.mark.parametrize("level", [0.0, 5.0])
def test_a_tie_or_nearly_one_on_the_clean_image(classes: int, margin: float, level: float) -> None:
    """The easiest images of all: the constraint's scale must not vanish with the margin, or the first step is lost in
    rounding."""
    weight = torch.randn(classes, 48, generator=torch.Generator().manual_seed(1))
    lead = level + margin * (torch.arange(classes) == 0)

    def model(x: Tensor) -> Tensor:
        return (x - X[:1]).flatten(1) @ weight.T + lead

    result = ALMA(steps=100)(model, X[:1], torch.tensor([0]))
    assert int(result.status[0]) == Status.SUCCESS and float(result.distances[0]) < 0.02


def fragile(model: RowWise, value: float, reach: float, row: int = 1) -> nn.Module:
    """The model with logits of ``value`` for candidates further than ``reach`` from image ``row``, and in that image's
    neighbourhood only."""

    class Fragile(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            away = (x - X[row]).flatten(1).norm(dim=1)
            return torch.where(((away > reach) & (away < 1.2))[:, None], torch.full((1, 5), value), model(x))

    return Fragile()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("reach", [0.02, 0.3])
def test_logits_that_are_not_finite_poison_no_image_for_ever(value: float, reach: float) -> None:
    model, labels = classifier()
    plain = ALMA(steps=80)(model, X, labels)
    result = ALMA(steps=80)(fragile(model, value, reach), X, labels)
    others = [0, 2, 3]
    assert torch.equal(result.adversarials[others], plain.adversarials[others])
    if reach < float(plain.distances[1]):
        assert int(result.status[1]) == Status.INVALID and float(result.distances[1]) == float("inf")
        assert result.reasons[1] is not None and "not finite for some candidates" in result.reasons[1]
        assert torch.equal(result.adversarials[1], X[1])
    else:
        assert int(result.status[1]) == Status.SUCCESS
        assert float(result.distances[1]) < 1.1 * float(plain.distances[1]), "it goes on from its best point"


def test_clean_logits_that_are_not_finite_cost_one_pass() -> None:
    model, labels = classifier()

    def broken(x: Tensor) -> Tensor:
        near = (x - X[2]).flatten(1).norm(dim=1) < 0.01
        return torch.where(near[:, None], torch.full((1, 5), float("nan")), model(x))

    result = ALMA(steps=30)(broken, X, labels)
    assert result.status.tolist() == [1, 1, Status.INVALID, 1] and int(result.forwards[2]) == 1
    assert result.reasons[2] == "the model's logits are not finite on the clean image"


def hopeless(x: Tensor) -> Tensor:
    """Class 0 whatever happens, with a gradient."""
    mean = x.flatten(1).mean(1)
    return torch.stack([10 + mean, mean, -mean], 1)


def test_failure_is_flagged() -> None:
    result = ALMA(steps=20)(hopeless, X, torch.zeros(4, dtype=torch.long))
    assert result.status.tolist() == [Status.FAILED] * 4 and bool(torch.isinf(result.distances).all())
    assert result.reasons == ["no adversarial point was found within the budget"] * 4 and result.success_rate == 0
    assert torch.equal(result.adversarials, X)


def test_images_already_wrong_spend_nothing() -> None:
    model, labels = classifier()
    labels = torch.cat([labels[:2], (labels[2:] + 1) % 5])
    sizes: list[int] = []

    def watched(x: Tensor) -> Tensor:
        sizes.append(len(x))
        return model(x)

    result = ALMA(steps=20)(watched, X, labels)
    assert result.forwards.tolist() == [20, 20, 1, 1] and result.backwards.tolist() == [19, 19, 0, 0]
    assert sizes == [1, 1, 4, *[2] * 19, *[2] * 4], (
        "after the probes and the clean pass only the others go through the model; at the end all are asked about again"
    )
    assert result.distances.tolist()[2:] == [0.0, 0.0] and torch.equal(result.adversarials[2:], X[2:])


def test_the_last_iterate_is_evaluated_and_costs_no_backward() -> None:
    model, labels = classifier()
    points: list[Tensor] = []
    result = ALMA(steps=2, epsilon=5.0)(lambda x: points.append(x.detach().clone()) or model(x), X, labels, check=False)
    assert result.forwards.tolist() == [2] * 4 and result.backwards.tolist() == [1] * 4
    # With two steps the clean image and one further point are seen: what was found is that point.
    assert bool(result.success.any()) and torch.equal(result.adversarials[result.success], points[-1][result.success])


def plateau(x: Tensor) -> Tensor:
    """Constant logits near the images and steps further out: the gradient is zero almost everywhere."""
    score = ((x - 0.5).flatten(1) * 8).round().sum(1) / 8
    return torch.stack([score, -score, torch.full_like(score, -9.0)], 1)


def test_a_gradient_that_is_zero_is_escaped() -> None:
    x = 0.5 + 0.1 * (torch.rand(4, 3, 4, 4, generator=torch.Generator().manual_seed(4)) - 0.5)
    x[:, 0, 0, 0] = 0.58
    labels = plateau(x).argmax(1)
    assert bool((labels == 0).all())
    result = ALMA(steps=100)(plateau, x, labels)
    assert result.success_rate == 1, "random directions leave a plateau"


def test_a_gradient_that_is_zero_everywhere_fails_with_its_reason() -> None:
    def constant(x: Tensor) -> Tensor:
        return 0 * x.flatten(1)[:, :3] + torch.tensor([1.0, 0.0, -1.0])

    result = ALMA(steps=15)(constant, X, torch.zeros(4, dtype=torch.long))
    assert result.status.tolist() == [Status.FAILED] * 4
    assert result.reasons[0] == "the gradient was zero at every query, and random directions found nothing"


def gradient_lost_after_the_first_step(x: Tensor) -> Tensor:
    """A slope at the clean images only: further out the logits are constant until 0.5 away along the slope."""
    weight = torch.ones(48) / 48**0.5
    along = (x.flatten(1) - X[:1].flatten(1)) @ weight
    value = torch.where(
        along.abs() < 0.01, 1 - along, torch.where(along > 0.5, torch.full_like(along, -1.0), torch.ones_like(along))
    )
    return torch.stack([value, -value, torch.full_like(value, -3.0)], 1)


def test_a_gradient_that_vanishes_after_the_first_step_has_a_way_out() -> None:
    result = ALMA(steps=100)(gradient_lost_after_the_first_step, X[:1], torch.tensor([0]))
    assert int(result.status[0]) == Status.SUCCESS


def test_quantising_afterwards_is_what_loses_results() -> None:
    """The fault itself, so that the test above is known to test something: rounding free results undoes some of
    them."""
    generator = torch.Generator().manual_seed(2)
    x = (torch.rand(40, 3, 4, 4, generator=generator) * 255).round() / 255
    model, _ = classifier()
    labels = model(x).argmax(1)
    free = ALMA(steps=100)(model, x, labels)
    rounded = (free.adversarials * 255).round() / 255
    assert bool((model(rounded).argmax(1) == labels).any())
    inside = ALMA(steps=100)(model, x, labels, box=Box(bits=8))
    assert inside.success_rate == 1 and bool((model(inside.adversarials).argmax(1) != labels).all())
    ratio = inside.distances / free.distances
    assert float(ratio.median()) < 1.1, "the grid costs little"


def test_a_distance_that_is_not_finite_is_never_the_best() -> None:
    def strange(x: Tensor, y: Tensor) -> Tensor:
        away = (y - x).flatten(1).square().sum(1)
        return torch.where(away > 0.5, torch.full_like(away, float("nan")), away)

    model, labels = classifier()
    result = almakit.attack(model, X, labels, distance=strange, steps=60)
    assert not bool(torch.isnan(result.distances).any())
    assert bool(torch.isinf(result.distances[~result.success]).all())
