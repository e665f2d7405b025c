"""The arithmetic of a summary. Distances are one per image: 0 for a misclassified clean image, infinite if the attack
failed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ..runs.store.fields import finite
from ..wilson import wilson

Array = NDArray[np.float64]

RESAMPLES = 1000
TIE = 1e-3
"""Distances within one part in a thousand count as equal, which covers float32 rounding and other batch sizes."""
LEVEL = 0.95


def quantile(values: Array, at: float) -> float:
    """The quantile of ``values`` (N,), interpolated linearly; values may be infinite. NaN for an empty array."""
    return float(_quantiles(values[None], at)[0]) if len(values) else float("nan")


def median(values: Array) -> float:
    return quantile(values, 0.5)


def _quantiles(rows: Array, at: float) -> Array:
    """The quantile of each row of ``rows`` (R, N)."""
    place = at * (rows.shape[1] - 1)
    low, high = int(np.floor(place)), int(np.ceil(place))
    parted = np.partition(rows, (low, high), axis=1)
    share = place - low
    below, above = parted[:, low], parted[:, high]
    # Avoids inf - inf and 0 * inf: if the place is a value itself, or both neighbours are equal, no arithmetic is done.
    with np.errstate(invalid="ignore"):
        between = below * (1 - share) + above * share
    return np.where((share == 0) | (below == above), below, between)


def mean(values: Array) -> float:
    return float(values.mean()) if len(values) else float("nan")


def optimality(distances: Array, best: Array, clean_accuracy: float) -> tuple[float, float]:
    """(xi, d_max): xi = 1 - (mean min(d, d_max) - mean d*)/(clean_accuracy d_max - mean d*), with d_max = max d* over
    the images.

    ``best`` (N,) is d*, the smallest known distance of each image, 0 if the clean image is misclassified. An image
    without any adversarial image counts as d_max in both means. The value is 1 for an attack with the smallest known
    distance on every image and 0 for one that finds nothing. NaN if no attack finds anything.
    """
    finite = best[np.isfinite(best)]
    furthest = float(finite.max()) if len(finite) else float("nan")
    if not furthest > 0:
        return float("nan"), furthest
    ideal, here = mean(np.minimum(best, furthest)), mean(np.minimum(distances, furthest))
    scale = clean_accuracy * furthest - ideal
    return (1 - (here - ideal) / scale if scale > 1e-12 * furthest else float("nan")), furthest


class Bootstrap:
    """Percentile intervals from resampling images; the same seed gives the same intervals. Records of one image are
    drawn together.

    If every image has one value, the resampled medians are drawn directly: the middle of n draws from n sorted values
    lies at n times a beta variable, which has exactly the distribution of resampling.

    Args:
        images: number of images with one value each, or the image of each value.
        seed: seed of the resamples.
        resamples: number of resamples.
    """

    def __init__(self, images: int | Sequence[int], seed: int = 0, resamples: int = RESAMPLES):
        groups = np.arange(images) if isinstance(images, int) else np.unique(images, return_inverse=True)[1]
        self.groups: NDArray[np.int64] = groups.astype(np.int64).ravel()
        self.images = int(self.groups.max()) + 1 if len(self.groups) else 0
        self.seed, self.resamples = seed, resamples

    @property
    def several(self) -> bool:
        """Whether an image has more than one value."""
        return self.images < len(self.groups)

    def picks(self) -> Iterator[NDArray[np.int32]]:
        """The resamples, each N images; equal for all attacks, so that ratios of two attacks are paired."""
        generator = np.random.default_rng(self.seed)
        for _ in range(self.resamples):
            yield generator.integers(0, self.images, size=self.images, dtype=np.int32)

    def of_median(self, values: Array, keep: NDArray[np.bool_] | None = None) -> tuple[float, float]:
        """The interval of the median of ``values`` (N,), or of those selected by ``keep`` (N,)."""
        source = np.sort(values if keep is None else values[keep])
        if not len(source):
            return float("nan"), float("nan")
        if self.several:
            return self._over_images(values if keep is None else np.where(keep, values, np.nan), median)
        generator = self._generator(3)
        sizes = generator.binomial(self.images, len(source) / self.images, self.resamples)
        sizes = sizes[sizes > 0]
        if not len(sizes):
            return float("nan"), float("nan")
        # The k-th of m uniform draws is beta(k, m + 1 - k); the next one lies above it like the smallest of the m - k
        # others.
        low = (sizes + 1) // 2
        first = generator.beta(low, sizes + 1 - low)
        others = np.maximum(sizes - low, 1)
        second = np.where(
            sizes % 2 == 1, first, first + (1 - first) * (1 - generator.random(len(sizes)) ** (1 / others))
        )
        below, above = (
            source[np.minimum((place * len(source)).astype(np.int64), len(source) - 1)] for place in (first, second)
        )
        with np.errstate(invalid="ignore"):
            return percentiles(np.where(below == above, below, (below + above) / 2))

    def _over_images(self, values: Array, statistic: Callable[[Array], float]) -> tuple[float, float]:
        """The interval of a statistic of the values of resampled images; NaN marks values that are left out."""
        counts = np.bincount(self.groups)
        order, starts = np.argsort(self.groups, kind="stable"), np.cumsum(counts) - counts
        rows = np.full((self.images, int(counts.max())), np.nan)
        rows[self.groups[order], np.arange(len(order)) - starts[self.groups[order]]] = values[order]
        drawn = np.array([statistic(part[~np.isnan(part)]) for part in (rows[pick] for pick in self.picks())])
        drawn = drawn[~np.isnan(drawn)]
        return percentiles(drawn) if len(drawn) else (math.nan, math.nan)

    def _generator(self, what: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, what))


def percentiles(drawn: Array) -> tuple[float, float]:
    """The interval that contains the share ``LEVEL`` of the drawn values."""
    edge = (1 - LEVEL) / 2
    return quantile(drawn, edge), quantile(drawn, 1 - edge)


def geometric_mean(values: Sequence[float]) -> float:
    """exp(mean log): 0 if a value is 0, infinite if one is infinite and none is 0, NaN for no values."""
    array = np.asarray(values, dtype=np.float64)
    if not len(array) or bool(np.isnan(array).any()):
        return float("nan")
    if bool((array == 0).any()):
        return 0.0
    return float(np.exp(np.log(array).mean()))


Value = dict[str, float | None]
"""A number with its interval, ready for JSON: value, low, high."""


def share(values: Array, draw: Bootstrap) -> Value:
    """The mean of shares (N,), such as zeros and ones, with Wilson's interval."""
    counts = np.bincount(draw.groups).astype(np.float64)
    whole = bool(np.isin(values, (0.0, 1.0)).all())
    return ratio(np.bincount(draw.groups, values).astype(np.float64), counts, len(values) if whole else math.inf)


def ratio(sums: Array, counts: Array, most: float) -> Value:
    """sum(``sums``)/sum(``counts``) over images, each (N,), with Wilson's interval.

    The interval is that of independent draws whose number gives the observed variance between images: at least N, at
    most ``most``.
    """
    total = float(counts.sum())
    if not total:
        return value_of(math.nan, (math.nan, math.nan))
    value = float(sums.sum()) / total
    variance = float(((sums - value * counts) ** 2).sum()) / total**2
    spread = value * (1 - value)
    draws = spread / variance if variance > 0 else math.inf if spread > 0 else 0.0
    return value_of(value, wilson(value, min(max(draws, len(counts)), most)))


def value_of(value: float, interval: tuple[float, float]) -> Value:
    return {"value": finite(value), "low": finite(interval[0]), "high": finite(interval[1])}
