"""Law 5, for every distance the registry knows: 0 at identity, finite gradient at and near x, per image, dtype kept,
monotone in the scale."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from almakit import distances, registry
from almakit.distances import check_distance
from almakit.distances.base import Distance
from almakit.errors import BadInput

SHARES = (1e-6, 1e-4, 1e-2, 0.1, 0.3, 0.6, 1.0)


@pytest.fixture(params=registry.names("distances"))
def distance(request: pytest.FixtureRequest) -> Distance:
    return distances.get(request.param)


@pytest.fixture
def x(distance: Distance) -> Tensor:
    """(4, 3, S, S) float32: noise, a smooth colour field, black beside white, a grey ramp."""
    for size in (32, 180):
        generator = torch.Generator().manual_seed(17)
        ramp = torch.linspace(0, 1, size)
        down, across = torch.meshgrid(ramp, ramp, indexing="ij")
        smooth = torch.stack(
            [0.5 + 0.45 * torch.cos(4 * down * (1 + phase) + 3 * across - phase) for phase in (0.0, 1.0, 2.0)]
        )
        edge = (down > 0.5).float().expand(3, -1, -1)
        x = torch.stack([torch.rand(3, size, size, generator=generator), smooth, edge, across.expand(3, -1, -1)])
        try:
            distance.check(x)
        except BadInput:
            continue
        return x
    raise AssertionError(f"{distance!r} accepts neither 32 nor 180 pixels")


@pytest.fixture
def towards(x: Tensor) -> Tensor:
    """A direction that stays in [0, 1] from x up to its full length."""
    return 0.3 * (torch.rand(x.shape, generator=torch.Generator().manual_seed(18)) - x)


def test_zero_at_identity(distance: Distance, x: Tensor) -> None:
    assert distance(x, x.clone()).eq(0).all()


def test_zero_gradient_at_identity_and_finite_near_it(distance: Distance, x: Tensor, towards: Tensor) -> None:
    bound = distance.bind(x)
    value, gradient = bound.value_and_grad(x.clone())
    assert value.eq(0).all() and gradient.eq(0).all()
    for share in SHARES:
        value, gradient = bound.value_and_grad(x + share * towards)
        assert torch.isfinite(value).all() and value.gt(0).all()
        assert torch.isfinite(gradient).all() and gradient.shape == x.shape
    for level in (0.0, 0.5, 1.0):
        value, gradient = bound.value_and_grad(torch.full_like(x, level))
        assert torch.isfinite(value).all() and torch.isfinite(gradient).all()


def test_per_image(distance: Distance, x: Tensor, towards: Tensor) -> None:
    y = x + towards
    together, gradients = distance.bind(x).value_and_grad(y)
    for row in range(len(x)):
        value, gradient = distance.bind(x[row : row + 1]).value_and_grad(y[row : row + 1])
        assert torch.allclose(value[0], together[row], rtol=1e-5, atol=0)
        size = gradients[row].norm()
        assert float((gradient[0] - gradients[row]).norm()) <= 1e-3 * float(size)
    order = torch.tensor([2, 0, 3, 1])
    assert torch.allclose(distance(x[order], y[order]), together[order], rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_kept(distance: Distance, x: Tensor, towards: Tensor, dtype: torch.dtype) -> None:
    bound = distance.bind(x.to(dtype))
    y = (x + towards).to(dtype)
    value, gradient = bound.value_and_grad(y)
    assert value.dtype == gradient.dtype == bound(y).dtype == dtype and value.shape == (len(x),)


def test_monotone_in_the_scale(distance: Distance, x: Tensor, towards: Tensor) -> None:
    bound = distance.bind(x)
    values = torch.stack([bound(x + share * towards) for share in SHARES])
    assert bool((values[1:] >= values[:-1] * (1 - 1e-5)).all())


def test_the_users_check_agrees(distance: Distance) -> None:
    report = check_distance(distance)
    assert report.ok, str(report)


def test_facts_are_stated(distance: Distance) -> None:
    if distance.name in registry.BUILT_IN["distances"]:
        assert distance.about and distance.degree is not None and repr(distance) == distance.name
    assert all(value > 0 for value in distance.first_step.values())
