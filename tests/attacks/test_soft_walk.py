"""The soft walk: its budget, flat networks, targets, several walks, its laws, and distances that are no norms."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from almakit import attacks, models
from almakit.attacks.soft_walk import SETTINGS, SoftWalk
from almakit.data import load
from almakit.distances.base import Bound, Distance
from almakit.errors import BadInput


@pytest.mark.parametrize("distance", ["l0", "l1", "l2", "linf", "ssim"])
@pytest.mark.parametrize("steps", [1, 2, 5, 21, 190])
def test_no_budget_is_exceeded_however_small(distance: str, steps: int) -> None:
    model = models.load("mnist/smallcnn-tiny")
    x, labels = load("mnist-demo", limit=3).tensors()
    result = attacks.get(f"soft-walk(distance={distance}, steps={steps})")(model, x, labels)
    assert int(result.forwards.max()) <= steps and int(result.backwards.max()) <= steps
    if steps >= 21:
        assert bool((result.distances < float("inf")).all()), "twenty passes suffice on an ordinary network"


class Plateau(nn.Module):
    """Two classes whose boundary is |x| = 1, behind a plateau: around zero the margin's slope is a hundred times too
    small."""

    def forward(self, x: Tensor) -> Tensor:
        square = x.flatten(1).square().sum(1)
        outside = torch.sigmoid(20 * (square - 0.2))
        margin = (1 - square) * outside + (1 - outside) - 0.01 * x.flatten(1).sum(1) * (1 - outside)
        return torch.stack([margin, torch.zeros_like(margin)], 1)


def test_a_network_whose_clean_gradient_misleads_is_reached_from_outside() -> None:
    """On the interval-trained network a start from outside finds what the way out does not."""
    model = models.load("mnist/smallcnn-tiny-ibp")
    x, labels = load("mnist-demo", limit=32).tensors()
    for distance, steps, most in (("l2", 300, 1.05), ("l2", 100, 1.1), ("l1", 100, 2.5)):
        result = attacks.get(f"soft-walk(distance={distance}, steps={steps})")(model, x, labels)
        assert bool((result.distances < float("inf")).all())
        assert float(result.distances.median()) < most, (distance, steps, float(result.distances.median()))
        assert int(result.forwards.max()) <= steps and int(result.backwards.max()) <= steps


class OneByOne(nn.Module):
    """A network that sees its images one at a time: rounding does not depend on their company."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.network(part) for part in x.split(1)])


@pytest.mark.parametrize(("distance", "steps"), [("l2", 70), ("l2", 200), ("l1", 260)])
def test_several_walks_keep_the_laws(distance: str, steps: int) -> None:
    """Alone as in company, towards a target, and within a smaller budget than its steps."""
    model = OneByOne(models.load("mnist/smallcnn-tiny-ibp"))
    x, labels = load("mnist-demo", limit=4).tensors()
    attack = attacks.get(f"soft-walk(distance={distance}, steps={steps})")
    together = attack(model, x, labels)
    for i in (1, 3):
        alone = attack(model, x[i : i + 1], labels[i : i + 1])
        assert torch.allclose(alone.distances, together.distances[i : i + 1], rtol=1e-5), (
            i,
            alone.distances,
            together.distances[i],
        )
        assert int(alone.forwards) == int(together.forwards[i]) and int(alone.backwards) == int(together.backwards[i])
    towards = attack(model, x, labels, targets=(labels + 1) % 10)
    found = towards.distances < float("inf")
    assert bool((model(towards.adversarials[found]).argmax(1) == (labels[found] + 1) % 10).all())
    for result in (together, towards):
        assert int(result.forwards.max()) <= steps and int(result.backwards.max()) <= steps
    short = attack(model, x, labels, budget=40)
    assert int(short.forwards.max()) <= 40 and int(short.backwards.max()) <= 40


class _Cubed(Distance):
    """A user's own norm, which is none of the four that have a search of their own."""

    name, norm = "l3", 3.0

    def bind(self, x: Tensor) -> Bound:
        return _CubedBound(self, x)


class _CubedBound(Bound):
    def __call__(self, y: Tensor) -> Tensor:
        return ((y - self.x).abs().flatten(1).pow(3).sum(1) + 1e-20).pow(1 / 3)


class _Summed(Distance):
    """l1 under another name."""

    name, norm = "summed", 1.0

    def bind(self, x: Tensor) -> Bound:
        return _SummedBound(self, x)


