"""The confidence interval of a share."""

from __future__ import annotations

import math

Z = 1.959964  # of a 95 % interval


def wilson(share: float, count: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a ``share`` of ``count``: the two p with |share - p| = Z sqrt(p (1 - p) / count).

    Unlike a resampling interval, it has a positive width for shares of 0 and 1: 0 of 32 gives 0 to 0.107. (Wilson, JASA
    1927.)
    """
    if not count > 0 or math.isnan(share):
        return math.nan, math.nan
    square = Z * Z
    root = Z * math.sqrt(share * (1 - share) / count + square / (4 * count * count))
    low, high = ((share + square / (2 * count) + sign * root) / (1 + square / count) for sign in (-1, 1))
    return (0.0 if share == 0 else max(0.0, low)), (1.0 if share == 1 else min(1.0, high))
