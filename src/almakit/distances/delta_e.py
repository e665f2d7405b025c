"""The CIEDE2000 colour difference of pairs of CIELAB colours, and its gradient in closed form.

Sharma, Wu, Dalal: The CIEDE2000 color-difference formula, Color Research and Application 30 (2005). No hue angle is
subtracted from another: with chroma vectors v1 and v2, both chroma and hue differences follow from v2 - v1, the mean
hue is the direction of the bisector, and the hue functions are polynomials in its cosine and sine. So colours that
nearly agree lose no digits, and grey needs no special case.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import BadInput

# Added to squared chromas, so that grey divides by no zero: far below any visible one, far above float32's underflow.
_TINY = 1e-24
_DEGREE = math.pi / 180
_COS30, _SIN30 = math.cos(30 * _DEGREE), math.sin(30 * _DEGREE)
_COS6, _SIN6 = math.cos(6 * _DEGREE), math.sin(6 * _DEGREE)
_COS63, _SIN63 = math.cos(63 * _DEGREE), math.sin(63 * _DEGREE)


def delta_e00(lab1: Tensor, lab2: Tensor) -> Tensor:
    """The CIEDE2000 difference, (N, ...), of the CIELAB colours ``lab1`` and ``lab2``, (N, 3, ...) each; gradient zero
    where they agree.

    dE00**2 = (dL'/S_L)**2 + (dC'/S_C)**2 + (dH'/S_H)**2 + R_T (dC'/S_C) (dH'/S_H), with k_L = k_C = k_H = 1 (Sharma et
    al. 2005).
    """
    if lab1.shape != lab2.shape or lab1.ndim < 2 or lab1.shape[1] != 3:
        raise BadInput(
            f"delta_e00 compares two tensors of one shape (N, 3, ...), not {tuple(lab1.shape)} with "
            f"{tuple(lab2.shape)}."
        )
    (lightness, a, b), (d_lightness, d_a, d_b) = lab1.unbind(1), (lab2 - lab1).unbind(1)
    return safe_sqrt(ColorPair(lightness, a, b, d_lightness, d_a, d_b).squared)


def safe_sqrt(squares: Tensor) -> Tensor:
    """The square root, whose gradient at zero is zero instead of infinite."""
    zero = squares == 0
    return squares.masked_fill(zero, 1).sqrt().masked_fill(zero, 0)


def _chroma(a: Tensor, b: Tensor) -> Tensor:
    return (a.square() + b.square() + _TINY).sqrt()


def _seventh(chroma: Tensor) -> tuple[Tensor, Tensor]:
    """sqrt(C**7 / (C**7 + 25**7)) and 1 + (C/25)**7."""
    ratio = chroma / 25
    half = ratio.square() * ratio * ratio.sqrt()
    whole = 1 + half.square()
    return half / whole.sqrt(), whole


class ColorPair:
    """CIEDE2000 between colours (L, a, b) and (L + dL, a + da, b + db), tensors of one shape; ``squared`` is dE00
    squared.

    Names follow Sharma: a prime is dropped (``a1`` is a'_1), the plain CIELAB quantities are called ``plain``.
    """

    def __init__(self, lightness: Tensor, plain_a1: Tensor, b1: Tensor, d_lightness: Tensor, d_a: Tensor, d_b: Tensor):
        self.plain_a1, self.b1 = plain_a1, b1
        self.plain_a2, self.b2 = plain_a1 + d_a, b1 + d_b
        self.plain_c2 = _chroma(self.plain_a2, self.b2)
        self.plain_mean = (_chroma(plain_a1, b1) + self.plain_c2) / 2
        self.plain_seventh, self.plain_whole = _seventh(self.plain_mean)
        self.stretch = 1.5 - 0.5 * self.plain_seventh  # 1 + G
        self._chroma_and_hue(d_a * self.stretch, d_b)
        self._mean_hue()

        self.centred = lightness + (d_lightness / 2 - 50)
        self.root_l = (20 + self.centred.square()).sqrt()
        self.s_l = 1 + 0.015 * self.centred.square() / self.root_l
        self.s_c = 1 + 0.045 * self.mean_c
        self.s_h = 1 + 0.015 * self.mean_c * self.t
        self.seventh, self.whole = _seventh(self.mean_c)
        self.sine = -2 * torch.sin(2 * self.theta)
        self.r_t = self.sine * self.seventh
        self.l, self.c, self.h = d_lightness / self.s_l, self.d_c / self.s_c, self.d_h / self.s_h
        # dH**2 = |v2 - v1|**2 - dC**2: unlike the square of dH it has its gradient also where a chroma vanishes, as it
        # does in black
        self.h_squared = (self.d_a.square() + self.d_b.square() - self.d_c.square()) / self.s_h.square()
        self.squared = self.l.square() + self.c.square() + self.h_squared + self.r_t * self.c * self.h

    def _chroma_and_hue(self, d_a: Tensor, d_b: Tensor) -> None:
        """dC' and dH' from the stretched difference of the chroma vectors, without cancellation."""
        self.d_a, self.d_b = d_a, d_b
        a1, a2, b1, b2 = self.plain_a1 * self.stretch, self.plain_a2 * self.stretch, self.b1, self.b2
        self.c1, self.c2 = _chroma(a1, b1), _chroma(a2, b2)
        self.mean_c = (self.c1 + self.c2) / 2
        self.d_c = (d_a * (a1 + a2) + d_b * (b1 + b2)) / (2 * self.mean_c)
        self.cos1, self.sin1, self.cos2, self.sin2 = a1 / self.c1, b1 / self.c1, a2 / self.c2, b2 / self.c2
        # v1 x v2 = v1 x d = v2 x d; the shorter of v1 and v2 keeps the product exact when one colour is nearly grey
        shorter = (self.c1 <= self.c2).to(a1.dtype)
        cross = (shorter * a1 + (1 - shorter) * a2) * d_b - (shorter * b1 + (1 - shorter) * b2) * d_a
        dot = a1 * a2 + b1 * b2
        self.acute = (dot >= 0).to(dot.dtype)
        # Opposite hues: the smaller hue angle counts as the first, so that the mean lies a quarter turn after it.
        first_above = (b1 > 0) | ((b1 == 0) & (a1 > 0))
        self.turn = (((cross > 0) | ((cross == 0) & first_above)).to(dot.dtype) * 2 - 1) * (1 - self.acute)
        # With K = C1 C2 and the angle d: larger = sqrt(K) max(cos(d/2), sin(d/2)); dH = 2 sqrt(K) sin(d/2), and cross =
        # K sin(d).
        larger = ((self.c1 * self.c2 + (2 * self.acute - 1) * dot) / 2).clamp(min=_TINY / 2).sqrt()
        # a grey has no hue to differ: dH is a root of its chroma, zero there, and its infinite slope is left out
        coloured = (torch.minimum(self.c1, self.c2) > math.sqrt(_TINY) * 1.01).to(dot.dtype)
        quotient = coloured * cross / larger
        self.d_h = self.acute * quotient + 2 * self.turn * larger
        self.d_h_slope = (
            self.acute * coloured * larger + self.turn * quotient / 2
        )  # sqrt(K) cos(d/2), the derivative of dH in d

    def _mean_hue(self) -> None:
        """T and the rotation angle theta, from the bisector of the two hues (for an obtuse angle, from the normal of
        their difference)."""
        x = self.acute * (self.cos1 + self.cos2) + self.turn * (self.sin2 - self.sin1)
        y = self.acute * (self.sin1 + self.sin2) + self.turn * (self.cos1 - self.cos2)
        x = x + ((x == 0) & (y == 0)).to(x.dtype)  # two greys: hue zero, which nothing depends on
        length = (x.square() + y.square()).sqrt()
        cos, sin = x / length, y / length
        cos2, sin2 = 1 - 2 * sin.square(), 2 * sin * cos
        cos3, sin3 = cos * cos2 - sin * sin2, sin * cos2 + cos * sin2
        cos4, sin4 = 1 - 2 * sin2.square(), 2 * sin2 * cos2
        self.t = (
            1
            - 0.17 * (_COS30 * cos + _SIN30 * sin)
            + 0.24 * cos2
            + 0.32 * (_COS6 * cos3 - _SIN6 * sin3)
            - 0.20 * (_COS63 * cos4 + _SIN63 * sin4)
        )
        self.waves = (cos, sin, sin2, cos3, sin3, cos4, sin4)
        hue = torch.atan2(sin, cos)
        hue = hue + 2 * math.pi * (hue < 0).to(hue.dtype)
        self.eta = (hue - 275 * _DEGREE) / (25 * _DEGREE)
        self.theta = 30 * _DEGREE * torch.exp(-self.eta.square())

    def gradient(self) -> tuple[Tensor, Tensor, Tensor]:
        """The gradient of ``squared`` in L, a and b of the second colour."""
        x = self.centred
        s_l_slope = (
            0.015 * x * (40 + x.square()) / (2 * self.root_l * self.root_l.square())
        )  # in L, half of that in the mean
        g_l = 2 * self.l * (1 - self.l * s_l_slope) / self.s_l

        g_rotation = self.c * self.h
        weight_h = 1 / self.s_h.square()
        g_dc = (2 * self.c + self.r_t * self.h) / self.s_c  # by c and the rotation term; h_squared adds its own below
        g_dh = self.r_t * self.c / self.s_h  # by the rotation term alone
        g_sh = -(2 * self.h_squared + self.r_t * g_rotation) / self.s_h
        cos, sin, sin2, cos3, sin3, cos4, sin4 = self.waves
        t_slope = (
            0.17 * (_COS30 * sin - _SIN30 * cos)
            - 0.48 * sin2
            - 0.96 * (_COS6 * sin3 + _SIN6 * cos3)
            + 0.80 * (_COS63 * sin4 - _SIN63 * cos4)
        )
        theta_slope = self.theta * self.eta * (-2 / (25 * _DEGREE))
        # half of each, since the means move half as fast as the second colour
        half_hue = (
            0.015 * g_sh * self.mean_c * t_slope
            - 4 * g_rotation * self.seventh * torch.cos(2 * self.theta) * theta_slope
        ) / 2
        half_mean = (
            -0.045 * g_dc * self.c
            + 0.015 * g_sh * self.t
            + g_rotation * self.sine * 3.5 * self.seventh / (self.mean_c * self.whole)
        ) / 2
        hue_pull, chroma_pull = g_dh * self.d_h_slope, g_dh * self.d_h / 2
        g_dc = g_dc - 2 * self.d_c * weight_h
        g_c1, g_c2 = half_mean - g_dc + chroma_pull / self.c1, half_mean + g_dc + chroma_pull / self.c2
        g_hue1, g_hue2 = (half_hue - hue_pull) / self.c1, (half_hue + hue_pull) / self.c2
        g_a1 = g_c1 * self.cos1 - g_hue1 * self.sin1 - 2 * self.d_a * weight_h
        g_a2 = g_c2 * self.cos2 - g_hue2 * self.sin2 + 2 * self.d_a * weight_h
        g_b2 = g_c2 * self.sin2 + g_hue2 * self.cos2 + 2 * self.d_b * weight_h
        # the stretch 1 + G depends on the plain chroma of both colours
        seventh_slope = 3.5 * self.plain_seventh / (self.plain_mean * self.plain_whole)
        g_plain = -0.25 * (g_a1 * self.plain_a1 + g_a2 * self.plain_a2) * seventh_slope / self.plain_c2
        return g_l, self.stretch * g_a2 + g_plain * self.plain_a2, g_b2 + g_plain * self.b2
