"""The lp distances and user functions as distances."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from almakit import distances
from almakit.distances.base import Bound, FunctionDistance
from almakit.errors import BadInput, UnknownName

X = torch.tensor([[0.5, 0.5, 0.5, 0.5], [0.1, 0.2, 0.3, 0.4]], dtype=torch.float64)
Y = torch.tensor([[0.5, 0.8, 0.1, 0.5], [0.1, 0.2, 0.3, 0.4]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("name", "value", "gradient"),
    [
        ("l0", 2.0, [0, 0, 0, 0]),
        ("l1", 0.7, [0, 1, -1, 0]),
        ("l2", 0.5, [0, 0.6, -0.8, 0]),
        ("linf", 0.4, [0, 0, -1, 0]),
    ],
)
def test_values_and_gradients_by_hand(name: str, value: float, gradient: list[float]) -> None:
    for shape in ((2, 4), (2, 1, 2, 2)):
        bound = distances.get(name).bind(X.view(shape))
        got, slope = bound.value_and_grad(Y.view(shape))
        assert got.tolist() == pytest.approx([value, 0.0])
        assert slope.view(2, 4)[0].tolist() == pytest.approx(gradient)
        assert slope[1].eq(0).all()  # the second image is not changed at all


def test_linf_shares_its_gradient_among_ties() -> None:
    x, y = torch.zeros(1, 3), torch.tensor([[0.5, -0.5, 0.25]])
    assert distances.get("linf").bind(x).value_and_grad(y)[1].tolist() == [[0.5, -0.5, 0.0]]


@pytest.mark.parametrize("size", [1e-3, 1e-20, 1e-30, 1e-40])
def test_l2_does_not_underflow(size: float) -> None:
    """The square of 1e-30 is zero in float32, and so would the norm be."""
    x = torch.zeros(1, 4)
    y = torch.full((1, 4), size)
    bound = distances.get("l2").bind(x)
    value, gradient = bound.value_and_grad(y)
    assert float(value) == pytest.approx(2 * float(y[0, 0]), rel=1e-5)
    assert gradient.tolist()[0] == pytest.approx([0.5] * 4, rel=1e-4)
    assert torch.allclose(bound(y), value, rtol=1e-5, atol=0)
    assert torch.allclose(Bound.value_and_grad(bound, y)[1], gradient, rtol=1e-4)


def test_names_functions_and_distances_resolve() -> None:
    l2 = distances.get("l2")
    assert distances.get(l2) is l2 and repr(l2) == "l2"
    assert set(distances.names()) >= {
        "l0",
        "l1",
        "l2",
        "linf",
        "ciede2000",
        "ssim",
        "lpips",
        "lpips-learned",
        "ms-ssim",
    }
    with pytest.raises(UnknownName, match="did you mean"):
        distances.get("lpip")

    def quartic(x: Tensor, y: Tensor) -> Tensor:
        return ((y - x) ** 4).flatten(1).sum(1)

    distance = distances.get(quartic)
    assert isinstance(distance, FunctionDistance) and repr(distance) == "quartic"
    assert torch.allclose(distance(X, Y), torch.tensor([0.3**4 + 0.4**4, 0.0], dtype=torch.float64))


def test_a_root_in_a_users_function_has_zero_gradient_at_identity() -> None:
    distance = distances.get(lambda x, y: ((y - x) ** 4).flatten(1).sum(1) ** 0.25)
    value, gradient = distance.bind(X).value_and_grad(Y)
    assert torch.isfinite(gradient).all() and gradient[1].eq(0).all()
    expected = torch.tensor([0.3, -0.4], dtype=torch.float64) ** 3 / value[0] ** 3
    assert torch.allclose(gradient[0, 1:3], expected)


def test_a_users_function_of_the_wrong_shape_is_a_sentence() -> None:
    with pytest.raises(
        BadInput, match=r"returned \(\) for a batch of 2.*sum or average over all dimensions but the first"
    ):
        distances.get(lambda x, y: (y - x).abs().sum())(X, Y)
    with pytest.raises(BadInput, match="returned float for a batch of 2"):
        distances.get(lambda x, y: float((y - x).abs().sum()))(X, Y)
    with pytest.raises(BadInput, match="one shape"):
        distances.get("l2")(X, Y[:1])
