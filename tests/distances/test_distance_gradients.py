"""Gradients of every registered distance against differences of its values, in float64; and what ``Bound`` promises."""

from __future__ import annotations

import pytest
import torch
from distance_samples import direction, images, relative
from torch import Tensor

from almakit import distances, registry
from almakit.distances.base import Bound, Distance

NAMES = registry.names("distances")


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def distance(name: str) -> Distance:
    return distances.get(name)


@pytest.fixture
def x(name: str) -> Tensor:
    return images(name)


def slope(bound: Bound, y: Tensor, along: Tensor, width: float) -> Tensor:
    """Central difference of the distance along a direction, per image."""
    with torch.no_grad():
        return (bound(y + width * along) - bound(y - width * along)) / (2 * width)


@pytest.mark.parametrize("size", [0.3, 1e-2])
def test_gradient_is_the_slope_of_the_value(distance: Distance, x: Tensor, size: float) -> None:
    """At random points around noise, smooth, flat grey and grey ramp images."""
    y = (x + size * direction(x)).clamp(0.01, 0.99)
    bound = distance.bind(x)
    _, gradient = bound.value_and_grad(y)
    for seed in (11, 12):
        along = direction(x, seed)
        expected = slope(bound, y, along, 1e-7)
        measured = (gradient * along).flatten(1).sum(1)
        scale = gradient.flatten(1).norm(dim=1) * along.flatten(1).norm(dim=1)
        assert bool(((measured - expected).abs() <= 1e-4 * expected.abs() + 1e-5 * scale + 1e-9).all())


def test_grey_to_grey(distance: Distance, x: Tensor) -> None:
    """Grey pixels on both sides, where hue and chroma vanish."""
    grey = x.mean(1, keepdim=True).expand_as(x).contiguous()
    y = (grey + 0.05 * direction(x)[:, :1]).clamp(0.02, 0.98).contiguous()
    bound = distance.bind(grey)
    value, gradient = bound.value_and_grad(y)
    assert torch.isfinite(value).all() and torch.isfinite(gradient).all()
    along = direction(x, 13)
    measured = (gradient * along).flatten(1).sum(1)
    if distance.norm == float("inf"):
        # Three equal channels tie for the largest difference: no derivative there, and the gradient has to be a
        # subgradient.
        assert bool((bound(y + 1e-4 * along) >= value + 1e-4 * measured - 1e-12).all())
        return
    expected = slope(bound, y, along, 1e-7)
    scale = gradient.flatten(1).norm(dim=1) * along.flatten(1).norm(dim=1)
    assert bool(((measured - expected).abs() <= 1e-4 * expected.abs() + 1e-5 * scale + 1e-9).all())


def test_at_zero_difference(distance: Distance, x: Tensor) -> None:
    """The gradient at y = x is zero, and D grows from there with the stated degree in every direction, up and down."""
    bound = distance.bind(x)
    value, gradient = bound.value_and_grad(x.clone())
    assert value.eq(0).all() and gradient.eq(0).all()
    assert distance.degree is not None
    for seed in (21, 22):
        for sign in (1, -1):
            along = sign * direction(x, seed)
            near, twice = bound(x + 1e-5 * along), bound(x + 2e-5 * along)
            assert near.gt(0).all()
            assert torch.allclose(twice / near, torch.full_like(near, 2.0**distance.degree), rtol=2e-2)
            # Euler: the slope along the ray is degree * D / length
            _, there = bound.value_and_grad(x + 1e-5 * along)
            ray = (there * along).flatten(1).sum(1) * 1e-5
            assert torch.allclose(ray, distance.degree * near, rtol=2e-2, atol=1e-30)


@pytest.mark.parametrize("size", [0.3, 1e-3, 0.0])
def test_value_and_grad_equals_autograd_of_call(distance: Distance, x: Tensor, size: float) -> None:
    y = (x + size * direction(x)).clamp(0.01, 0.99)
    bound = distance.bind(x)
    value, gradient = bound.value_and_grad(y)
    expected, by_autograd = Bound.value_and_grad(bound, y)
    assert not value.requires_grad and not gradient.requires_grad
    assert torch.allclose(value, expected, rtol=1e-12, atol=0)
    if size:
        assert (gradient - by_autograd).flatten(1).norm(dim=1).le(1e-9 * by_autograd.flatten(1).norm(dim=1)).all()
    assert torch.equal(value, distance(x, y)) or torch.allclose(value, distance(x, y), rtol=1e-12, atol=0)


def test_value_and_grad_works_on_leaves_and_without_grad_mode(distance: Distance, x: Tensor) -> None:
    y = (x + 0.1 * direction(x)).clamp(0.01, 0.99)
    bound = distance.bind(x)
    value, gradient = bound.value_and_grad(y)
    with torch.no_grad():
        quiet = bound.value_and_grad(y)
    leaf = bound.value_and_grad(y.clone().requires_grad_(True))
    for other in (quiet, leaf):
        assert torch.equal(other[0], value) and torch.equal(other[1], gradient)
        assert not other[0].requires_grad and not other[1].requires_grad


def test_take_equals_binding_again(distance: Distance, x: Tensor) -> None:
    bound = distance.bind(x)
    for rows in (torch.tensor([2]), torch.tensor([3, 0, 0, 1]), torch.tensor([1, 2])):
        y = (x[rows] + 0.1 * direction(x[rows], 31)).clamp(0.01, 0.99)
        taken, again = bound.take(rows), distance.bind(x[rows])
        assert torch.allclose(taken(y), again(y), rtol=1e-9)
        (value, gradient), (value_again, gradient_again) = taken.value_and_grad(y), again.value_and_grad(y)
        assert torch.allclose(value, value_again, rtol=1e-9)
        assert (gradient - gradient_again).flatten(1).norm(dim=1).le(1e-8 * gradient_again.flatten(1).norm(dim=1)).all()
        once_more = taken.take(torch.tensor([0]))
        assert torch.allclose(once_more(y[:1]), again(y)[:1], rtol=1e-9)


@pytest.mark.parametrize("name_small", ["ciede2000", "ciede2000-paper", "ssim", "l1", "l2", "linf"])
def test_gradcheck_of_torch(name_small: str) -> None:
    """Every single derivative, where images may be small."""
    size = 11 if name_small == "ssim" else 3
    generator = torch.Generator().manual_seed(41)
    x = 0.1 + 0.8 * torch.rand(2, 3, size, size, generator=generator, dtype=torch.float64)
    x[1] = x[1, :1].clone()
    bound = distances.get(name_small).bind(x)
    y = (x + 0.05 * direction(x, 42)).clamp(0.06, 0.95).requires_grad_(True)
    assert torch.autograd.gradcheck(bound, (y,), eps=1e-7, atol=1e-5, rtol=1e-4)


def test_float32_agrees_with_float64(distance: Distance, x: Tensor) -> None:
    y = (x + 0.05 * direction(x)).clamp(0.01, 0.99)
    single, double = distance.bind(x.float()), distance.bind(x.float().double())
    (value, gradient), (value64, gradient64) = (
        single.value_and_grad(y.float()),
        double.value_and_grad(y.float().double()),
    )
    assert torch.allclose(value.double(), value64, rtol=1e-4)
    if gradient64.any():
        assert relative(gradient[:2].double() - gradient64[:2], gradient64[:2]) < 1e-3
