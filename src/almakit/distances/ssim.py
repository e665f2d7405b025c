"""Structural similarity, as 1 - SSIM and 1 - MS-SSIM, without the cancellation that makes the textbook form noise below
1e-6 in float32."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import BadInput
from .base import Bound, Distance
from .gaussian import WINDOW, blur, blur_adjoint

_C1, _C2 = 0.01**2, 0.03**2
_SCALE_WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
_SMALLEST_MULTI_SCALE = 16 * WINDOW + 1


class _Terms(NamedTuple):
    """1 - luminance, 1 - contrast * structure, their denominators, and the windowed mean of y - x; ``local`` is y - x
    around its own mean.

    ``local`` is (B, C, H, W), the rest (B, C, W - 10, H - 10).
    """

    a: Tensor
    b: Tensor
    luminance: Tensor
    structure: Tensor
    mean: Tensor
    local: Tensor
    local_mean: Tensor


class _Reference:
    """Window statistics of ``x`` (B, C, H, W), and 1 - luminance, 1 - contrast * structure of another image against it.

    With d = y - x and G the window, A = (G*d)**2 / (mu1**2 + mu2**2 + c1) and B = (G*d**2 - (G*d)**2) / (s1**2 + s2**2
    + c2): the luminance term is 1 - A, contrast times structure is 1 - B, and 1 - SSIM = A + B - A B. Nothing near 1 is
    subtracted from 1.
    """

    def __init__(self, x: Tensor):
        self.x = x
        # Variances do not change with a shift; around the mean of each channel they lose fewer digits.
        middle = x.mean((2, 3), keepdim=True)
        self.centred = x - middle
        self.mean = blur(self.centred)
        self.double_variance = 2 * (blur(self.centred.square()) - self.mean.square()) + _C2
        self.level = self.mean + middle
        self.double_level = 2 * self.level.square() + _C1

    def terms(self, step: Tensor) -> _Terms:
        """A and B for ``step`` = y - x (B, C, H, W), and values for their gradient."""
        shift = step.mean((2, 3), keepdim=True)
        local = step - shift
        local_mean = blur(local)
        mean = local_mean + shift
        spread = blur(local.square()) - local_mean.square()
        luminance = self.double_level + mean * (2 * self.level + mean)
        structure = self.double_variance + 2 * (blur(self.centred * local) - self.mean * local_mean) + spread
        return _Terms(mean.square() / luminance, spread / structure, luminance, structure, mean, local, local_mean)

    def take(self, rows: Tensor) -> _Reference:
        taken = object.__new__(_Reference)
        for name, value in vars(self).items():
            setattr(taken, name, value[rows])
        return taken


class _SSIMBound(Bound):
    def __init__(self, distance: Distance, x: Tensor, reference: _Reference | None = None):
        super().__init__(distance, x)
        self.reference = _Reference(x) if reference is None else reference

    def __call__(self, y: Tensor) -> Tensor:
        terms = self.reference.terms(y - self.x)
        a, b = terms.a, terms.b
        return (a + b - a * b).mean((1, 2, 3))

    @torch.no_grad()
    def value_and_grad(self, y: Tensor) -> tuple[Tensor, Tensor]:
        reference, terms = self.reference, self.reference.terms(y - self.x)
        a, b, mean = terms.a, terms.b, terms.mean
        value = (a + b - a * b).mean((1, 2, 3))
        # gradients in the three windowed means G*d, G*d**2 and G*(x d), each then pulled back through the window
        inner = (1 - a) / terms.structure
        spread = inner * (1 - b)
        covariance = -2 * inner * b
        first = (
            2 * (1 - b) / terms.luminance * (mean - a * (reference.level + mean))
            - 2 * terms.local_mean * spread
            - reference.mean * covariance
        )
        gradient = (
            blur_adjoint(first) + 2 * terms.local * blur_adjoint(spread) + reference.centred * blur_adjoint(covariance)
        )
        gradient = gradient / a[0].numel()
        return value, gradient

    def take(self, rows: Tensor) -> Bound:
        return _SSIMBound(self.distance, self.x[rows], self.reference.take(rows))


class SSIM(Distance):
    """1 - SSIM, averaged over windows and channels.

    SSIM = mean of (2 mu1 mu2 + c1)(2 s12 + c2) / ((mu1^2 + mu2^2 + c1)(s1^2 + s2^2 + c2)), Gaussian window 11 x 11
    with sigma 1.5, c1 = 0.01^2, c2 = 0.03^2, only windows that lie inside the image (Wang, Bovik, Sheikh, Simoncelli
    2004, eq. 13); colour images: the mean over channels. Equal to scikit-image's ``structural_similarity`` with
    ``gaussian_weights`` and without ``use_sample_covariance``.
    """

    name, degree, about = "ssim", 2, "1 - structural similarity, mean over channels, 11 x 11 Gaussian window"
    first_step = {"paper": 3e-5, "scripts": 1e-4}

    def check(self, x: Tensor) -> None:
        if x.ndim != 4:
            raise BadInput(f"{self.name} compares images of shape (B, C, H, W), not {tuple(x.shape)}.")
        if min(x.shape[2:]) < WINDOW:
            raise BadInput(
                f"{self.name} looks through a window of {WINDOW} x {WINDOW} pixels, and these images are {x.shape[2]} "
                f"x {x.shape[3]}: enlarge them, or choose another distance, such as l2."
            )

    def bind(self, x: Tensor) -> Bound:
        self.check(x)
        return _SSIMBound(self, x)


class _MSSSIMBound(Bound):
    def __init__(self, distance: Distance, x: Tensor, scales: list[_Reference] | None = None):
        super().__init__(distance, x)
        if scales is None:
            scales = [_Reference(x)]
            for _ in _SCALE_WEIGHTS[1:]:
                scales.append(_Reference(_halve(scales[-1].x)))
        self.scales = scales

    def __call__(self, y: Tensor) -> Tensor:
        step, logarithm, vanishes = y - self.x, torch.zeros((), dtype=y.dtype, device=y.device), None
        for index, (scale, weight) in enumerate(zip(self.scales, _SCALE_WEIGHTS, strict=True)):
            step = (
                _halve(step) if index else step
            )  # averaging is linear: the difference of the halves is half the difference
            terms = scale.terms(step)
            a, b = terms.a, terms.b
            loss = (a + b - a * b if index == len(_SCALE_WEIGHTS) - 1 else b).mean((2, 3))  # (B, C)
            # A negative similarity has no power; it counts as zero, which makes the product zero and the loss one.
            gone = loss >= 1
            logarithm = logarithm + weight * torch.log1p(-loss.masked_fill(gone, 0))
            vanishes = gone if vanishes is None else vanishes | gone
        assert vanishes is not None
        return (-torch.expm1(logarithm)).masked_fill(vanishes, 1).mean(1)

    def take(self, rows: Tensor) -> Bound:
        return _MSSSIMBound(self.distance, self.x[rows], [scale.take(rows) for scale in self.scales])


def _halve(images: Tensor) -> Tensor:
    """(B, C, H, W) at half the resolution; an odd last row or column is averaged over what there is."""
    return F.avg_pool2d(images, 2, ceil_mode=True)


class MSSSIM(SSIM):
    """1 - MS-SSIM over five scales, averaged over channels.

    MS-SSIM = l_5^w_5 * product over j of cs_j^w_j with the means of luminance and contrast-structure at scale j, each
    scale half the one before, w = (.0448, .2856, .3001, .2363, .1333) (Wang, Simoncelli, Bovik 2003, eq. 7). Computed
    as -expm1(sum w_j log1p(-(1 - cs_j))), so that small losses keep their digits. A negative mean cs_j counts as zero:
    the loss is then 1, with zero gradient.
    """

    name, about = "ms-ssim", "1 - multi-scale structural similarity, five scales, images of at least 177 pixels"
    first_step = {}

    def check(self, x: Tensor) -> None:
        super().check(x)
        if min(x.shape[2:]) < _SMALLEST_MULTI_SCALE:
            raise BadInput(
                f"{self.name} halves the images four times and needs at least {_SMALLEST_MULTI_SCALE} x "
                f"{_SMALLEST_MULTI_SCALE} pixels, "
                f"and these are {x.shape[2]} x {x.shape[3]}: choose ssim, or larger images."
            )

    def bind(self, x: Tensor) -> Bound:
        self.check(x)
        return _MSSSIMBound(self, x)