class _SummedBound(Bound):
    def __call__(self, y: Tensor) -> Tensor:
        return (y - self.x).abs().flatten(1).sum(1)


@pytest.mark.parametrize("distance", [_Cubed(), _Summed()])
def test_norms_of_the_users_own(distance: Distance) -> None:
    model = models.load("mnist/smallcnn-tiny")
    x, labels = load("mnist-demo", limit=3).tensors()
    result = SoftWalk(distance=distance, steps=30)(model, x, labels)
    assert bool((result.distances < float("inf")).all())


def test_functions_in_double_precision_and_without_a_gradient() -> None:
    model = models.load("mnist/smallcnn-tiny")
    x, labels = load("mnist-demo", limit=3).tensors()
    result = SoftWalk(distance=lambda a, b: (a - b).double().flatten(1).abs().sum(1), steps=30)(model, x, labels)
    assert result.distances.dtype == torch.float32 and bool((result.distances < float("inf")).all())
    with pytest.raises(BadInput, match="carries no gradient"):
        SoftWalk(distance=lambda a, b: (a - b).detach().flatten(1).abs().sum(1), steps=5)(model, x, labels)


@pytest.mark.parametrize("distance", ["l1", "l2", "ssim"])
def test_twenty_passes_reach_across_a_flat_spot(distance: str) -> None:
    """On the interval-trained network a search this short ends where it began for some digits; strides across the box
    find something."""
    model = models.load("mnist/smallcnn-tiny-ibp")
    x, labels = load("mnist-demo", limit=32).tensors()
    assert bool(
        (attacks.get(f"soft-walk(distance={distance}, steps=20)")(model, x, labels).distances < float("inf")).all()
    )


def test_several_walks_find_what_one_does_not_in_any_distance() -> None:
    """On every image at least as near as the first walk alone, and nearer on half of them."""
    model = models.load("mnist/smallcnn-tiny-ddn")
    x, labels = load("mnist-demo", limit=8).tensors()
    one, several = (
        attacks.get(f"soft-walk(distance=ssim, steps={steps})")(model, x, labels).distances for steps in (100, 500)
    )
    assert bool((several <= one).all()) and int((several < 0.99 * one).sum()) >= 4


@pytest.mark.parametrize(("power", "mean", "worst"), [(2, 1.001, 1.001), (1, 1.01, 1.02)])
def test_a_distance_of_the_users_own_ends_at_the_closed_form_on_a_linear_model(
    power: int, mean: float, worst: float
) -> None:
    """Weighted l2, smooth, and weighted l1, which is not: the optima are known. Where the distance has kinks, the last
    bits of another processor move single images by a percent."""
    random = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2)).double()
    with torch.no_grad():
        model[1].weight.copy_(torch.randn(2, 48, generator=random, dtype=torch.float64))
        model[1].bias.copy_(-0.5 * model[1].weight.sum(1))
        x = 0.5 + 0.002 * torch.randn(16, 3, 4, 4, generator=random, dtype=torch.float64)
        price = 0.2 + 4 * torch.rand(3, 4, 4, generator=random, dtype=torch.float64)
        logits = model(x)
        slope, cost = (model[1].weight[0] - model[1].weight[1]).abs(), price.flatten()
    dual = (slope.square() / cost).sum().sqrt() if power == 2 else (slope / cost).max()
    exact = (logits[:, 0] - logits[:, 1]).abs() / dual
    result = SoftWalk(
        distance=lambda a, b: ((a - b).abs().pow(power) * price).flatten(1).sum(1).pow(1 / power), steps=100
    )(model, x, logits.argmax(1))
    ratio = result.distances / exact
    assert float(ratio.min()) > 1 - 1e-12 and float(ratio.mean()) < mean and float(ratio.max()) < worst


def test_a_long_run_in_a_distance_that_is_no_norm_does_not_overflow() -> None:
    x = torch.full((1, 1, 2, 2), 0.5)
    result = SoftWalk(distance=_Cubed(), steps=1200)(
        Plateau(), torch.zeros_like(x), torch.zeros(1, dtype=torch.long), check=False
    )
    assert int(result.forwards.max()) <= 1200


