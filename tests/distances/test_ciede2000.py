"""CIEDE2000: Sharma's pairs, scikit-image, the paper's scaling, and float32 near zero."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from distance_samples import direction, images, relative
from skimage.color import deltaE_ciede2000, rgb2lab
from torch import Tensor

from almakit import distances
from almakit.distances.base import Bound
from almakit.distances.ciede2000 import CIEDE2000, CIEDE2000Paper, delta_e00
from almakit.distances.delta_e import ColorPair
from almakit.distances.lab import SRGB_D65, LabReference
from almakit.errors import BadInput

# L1 a1 b1  L2 a2 b2  dE00, from Sharma, Wu, Dalal 2005, table 1
SHARMA = torch.tensor(
    [
        (50.0000, 2.6772, -79.7751, 50.0000, 0.0000, -82.7485, 2.0425),
        (50.0000, 3.1571, -77.2803, 50.0000, 0.0000, -82.7485, 2.8615),
        (50.0000, 2.8361, -74.0200, 50.0000, 0.0000, -82.7485, 3.4412),
        (50.0000, -1.3802, -84.2814, 50.0000, 0.0000, -82.7485, 1.0000),
        (50.0000, -1.1848, -84.8006, 50.0000, 0.0000, -82.7485, 1.0000),
        (50.0000, -0.9009, -85.5211, 50.0000, 0.0000, -82.7485, 1.0000),
        (50.0000, 0.0000, 0.0000, 50.0000, -1.0000, 2.0000, 2.3669),
        (50.0000, -1.0000, 2.0000, 50.0000, 0.0000, 0.0000, 2.3669),
        (50.0000, 2.4900, -0.0010, 50.0000, -2.4900, 0.0009, 7.1792),
        (50.0000, 2.4900, -0.0010, 50.0000, -2.4900, 0.0010, 7.1792),
        (50.0000, 2.4900, -0.0010, 50.0000, -2.4900, 0.0011, 7.2195),
        (50.0000, 2.4900, -0.0010, 50.0000, -2.4900, 0.0012, 7.2195),
        (50.0000, -0.0010, 2.4900, 50.0000, 0.0009, -2.4900, 4.8045),
        (50.0000, -0.0010, 2.4900, 50.0000, 0.0010, -2.4900, 4.8045),
        (50.0000, -0.0010, 2.4900, 50.0000, 0.0011, -2.4900, 4.7461),
        (50.0000, 2.5000, 0.0000, 50.0000, 0.0000, -2.5000, 4.3065),
        (50.0000, 2.5000, 0.0000, 73.0000, 25.0000, -18.0000, 27.1492),
        (50.0000, 2.5000, 0.0000, 61.0000, -5.0000, 29.0000, 22.8977),
        (50.0000, 2.5000, 0.0000, 56.0000, -27.0000, -3.0000, 31.9030),
        (50.0000, 2.5000, 0.0000, 58.0000, 24.0000, 15.0000, 19.4535),
        (50.0000, 2.5000, 0.0000, 50.0000, 3.1736, 0.5854, 1.0000),
        (50.0000, 2.5000, 0.0000, 50.0000, 3.2972, 0.0000, 1.0000),
        (50.0000, 2.5000, 0.0000, 50.0000, 1.8634, 0.5757, 1.0000),
        (50.0000, 2.5000, 0.0000, 50.0000, 3.2592, 0.3350, 1.0000),
        (60.2574, -34.0099, 36.2677, 60.4626, -34.1751, 39.4387, 1.2644),
        (63.0109, -31.0961, -5.8663, 62.8187, -29.7946, -4.0864, 1.2630),
        (61.2901, 3.7196, -5.3901, 61.4292, 2.2480, -4.9620, 1.8731),
        (35.0831, -44.1164, 3.7933, 35.0232, -40.0716, 1.5901, 1.8645),
        (22.7233, 20.0904, -46.6940, 23.0331, 14.9730, -42.5619, 2.0373),
        (36.4612, 47.8580, 18.3852, 36.2715, 50.5065, 21.2231, 1.4146),
        (90.8027, -2.0831, 1.4410, 91.1528, -1.6435, 0.0447, 1.4441),
        (90.9257, -0.5406, -0.9208, 88.6381, -0.8985, -0.7239, 1.5381),
        (6.7747, -0.2908, -2.4247, 5.8714, -0.0985, -2.2286, 0.6377),
        (2.0776, 0.0795, -1.1350, 0.9033, -0.0636, -0.5514, 0.9082),
    ],
    dtype=torch.float64,
)


def awkward(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Random images, and black, white, grey and dark ones on either side."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.rand(6, 3, 12, 12, generator=generator, dtype=torch.float64) for _ in range(2))
    x[1], y[2], x[3], y[4] = 0, 1, x[3, :1].clone(), y[4, :1].clone()
    x[5], y[5] = x[5] * 0.05, y[5] * 0.05
    return x.to(dtype), y.to(dtype)


def textbook(x: Tensor, y: Tensor, matrix: list[list[float]], white: list[float]) -> Tensor:
    """The formula as Sharma prints it, with hue angles: the independent reference for values and, by autograd,
    gradients."""

    def lab(rgb: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        linear = torch.where(rgb > 0.04045, ((rgb.clamp(min=0.01) + 0.055) / 1.055) ** 2.4, rgb / 12.92)
        t = torch.einsum("ij,bjhw->bihw", rgb.new_tensor(matrix), linear) / rgb.new_tensor(white).view(1, 3, 1, 1)
        f = torch.where(t > (6 / 29) ** 3, t.clamp(min=1e-4) ** (1 / 3), t / (3 * (6 / 29) ** 2) + 4 / 29)
        return 116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])

    (l1, a1, b1), (l2, a2, b2) = lab(x), lab(y)
    mean = (torch.hypot(a1, b1) + torch.hypot(a2, b2)) / 2
    g = 0.5 * (1 - (mean**7 / (mean**7 + 25.0**7)).sqrt())
    a1, a2 = (1 + g) * a1, (1 + g) * a2
    c1, c2 = torch.hypot(a1, b1), torch.hypot(a2, b2)
    h1, h2 = torch.atan2(b1, a1) % (2 * math.pi), torch.atan2(b2, a2) % (2 * math.pi)
    far = ((h2 - h1).abs() > math.pi).to(x.dtype)
    dh = h2 - h1 - 2 * math.pi * far * (h2 - h1).sign()
    hue = (h1 + h2) / 2 + math.pi * far * (2 * math.pi - h1 - h2).sign()
    dl, dc, dhue = l2 - l1, c2 - c1, 2 * (c1 * c2).sqrt() * torch.sin(dh / 2)
    c, centred = (c1 + c2) / 2, (l1 + l2) / 2 - 50
    degrees = math.pi / 180
    t = (
        1
        - 0.17 * torch.cos(hue - 30 * degrees)
        + 0.24 * torch.cos(2 * hue)
        + 0.32 * torch.cos(3 * hue + 6 * degrees)
        - 0.20 * torch.cos(4 * hue - 63 * degrees)
    )
    theta = 30 * degrees * torch.exp(-(((hue / degrees - 275) / 25) ** 2))
    rotation = -torch.sin(2 * theta) * 2 * (c**7 / (c**7 + 25.0**7)).sqrt()
    u, v, w = dl / (1 + 0.015 * centred**2 / (20 + centred**2).sqrt()), dc / (1 + 0.045 * c), dhue / (1 + 0.015 * c * t)
    return (u**2 + v**2 + w**2 + rotation * v * w).flatten(1).sum(1).sqrt()


CORRECT = (
    [[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]],
    [0.95047, 1.0, 1.08883],
)
PAPER = (
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]],
    [95.0489, 100.0, 108.884],
)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 5.1e-5), (torch.float32, 1e-4)])
def test_sharmas_34_pairs(dtype: torch.dtype, tolerance: float) -> None:
    # In float32 the three pairs with hues 180 degrees and a few 1e-5 apart stand for their float32 roundings, which
    # still fall on the right side.
    got = delta_e00(SHARMA[:, :3].to(dtype), SHARMA[:, 3:6].to(dtype))
    assert len(SHARMA) == 34 and got.shape == (34,) and got.dtype == dtype
    assert float((got.double() - SHARMA[:, 6]).abs().max()) < tolerance


def test_sharmas_pairs_are_symmetric() -> None:
    there, back = delta_e00(SHARMA[:, :3], SHARMA[:, 3:6]), delta_e00(SHARMA[:, 3:6], SHARMA[:, :3])
    assert float((there - back).abs().max()) < 1e-9


def test_equals_scikit_image() -> None:
    x, y = awkward()
    lab_x, lab_y = (rgb2lab(images.permute(0, 2, 3, 1).numpy()) for images in (x, y))
    pixels = deltaE_ciede2000(lab_x, lab_y)
    ours = delta_e00(*(torch.from_numpy(np.moveaxis(lab, -1, 1)) for lab in (lab_x, lab_y)))
    assert float(np.abs(ours.numpy() - pixels).max()) < 1e-9
    reference = LabReference(x, SRGB_D65)
    gap = np.abs(torch.stack((reference.lightness, reference.a, reference.b), -1).numpy() - lab_x)
    # In the dark scikit-image rounds CIELAB's constants (7.787 for 841/108); above, nothing differs.
    assert float(gap[x.amin(1).numpy() > 0.2].max()) < 1e-9 and float(gap.max()) < 2e-4
    each_x, each_y = (images.permute(0, 2, 3, 1).reshape(-1, 3, 1, 1) for images in (x, y))
    assert float(np.abs(CIEDE2000()(each_x, each_y).numpy() - pixels.reshape(-1)).max()) < 1e-4
    values = np.sqrt((pixels**2).sum((1, 2)))
    assert float(np.abs(CIEDE2000()(x, y).numpy() / values - 1).max()) < 1e-5


def test_paper_variant_scales_xyz_as_the_paper_does() -> None:
    white = LabReference(torch.ones(1, 3, 1, 1, dtype=torch.float64), CIEDE2000Paper.space)
    assert float(white.lightness) == pytest.approx(116 * 0.01 ** (1 / 3) - 16, abs=1e-4)  # 8.99
    assert float(LabReference(torch.ones(1, 3, 1, 1, dtype=torch.float64), SRGB_D65).lightness) == pytest.approx(
        100, abs=1e-4
    )
    x, y = (images[:1].clamp(min=0.05) for images in awkward())
    assert float((CIEDE2000Paper()(x, y) / textbook(x, y, *PAPER) - 1).abs().max()) < 1e-12
    assert float((CIEDE2000()(x, y) / CIEDE2000Paper()(x, y))[0]) > 2


@pytest.mark.parametrize(
    ("distance", "constants"), [(CIEDE2000(), CORRECT), (CIEDE2000Paper(), PAPER)], ids=["correct", "paper"]
)
@pytest.mark.parametrize("size", [0.5, 0.02, 1e-3])
@pytest.mark.parametrize(("low", "high"), [(0.05, 0.99), (0.001, 0.04)], ids=["bright", "dark"])
def test_value_and_gradient_equal_the_textbook_by_autograd(
    distance: CIEDE2000, constants: tuple, size: float, low: float, high: float
) -> None:
    # sRGB as printed jumps by 2e-9 at 0.04045, the textbook with it; bright and dark images stay on one side.
    x = low + (high - low) * awkward()[0][:1]
    y = (x + size * (high - low) * direction(x)).clamp(low, high).requires_grad_(True)
    expected = textbook(x, y, *constants)
    (gradient,) = torch.autograd.grad(expected.sum(), y)
    value, ours = distance.bind(x).value_and_grad(y)
    assert relative(value - expected.detach(), expected.detach()) < 1e-10
    assert relative(ours - gradient, gradient) < 1e-9


@pytest.mark.parametrize("distance", [CIEDE2000(), CIEDE2000Paper()], ids=repr)
@pytest.mark.parametrize("size", [1e-2, 1e-4, 1e-6])
def test_float32_is_accurate_near_zero(distance: CIEDE2000, size: float) -> None:
    x = torch.cat([images("ciede2000", torch.float32), awkward(torch.float32)[0]])
    y = (x + size * direction(x)).clamp(0, 1)
    value, gradient = distance.bind(x).value_and_grad(y)
    exact_value, exact_gradient = distance.bind(x.double()).value_and_grad(y.double())
    assert float(((value - exact_value) / exact_value).abs().max()) < 1e-5
    assert relative(gradient - exact_gradient, exact_gradient) < 1e-4


@pytest.mark.parametrize("distance", [CIEDE2000(), CIEDE2000Paper()], ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_finite_everywhere(distance: CIEDE2000, dtype: torch.dtype) -> None:
    x, y = awkward(dtype)
    corners = torch.tensor([0.0, 0.04045, 0.5, 1.0], dtype=dtype)
    for target in (x, y, *(torch.full_like(x, float(value)) for value in corners)):
        for start in (x, target):
            bound = distance.bind(start)
            value, gradient = bound.value_and_grad(target)
            leaf = target.clone().requires_grad_(True)
            (by_autograd,) = torch.autograd.grad(bound(leaf).sum(), leaf)
            assert torch.isfinite(value).all() and torch.isfinite(gradient).all() and torch.isfinite(by_autograd).all()
            if start is target:
                assert value.eq(0).all() and gradient.eq(0).all() and by_autograd.eq(0).all()


@pytest.mark.parametrize("distance", [CIEDE2000(), CIEDE2000Paper()], ids=repr)
def test_gradient_where_a_colour_turns_black(distance: CIEDE2000) -> None:
    """Black has no chroma, and dE00 a faint cone there; its slope is the mean of both sides, not zero. Clipped pixels
    of attacks end up there.

    Back towards x, and from dim colours, where cone and rotation term are a few percent of the slope.
    """
    x = 0.004 * awkward()[0][:1]
    bound, black, along = distance.bind(x), torch.zeros_like(x), x / x.amax()
    value, gradient = bound.value_and_grad(black)
    expected = (bound(1e-7 * along) - bound(-1e-7 * along)) / 2e-7
    assert float((gradient * along).sum()) == pytest.approx(float(expected), rel=1e-3)
    # At the tip of a cone there is no one derivative: autograd's choice and float32's may differ by as much as the cone
    # is steep.
    assert relative(Bound.value_and_grad(bound, black)[1] - gradient, gradient) < 0.05
    single = distance.bind(x.float()).value_and_grad(black.float())
    assert relative(single[0] - value, value) < 1e-5 and relative(single[1] - gradient, gradient) < 0.05


def test_delta_e00_has_zero_gradient_where_colours_agree() -> None:
    lab = SHARMA[:, :3].clone()
    other = lab.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(delta_e00(lab, other).sum(), other)
    assert gradient.eq(0).all()


def test_hue_difference_keeps_its_bound_beside_grey() -> None:
    """|dH'| <= 2 sqrt(C'1 C'2) also in float32, where one colour is all but grey and the cross product nearly
    cancels."""
    generator = torch.Generator().manual_seed(6)
    angle, other = (2 * math.pi * torch.rand(2000, generator=generator) for _ in range(2))
    a, b = 60 * angle.cos(), 60 * angle.sin()
    pair = ColorPair(torch.full_like(a, 50), a, b, torch.zeros_like(a), 1e-6 * other.cos() - a, 1e-6 * other.sin() - b)
    assert bool((pair.d_h.abs() <= 2 * (pair.c1 * pair.c2).sqrt() * (1 + 1e-4)).all())
    swapped = ColorPair(torch.full_like(a, 50), 1e-6 * other.cos(), 1e-6 * other.sin(), torch.zeros_like(a), a, b)
    assert bool((swapped.d_h.abs() <= 2 * (swapped.c1 * swapped.c2).sqrt() * (1 + 1e-4)).all())


def test_only_colour_images() -> None:
    with pytest.raises(BadInput, match=r"\(B, 3, H, W\), not \(2, 1, 8, 8\)"):
        distances.get("ciede2000")(torch.zeros(2, 1, 8, 8), torch.zeros(2, 1, 8, 8))
    with pytest.raises(BadInput, match="one shape"):
        delta_e00(torch.zeros(2, 3), torch.zeros(2, 4))
    with pytest.raises(BadInput, match="float16"):
        distances.get("ciede2000").bind(torch.zeros(1, 3, 4, 4, dtype=torch.float16))
