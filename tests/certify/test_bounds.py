"""Interval, CROWN and optimised bounds: never crossed by any point of the ball, exact where they can be, refused where
they are unknown."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from certify.test_random_networks import Apply
from torch import Tensor, nn

from almakit import data, models
from almakit.attacks.pgd import PGD
from almakit.certify import METHODS, certified_radius, verified
from almakit.certify.backward import bounds, margins
from almakit.certify.graph import read
from almakit.certify.intervals import Ball
from almakit.errors import BadInput, BadModel
from almakit.models.classifier import Classifier
from almakit.models.zoo import ZOO, build

TRAINED = [
    pytest.param("cifar10/cnn-a-adv", marks=pytest.mark.shared_data),
    pytest.param("cifar10/resnet4b-adv", marks=[pytest.mark.shared_data, pytest.mark.slow]),
]


def classifier(name: str, seed: int = 0) -> Classifier:
    torch.manual_seed(seed)
    entry = ZOO[name]
    mean, std = entry.normalisation or (None, None)
    return Classifier(
        build(entry), name=name, mean=mean, std=std, dataset=entry.dataset, shape=entry.shape, classes=entry.classes
    ).double()


def true_margins(model: nn.Module, x: Tensor, labels: Tensor) -> Tensor:
    logits = model(x)
    return logits.gather(1, labels[:, None]) - logits


def bounded(model: nn.Module, x: Tensor, labels: Tensor, radius: float, method: str, norm: str = "linf") -> Tensor:
    graph = read(model, x)
    with torch.no_grad():
        return margins(
            graph, bounds(graph, Ball(x, x.new_full((len(x),), radius), norm), method != "ibp"), labels, method
        )


def corner_points(x: Tensor, radius: float, count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [
        (x + radius * torch.randn(x.shape, generator=generator, dtype=x.dtype).sign()).clamp(0, 1) for _ in range(count)
    ]


@pytest.mark.parametrize("name", ["mnist/smallcnn-tiny", *TRAINED])
def test_no_point_of_the_ball_crosses_a_bound(name: str, radius: float = 0.005) -> None:
    model = models.load(name).double()
    x = torch.rand(1, *ZOO[name].shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([3])
    adversarial = PGD(distance="linf", epsilon=radius, steps=10)(model, x, labels).adversarials
    before = torch.full((1, 10), -torch.inf, dtype=torch.float64)
    for method in ("ibp", "crown"):
        found = bounded(model, x, labels, radius, method)
        for point in [x, adversarial, *corner_points(x, radius, 6)]:
            assert bool((true_margins(model, point, labels) >= found).all()), "no tolerance: bounds are rounded outward"
        assert torch.equal(found.gather(1, labels[:, None]), torch.zeros(1, 1, dtype=torch.float64))
        assert bool((found >= before).all())
        before = found


@pytest.mark.parametrize("name", ["mnist/smallcnn-tiny", TRAINED[1]])
@pytest.mark.parametrize("method", METHODS)
def test_at_radius_zero_the_bounds_are_the_margins(name: str, method: str) -> None:
    model = models.load(name).double()
    x = torch.rand(3, *ZOO[name].shape, dtype=torch.float64)
    labels = torch.tensor([1, 2, 3])
    found, true = bounded(model, x, labels, 0.0, method), true_margins(model, x, labels)
    # Below, by what the roundings of all steps could add up to at worst.
    assert bool((found <= true).all()) and float((true - found).max()) < 1e-5


@pytest.mark.parametrize("method", METHODS)
def test_all_are_exact_for_a_linear_model_with_its_normalisation_folded(method: str) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(12, 4)
    model = Classifier(nn.Sequential(nn.Flatten(), linear), name="linear", mean=(0.3,), std=(0.5,)).double()
    x = 0.2 + 0.6 * torch.rand(5, 1, 3, 4, dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 3, 0])
    weight = (linear.weight.detach()[labels][:, None] - linear.weight.detach()[None]) / 0.5
    clean = true_margins(model, x, labels)
    for norm, spread in (("linf", weight.abs().sum(2)), ("l2", weight.norm(dim=2)), ("l1", weight.abs().amax(2))):
        torch.testing.assert_close(
            bounded(model, x, labels, 0.1, method, norm), clean - 0.1 * spread, atol=1e-10, rtol=0
        )


def test_crown_alone_is_tighter_than_intervals_on_an_untrained_network_and_gradients_flow() -> None:
    model = classifier("mnist/smallcnn-tiny").requires_grad_(True)
    x, labels = torch.rand(4, 1, 28, 28, dtype=torch.float64), torch.tensor([0, 1, 2, 3])
    graph = read(model, x, training=True)
    known = bounds(graph, Ball(x, x.new_full((4,), 0.02)), tight=False)
    interval, crown = margins(graph, known, labels, "ibp"), margins(graph, known, labels, "crown-alone")
    others = crown.detach() != 0
    gained, loose = (crown - interval).detach()[others], -interval.detach()[others]
    assert float(gained.mean()) > 0.2 * float(loose.mean())
    crown.sum().backward()
    assert all(weight.grad is not None and bool(weight.grad.isfinite().all()) for weight in model.parameters())


def test_bounds_in_training_have_the_gradients_of_finite_differences() -> None:
    torch.manual_seed(1)
    network = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(18, 5), nn.ReLU(), nn.Linear(5, 3)
    ).double()
    x, labels = torch.rand(2, 1, 8, 8, dtype=torch.float64), torch.tensor([0, 2])
    graph = read(network, x, training=True)
    for method in ("ibp", "crown-alone"):

        def total(method: str = method) -> Tensor:
            return margins(graph, bounds(graph, Ball(x, x.new_full((2,), 0.03)), tight=False), labels, method).sum()

        network.zero_grad()
        total().backward()
        for weight in network.parameters():
            gradient = weight.grad.clone()
            along = torch.randn_like(weight)
            with torch.no_grad():
                weight.add_(along, alpha=1e-6)
                above = total()
                weight.sub_(along, alpha=2e-6)
                below = total()
                weight.add_(along, alpha=1e-6)
            assert float((above - below) / 2e-6) == pytest.approx(float((gradient * along).sum()), rel=1e-4, abs=1e-6)


def test_verified_images_are_those_whose_every_margin_is_positive() -> None:
    model = models.load("mnist/smallcnn-tiny")
    x, labels = data.load("mnist", limit=12).tensors()
    right = model(x).argmax(1) == labels
    assert torch.equal(verified(model, x, labels, 0.0), right)
    assert not bool(verified(model, x, (labels + 1) % 10, 0.001).any())
    radius = certified_radius(model, x, labels, method="ibp")
    assert bool(verified(model, x, labels, radius)[right].all()) and 0 < float(radius.max()) < 0.05
    assert not bool(verified(model, x, labels, radius * 1.002)[right].any())
    # Nothing is left behind in the user's model.
    assert model.dtype == torch.float32 and torch.equal(copy.deepcopy(model)(x), model(x)) and not model.training


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (
            nn.Sequential(nn.Conv2d(1, 2, 3), nn.GELU(), nn.Flatten(), nn.Linear(72, 3)),
            "a step gelu, which almakit has no bounds for",
        ),
        (Apply(lambda x: (x if x.sum() > 0 else -x).flatten(1)), "cannot be followed"),
        (Apply(lambda x: x.flatten(1)[:, : int(x.sum()) % 7 + 2]), "cannot be followed"),
        (Apply(lambda x: (x - x.mean(0, keepdim=True)).flatten(1)), "mixes the images of a batch in its step mean"),
        (Apply(lambda x: x[x > 0.5].sum()[None, None].expand(len(x), 2)), "a step gt, which almakit has no bounds for"),
        (
            nn.Sequential(nn.Flatten(), nn.Linear(64, 3), nn.Softmax(1)),
            "has a softmax, and bounds are those of differences of logits",
        ),
        (
            Apply(lambda x: F.dropout(x.flatten(1), 0.5, training=True)),
            "has a dropout in training mode; call model.eval",
        ),
        (Apply(lambda x: (x * x).flatten(1)), "of two things that depend on the image"),
        (nn.Conv2d(1, 2, 3), "one row of logits for each image"),
    ],
)
def test_what_has_no_bounds_is_refused_with_a_sentence(model: nn.Module, sentence: str) -> None:
    with pytest.raises(BadModel, match=sentence):
        certified_radius(model.eval(), torch.rand(2, 1, 8, 8), torch.zeros(2, dtype=torch.long))


def test_a_model_in_training_mode_is_refused_and_stays_in_it() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Dropout(), nn.Linear(8, 3)).train()
    x, labels = torch.rand(2, 1, 8, 8), torch.zeros(2, dtype=torch.long)
    with pytest.raises(BadModel, match=r"its Dropout changes from batch to batch; call model.eval\(\) first"):
        certified_radius(model, x, labels)
    assert model.training and model[2].training
    certified_radius(model.eval(), x, labels)


def test_settings_and_images_that_make_no_sense_are_refused() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3)).eval()
    x, labels = torch.rand(2, 1, 8, 8), torch.zeros(2, dtype=torch.long)
    for norm, method, images, wanted, sentence in (
        ("l0", "crown", x, labels, "no certified radii in l0"),
        ("lpips", "crown", x, labels, "no certified radii in lpips"),
        ("linf", "lipschitz", x, labels, "no bound called 'lipschitz'; known: ibp, crown, alpha-crown"),
        ("linf", "crown", 2 * x, labels, r"must lie in \[0, 1\]"),
        ("linf", "crown", x, labels + 3, "2 class numbers from 0 to 2"),
        ("linf", "crown", x, labels[:1], "2 class numbers"),
    ):
        with pytest.raises(BadInput, match=sentence):
            certified_radius(model, images, wanted, norm, method)