def test_few_values_beside_a_corner_where_the_model_breaks() -> None:
    """NaN where many values are bright: the search for few values comes back from there."""
    model = models.load("mnist/smallcnn-tiny")
    x, labels = load("mnist-demo", limit=6).tensors()

    limit = int((x > 0.9).flatten(1).sum(1).max()) + 8

    def broken(images: Tensor) -> Tensor:
        bright = (images > 0.9).flatten(1).sum(1) > limit
        logits = model(images)
        return torch.where(bright.unsqueeze(1), torch.full_like(logits, float("nan")), logits)

    whole = attacks.get("soft-walk(distance=l0, steps=60)")(model, x, labels)
    result = attacks.get("soft-walk(distance=l0, steps=60)")(broken, x, labels, check=False)
    good = result.distances < float("inf")
    assert bool(good.any()) and bool((result.distances[good] <= 3 * whole.distances[good] + 3).all())


class Calls(nn.Module):
    """Counts the calls of a network."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network, self.calls = network, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.network(x)


@pytest.mark.parametrize("distance", ["l0", "l1", "l2", "linf", "ssim"])
@pytest.mark.parametrize(
    ("name", "images", "steps"), [("mnist/smallcnn-tiny", 16, 100), ("mnist/smallcnn-tiny-ibp", 16, 60)]
)
def test_a_batch_takes_as_many_model_calls_as_an_image_has_queries(
    distance: str, name: str, images: int, steps: int
) -> None:
    model = Calls(models.load(name))
    x, labels = load("mnist-demo", limit=images).tensors()
    SoftWalk(distance=distance, steps=steps)(model, x, labels, check=False)
    assert model.calls <= steps


@pytest.mark.parametrize("distance", ["l0", "l1", "l2", "linf", "ssim"])
def test_a_smaller_budget_is_what_it_plans_with(distance: str) -> None:
    model = models.load("mnist/smallcnn-tiny")
    x, labels = load("mnist-demo", limit=4).tensors()
    planned, cut = (
        SoftWalk(distance=distance, steps=40)(model, x, labels),
        SoftWalk(distance=distance, steps=100)(model, x, labels, budget=40),
    )
    assert torch.equal(planned.distances, cut.distances) and torch.equal(planned.forwards, cut.forwards)


@pytest.mark.parametrize("distance", ["l1", "l2", "linf"])
@pytest.mark.parametrize("steps", [30, 50])
def test_a_target_is_reached_with_few_steps(distance: str, steps: int) -> None:
    model = models.load("mnist/smallcnn-tiny")
    x, labels = load("mnist-demo", limit=24).tensors()
    assert bool(SoftWalk(distance=distance, steps=steps)(model, x, labels, targets=(labels + 1) % 10).success.all())


@pytest.mark.parametrize("distance", ["l0", "l1", "l2", "linf", "ssim"])
@pytest.mark.parametrize("steps", [20, 70, pytest.param(200, marks=pytest.mark.slow)])
def test_an_image_alone_gives_the_same_bits_as_in_company(distance: str, steps: int) -> None:
    model = OneByOne(models.load("mnist/smallcnn-tiny-ddn"))
    x, labels = load("mnist-demo", limit=4).tensors()
    attack = SoftWalk(distance=distance, steps=steps)
    together, order = attack(model, x, labels), torch.tensor([3, 1, 0, 2])
    shuffled = attack(model, x[order], labels[order])
    assert torch.equal(shuffled.distances, together.distances[order]) and torch.equal(
        shuffled.adversarials, together.adversarials[order]
    )
    alone = attack(model, x[2:3], labels[2:3])
    assert torch.equal(alone.distances, together.distances[2:3]) and torch.equal(alone.forwards, together.forwards[2:3])


@pytest.mark.parametrize("steps", [10, 20, 100])
def test_gradients_of_a_distance_are_in_proportion_to_the_queries(steps: int) -> None:
    calls = 0

    def distance(a: Tensor, b: Tensor) -> Tensor:
        nonlocal calls
        calls += torch.is_grad_enabled() and b.requires_grad
        return (a - b).flatten(1).pow(4).sum(1)

    x, labels = load("mnist-demo", limit=2).tensors()
    SoftWalk(distance=distance, steps=steps)(models.load("mnist/smallcnn-tiny"), x, labels)
    assert calls <= (SETTINGS.gradients + 1) * steps


def test_the_old_name_still_works() -> None:
    assert type(attacks.get("alma-plus(distance=l1)")) is SoftWalk
