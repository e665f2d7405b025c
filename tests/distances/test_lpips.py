"""LPIPS: the learned one against the ``lpips`` package, the paper's against its definition, both near identity in
float32."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

import pytest
import torch
from distance_samples import direction, images, relative
from torch import Tensor

from almakit import distances
from almakit.data import hub
from almakit.distances.lpips import LPIPS, LPIPSLearned, _network, _weights
from almakit.errors import BadInput

DECLARED = torch.library.Library("torchvision", "FRAGMENT")  # what it declares lives as long as it does


@lru_cache(maxsize=1)
def package() -> Any:
    """The ``lpips`` package's AlexNet metric with our weights in its trunk; its heads are its own, so that ours are
    compared too."""
    from safetensors.torch import load_file

    # The package imports torchvision, whose compiled part may not fit this torch: its two operators are never called
    # here, only declared.
    for operator in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, operator):
            DECLARED.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import lpips

        metric = lpips.LPIPS(net="alex", pnet_rand=True, verbose=False)
    weights = load_file(hub.path("lpips/alexnet-features.safetensors"))
    for part, layer in (("slice1", "0"), ("slice2", "3"), ("slice3", "6"), ("slice4", "8"), ("slice5", "10")):
        convolution = getattr(metric.net, part).get_submodule(layer)
        convolution.load_state_dict({kind: weights[f"features.{layer}.{kind}"] for kind in ("weight", "bias")})
    return metric


def definition(x: Tensor, y: Tensor) -> Tensor:
    """Laidlaw et al.: normalised activations, divided by the root of their places, concatenated, l2 norm of the
    difference."""
    mean, std = (x.new_tensor(values).view(1, 3, 1, 1) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))

    def phi(image: Tensor) -> Tensor:
        layers = package().net.to(image.dtype)((image - mean) / std)
        parts = [
            f / (f.square().sum(1, keepdim=True).sqrt() + 1e-10) / (f.shape[2] * f.shape[3]) ** 0.5 for f in layers
        ]
        return torch.cat([part.flatten(1) for part in parts], 1)

    return (phi(x) - phi(y)).norm(dim=1)


def pairs(size: int | tuple[int, int], step: float, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    height, width = (size, size) if isinstance(size, int) else size
    x = torch.rand(2, 3, height, width, generator=torch.Generator().manual_seed(7), dtype=torch.float64).to(dtype)
    return x, (x + step * direction(x)).clamp(0, 1)


@pytest.mark.parametrize("size", [31, 32, (64, 48), 96])
@pytest.mark.parametrize("step", [1.0, 0.3])
def test_learned_equals_the_lpips_package(size: int | tuple[int, int], step: float) -> None:
    x, y = pairs(size, step)
    with torch.no_grad():
        theirs = package().float()(x, y, normalize=True).flatten()
    ours = LPIPSLearned()(x, y)
    assert float(theirs.min()) > 1e-3
    assert float((ours - theirs).abs().max()) < 1e-5
    assert float((ours / theirs - 1).abs().max()) < 1e-4


@pytest.mark.parametrize("distance", [LPIPS(), LPIPSLearned()], ids=repr)
@pytest.mark.parametrize("step", [1e-2, 1e-4, 1e-6])
def test_float32_is_accurate_near_identity(distance: LPIPS, step: float) -> None:
    x = images("lpips", torch.float32)
    y = (x + step * direction(x)).clamp(0, 1)
    value, gradient = distance.bind(x).value_and_grad(y)
    exact, exact_gradient = distance.bind(x.double()).value_and_grad(y.double())
    assert float((value / exact - 1).abs().max()) < 1e-4
    # The flat and the ramp image tie many windows of the pooling; rounding picks among them, and with them another
    # subgradient.
    assert relative(gradient[:2] - exact_gradient[:2], exact_gradient[:2]) < 5e-4
    assert torch.isfinite(gradient).all()


def test_a_place_without_any_activation_stays_finite() -> None:
    """Black and white images silence whole feature vectors; their unit vector is zero, and nothing divides by their
    length."""
    x = torch.stack([torch.zeros(3, 32, 32), torch.ones(3, 32, 32)])
    for distance in (LPIPS(), LPIPSLearned()):
        for y in (x.flip(0), (x + 1e-3).clamp(0, 1), torch.full_like(x, 0.5)):
            value, gradient = distance.bind(x).value_and_grad(y)
            assert torch.isfinite(value).all() and torch.isfinite(gradient).all()


def test_weights_are_read_once_and_frozen() -> None:
    _weights.cache_clear()
    _network.cache_clear()
    x, y = pairs(32, 0.1)
    for _ in range(3):
        LPIPSLearned()(x, y)
        LPIPS()(x, y)
    information = _weights.cache_info()
    assert information.misses == 2  # trunk and heads, once each
    assert not any(
        value.requires_grad for value in _weights("lpips/alexnet-features.safetensors", x.dtype, x.device).values()
    )


@pytest.mark.parametrize(
    "size",
    [31, 33, 35, 72, *(pytest.param(size, marks=pytest.mark.slow) for size in (32, 34, (31, 64), (63, 70)))],
    ids=str,
)
@pytest.mark.parametrize("name", ["lpips", "lpips-learned"])
def test_values_and_gradients_are_those_of_the_definition(name: str, size: int | tuple[int, int]) -> None:
    """Over the sizes where blocks of the first convolution are cut or filled up, and where small maps go through dense
    matrices."""
    for step in (1.0, 0.05, 1e-3):
        x, y = pairs(size, step, torch.float64)
        bound, leaf = distances.get(name).bind(x), y.clone().requires_grad_(True)
        expected = definition(x, leaf) if name == "lpips" else package().double()(x, leaf, normalize=True).flatten()
        (slope,) = torch.autograd.grad(expected.sum(), leaf)
        value, gradient = bound.value_and_grad(y)
        assert relative(value - expected, expected) < 1e-6 and relative(gradient - slope, slope) < 1e-5
        (through,) = torch.autograd.grad((2 * bound(leaf)).sum(), leaf)
        assert torch.equal(through, 2 * gradient) and torch.equal(bound(y), value)
        part = bound.take(torch.tensor([1, 1, 0]))
        assert relative(part.value_and_grad(y[[1, 1, 0]])[1] - gradient[[1, 1, 0]], gradient[[1, 1, 0]]) < 1e-9
    value, gradient = bound.value_and_grad(x)
    assert float(value.abs().max()) == 0 and float(gradient.abs().max()) == 0


def test_too_small_or_grey() -> None:
    for name in ("lpips", "lpips-learned"):
        with pytest.raises(BadInput, match="at least 31 x 31 pixels, and these are 30 x 64"):
            distances.get(name)(torch.zeros(1, 3, 30, 64), torch.zeros(1, 3, 30, 64))
        with pytest.raises(BadInput, match=r"colour images of shape \(B, 3, H, W\), not \(1, 1, 32, 32\)"):
            distances.get(name)(torch.zeros(1, 1, 32, 32), torch.zeros(1, 1, 32, 32))
        assert distances.get(name)(torch.zeros(1, 3, 31, 31), torch.zeros(1, 3, 31, 31)).eq(0).all()
