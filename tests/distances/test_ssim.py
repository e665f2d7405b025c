"""1 - SSIM and 1 - MS-SSIM: scikit-image, float32 far below 1e-6, and images too small for the window."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from distance_samples import direction, images, relative
from skimage.metrics import structural_similarity
from torch import Tensor

from almakit import distances
from almakit.distances.gaussian import blur, blur_adjoint
from almakit.distances.ssim import MSSSIM, SSIM
from almakit.errors import BadInput


def scikit_image(x: Tensor, y: Tensor) -> Tensor:
    """1 - SSIM by scikit-image, which crops its mean to the windows that fit; mean over channels."""
    settings = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "data_range": 1.0}
    per_channel = [
        [structural_similarity(a.numpy(), b.numpy(), **settings) for a, b in zip(*pair)] for pair in zip(x, y)
    ]
    return 1 - torch.tensor(per_channel, dtype=torch.float64).mean(1)


def textbook_ms_ssim(x: Tensor, y: Tensor) -> Tensor:
    """Wang, Simoncelli, Bovik 2003 with plain convolutions and products, float64."""
    offsets = torch.arange(11, dtype=x.dtype) - 5
    line = torch.exp(-(offsets**2) / (2 * 1.5**2))
    window = (line[:, None] * line / line.sum() ** 2).expand(x.shape[1], 1, 11, 11)

    def mean(image: Tensor) -> Tensor:
        return F.conv2d(image, window, groups=x.shape[1])

    result = torch.ones(x.shape[:2], dtype=x.dtype)
    weights = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
    for index, weight in enumerate(weights):
        if index:
            x, y = (F.avg_pool2d(image, 2, ceil_mode=True) for image in (x, y))
        m1, m2 = mean(x), mean(y)
        v1, v2, cov = mean(x * x) - m1 * m1, mean(y * y) - m2 * m2, mean(x * y) - m1 * m2
        structure = (2 * cov + 9e-4) / (v1 + v2 + 9e-4)
        luminance = (2 * m1 * m2 + 1e-4) / (m1 * m1 + m2 * m2 + 1e-4)
        result = result * (luminance * structure if index == 4 else structure).mean((2, 3)) ** weight
    return 1 - result.mean(1)


@pytest.mark.parametrize("shape", [(2, 3, 32, 32), (2, 1, 28, 28), (1, 4, 11, 40), (2, 2, 57, 23)])
@pytest.mark.parametrize("size", [1.0, 0.05])
@pytest.mark.parametrize("brightness", [1.0, 0.02], ids=["bright", "dark"])
def test_equals_scikit_image(shape: tuple[int, ...], size: float, brightness: float) -> None:
    # In the dark the constants c1 and c2 decide.
    x = brightness * torch.rand(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = (x + size * direction(x)).clamp(0, 1)
    assert float((SSIM()(x, y) - scikit_image(x, y)).abs().max()) < 1e-6


def reference_images() -> Tensor:
    """(7, 3, 48, 48) float32: noise, smooth, grey, ramp, and flat black, white and grey, where SSIM is most
    delicate."""
    x = F.interpolate(images("ssim", torch.float32), size=48, mode="bilinear")
    return torch.cat([x, *(torch.full_like(x[:1], level) for level in (0.0, 1.0, 0.5))])


@pytest.mark.parametrize("constant", [False, True], ids=["noise", "constant"])
@pytest.mark.parametrize("target", [1e-4, 1e-7, 1e-9])
def test_float32_relative_error_is_below_one_in_a_thousand(target: float, constant: bool) -> None:
    x = reference_images()
    step = torch.ones_like(x) if constant else direction(x)
    step = torch.where(x == 1, -step.abs(), step) if constant else step
    # 1 - SSIM grows with the square of the perturbation: scale each image to the target.
    trial = SSIM()(x.double(), x.double() + 1e-6 * step.double())
    y = x + 1e-6 * step * (target / trial).sqrt().float().view(-1, 1, 1, 1)
    exact, exact_gradient = SSIM().bind(x.double()).value_and_grad(y.double())
    assert 0.02 * target < float(exact.min()) and float(exact.max()) < 50 * target  # the float32 grid moves y a little
    value, gradient = SSIM().bind(x).value_and_grad(y)
    assert float((value / exact - 1).abs().max()) < 1e-3
    assert float((SSIM()(x, y) / exact - 1).abs().max()) < 1e-3
    assert relative(gradient - exact_gradient, exact_gradient) < 1e-3


def test_window_and_its_adjoint() -> None:
    generator = torch.Generator().manual_seed(2)
    x = torch.rand(2, 3, 75, 50, generator=generator, dtype=torch.float64)
    z = torch.rand(2, 3, 40, 65, generator=generator, dtype=torch.float64)
    offsets = torch.arange(11, dtype=torch.float64) - 5
    line = torch.exp(-(offsets**2) / (2 * 1.5**2))
    window = (line[:, None] * line / line.sum() ** 2).expand(3, 1, 11, 11)
    assert torch.allclose(blur(x).mT, F.conv2d(x, window, groups=3), atol=1e-14)
    assert float((blur(x) * z).sum()) == pytest.approx(float((x * blur_adjoint(z)).sum()), rel=1e-12)


@pytest.mark.parametrize("shape", [(2, 3, 177, 177), (1, 1, 190, 181)])
def test_ms_ssim_equals_the_textbook(shape: tuple[int, ...]) -> None:
    x = torch.rand(shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    for size in (0.5, 0.01):
        y = (x + size * direction(x)).clamp(0, 1)
        assert float((MSSSIM()(x, y) - textbook_ms_ssim(x, y)).abs().max()) < 1e-12


def test_ms_ssim_keeps_its_digits_in_float32() -> None:
    x = F.interpolate(images("ssim", torch.float32), size=180, mode="bilinear")
    y = x + 1e-4 * direction(x)
    exact, exact_gradient = MSSSIM().bind(x.double()).value_and_grad(y.double())
    value, gradient = MSSSIM().bind(x).value_and_grad(y)
    assert float(exact.min()) < 1e-6
    assert float((value / exact - 1).abs().max()) < 1e-3
    assert relative(gradient - exact_gradient, exact_gradient) < 1e-3


def test_ms_ssim_of_opposed_images_is_one_with_zero_gradient() -> None:
    x = torch.rand(1, 3, 177, 177, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    value, gradient = MSSSIM().bind(x).value_and_grad(1 - x)
    assert float(value) == 1 and gradient.eq(0).all()


def test_too_small_or_not_an_image() -> None:
    with pytest.raises(BadInput, match="window of 11 x 11 pixels, and these images are 10 x 30"):
        distances.get("ssim")(torch.zeros(1, 3, 10, 30), torch.zeros(1, 3, 10, 30))
    with pytest.raises(BadInput, match=r"shape \(B, C, H, W\), not \(4, 28, 28\)"):
        distances.get("ssim")(torch.zeros(4, 28, 28), torch.zeros(4, 28, 28))
    with pytest.raises(BadInput, match="at least 177 x 177 pixels, and these are 176 x 300"):
        distances.get("ms-ssim")(torch.zeros(1, 3, 176, 300), torch.zeros(1, 3, 176, 300))
    assert distances.get("ssim")(torch.zeros(1, 1, 11, 11), torch.zeros(1, 1, 11, 11)).eq(0).all()
    assert distances.get("ms-ssim")(torch.zeros(1, 1, 177, 177), torch.zeros(1, 1, 177, 177)).eq(0).all()
