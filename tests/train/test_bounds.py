"""Interval and CROWN-IBP bounds: never crossed by any point of the ball, exact where they can be, refused where they are unknown."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from almakit import data, models
from almakit.attacks.pgd import PGD
from almakit.errors import BadModel
from almakit.models.classifier import Classifier
from almakit.models.zoo import ZOO, build
from almakit.train.bounds import Bounded, certified_radius, verified
from almakit.train.crown import crown_margins

TRAINED = [pytest.param(name, marks=pytest.mark.shared_data) for name in ("cifar10/cnn-a-adv", "cifar10/resnet4b-adv")]


def classifier(name: str, seed: int = 0) -> Classifier:
    torch.manual_seed(seed)
    entry = ZOO[name]
    mean, std = entry.normalisation or (None, None)
    return Classifier(build(entry), name=name, mean=mean, std=std, dataset=entry.dataset, shape=entry.shape, classes=entry.classes).double()


def true_margins(model: nn.Module, x: Tensor, labels: Tensor) -> Tensor:
    logits = model(x)
    return logits.gather(1, labels[:, None]) - logits


def corner_points(x: Tensor, radius: float, count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [(x + radius * torch.randn(x.shape, generator=generator, dtype=x.dtype).sign()).clamp(0, 1) for _ in range(count)]


@pytest.mark.parametrize("name", ["mnist/smallcnn-tiny", *TRAINED])
@pytest.mark.parametrize("radius", [0.002, 0.05])
def test_no_point_of_the_ball_crosses_a_bound(name: str, radius: float) -> None:
    model = models.load(name).double()
    x = torch.rand(4, *ZOO[name].shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 3, 5, 9])
    bounded = Bounded(model)
    known = bounded.intervals(x, radius)
    interval, crown = bounded.margins_of(known, labels), crown_margins(bounded, known, labels)
    adversarial = PGD(distance="linf", epsilon=radius, steps=10)(model, x, labels).adversarials
    for point in [x, adversarial, *corner_points(x, radius, 6)]:
        found = true_margins(model, point, labels)
        assert bool((found >= interval - 1e-9).all()) and bool((found >= crown - 1e-9).all())
    assert torch.equal(interval.gather(1, labels[:, None]), torch.zeros(4, 1, dtype=torch.float64))
    assert float(crown.gather(1, labels[:, None]).abs().max()) < 1e-12


@pytest.mark.parametrize("name", ["mnist/smallcnn-tiny", TRAINED[1]])
def test_at_radius_zero_the_bounds_are_the_margins(name: str) -> None:
    model = models.load(name).double()
    x = torch.rand(3, *ZOO[name].shape, dtype=torch.float64)
    labels = torch.tensor([1, 2, 3])
    bounded = Bounded(model)
    known = bounded.intervals(x, 0.0)
    exact = true_margins(model, x, labels)
    torch.testing.assert_close(bounded.margins_of(known, labels), exact, atol=1e-9, rtol=0)
    torch.testing.assert_close(crown_margins(bounded, known, labels), exact, atol=1e-9, rtol=0)


def test_both_are_exact_for_a_linear_model() -> None:
    torch.manual_seed(0)
    linear = nn.Linear(12, 4)
    model = Classifier(nn.Sequential(nn.Flatten(), linear), name="linear", mean=(0.3,), std=(0.5,)).double()
    x = 0.2 + 0.6 * torch.rand(5, 1, 3, 4, dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 3, 0])
    weight = linear.weight.detach()[labels][:, None] - linear.weight.detach()[None]
    exact = true_margins(model, x, labels) - 0.1 / 0.5 * weight.abs().sum(2)
    bounded = Bounded(model)
    known = bounded.intervals(x, 0.1)
    torch.testing.assert_close(bounded.margins_of(known, labels), exact)
    torch.testing.assert_close(crown_margins(bounded, known, labels), exact)


def test_crown_is_tighter_than_intervals_on_an_untrained_network_and_gradients_flow() -> None:
    model = classifier("mnist/smallcnn-tiny").requires_grad_(True)
    x, labels = torch.rand(4, 1, 28, 28, dtype=torch.float64), torch.tensor([0, 1, 2, 3])
    bounded = Bounded(model)
    known = bounded.intervals(x, 0.02)
    interval, crown = bounded.margins_of(known, labels), crown_margins(bounded, known, labels)
    others = crown.detach() != 0
    gained, loose = (crown - interval).detach()[others], -interval.detach()[others]
    assert float(gained.mean()) > 0.2 * float(loose.mean())
    crown.sum().backward()
    assert all(weight.grad is not None and bool(weight.grad.isfinite().all()) for weight in model.parameters())


def test_an_overlapping_pool_is_bounded_too() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 3, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Flatten(), nn.Linear(3 * 3 * 3, 5))
    model = Classifier(network, name="overlapping").double()
    x, labels = torch.rand(3, 1, 14, 14, dtype=torch.float64), torch.tensor([0, 1, 4])
    bounded = Bounded(model)
    known = bounded.intervals(x, 0.05)
    for point in [x, *corner_points(x, 0.05, 20)]:
        found = true_margins(model, point, labels)
        assert bool((found >= bounded.margins_of(known, labels) - 1e-9).all())
        assert bool((found >= crown_margins(bounded, known, labels) - 1e-9).all())


def test_verified_images_are_those_whose_every_margin_is_positive() -> None:
    model = models.load("mnist/smallcnn-tiny")
    x, labels = data.load("mnist", limit=40).tensors()
    right = model(x).argmax(1) == labels
    assert torch.equal(verified(model, x, labels, 0.0), right)
    assert not bool(verified(model, x, (labels + 1) % 10, 0.001).any())
    radius = certified_radius(model, x, labels, largest=0.05, halvings=8)
    assert bool(verified(model, x, labels, radius)[right].all()) and 0 < float(radius.max()) < 0.05
    assert not bool(verified(model, x, labels, radius + 0.05 / 2**7)[right].any())
    # Nothing is left behind in the user's model.
    assert model.dtype == torch.float32 and torch.equal(copy.deepcopy(model)(x), model(x))


def test_unknown_steps_are_refused_by_name() -> None:
    with pytest.raises(BadModel, match="BatchNorm2d, which almakit has no interval bounds for"):
        Bounded(classifier("cifar10/resnet20"))

    class Branching(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(BadModel, match="cannot be followed"):
        Bounded(Classifier(Branching(), name="branching"))
