"""The intervals, which are drawn from closed forms, against plain resampling."""

from __future__ import annotations

import math

import numpy as np
import pytest

from almakit.report.numbers import Bootstrap, percentiles, share
from almakit.wilson import wilson


def resampled(values: np.ndarray, statistic, count: int = 4000) -> tuple[float, float]:
    random = np.random.default_rng(99)
    return percentiles(
        np.array([statistic(values[random.integers(0, len(values), len(values))]) for _ in range(count)])
    )


@pytest.mark.parametrize("size", [7, 8, 60, 301])
def test_median_agrees_with_resampling(size: int) -> None:
    values = np.exp(np.random.default_rng(size).normal(size=size))
    fast, slow = Bootstrap(size, 1, resamples=20000).of_median(values), resampled(values, np.median)
    scale = slow[1] - slow[0]
    assert np.allclose(fast, slow, atol=0.07 * scale)


def test_median_of_the_kept_agrees_with_resampling() -> None:
    random = np.random.default_rng(5)
    values = random.normal(size=80)
    keep = random.random(80) < 0.6
    marked = np.where(keep, values, np.nan)
    fast, slow = Bootstrap(80, 1, resamples=20000).of_median(values, keep), resampled(marked, np.nanmedian)
    assert np.allclose(fast, slow, atol=0.07 * (slow[1] - slow[0]))


def test_shares_have_wilson_intervals() -> None:
    none = share(np.zeros(32), Bootstrap(32))
    assert none["low"] == 0 and none["high"] == pytest.approx(0.1072, abs=1e-4)
    every = share(np.ones(32), Bootstrap(32))
    assert every["high"] == 1 and every["low"] == pytest.approx(1 - 0.1072, abs=1e-4)
    low, high = wilson(0.3, 50)
    for end in (low, high):  # the definition
        assert abs(0.3 - end) == pytest.approx(1.959964 * math.sqrt(end * (1 - end) / 50), rel=1e-9)


def test_records_of_one_image_are_not_independent() -> None:
    """Nine records per image that say the same are one image; nine that say nothing about each other are nine."""
    images = np.repeat(np.arange(40), 9)
    alike = np.repeat((np.arange(40) < 12).astype(np.float64), 9)
    draw = Bootstrap(images.tolist())
    assert share(alike, draw) == share(alike[::9], Bootstrap(40))
    spread = (np.arange(360) % 9 < 3).astype(np.float64)
    assert share(spread, draw)["low"] == wilson(1 / 3, 360)[0]
    assert share(np.zeros(360), draw)["high"] == wilson(0, 40)[1]
    distances = np.repeat(np.exp(np.random.default_rng(1).normal(size=40)), 9)
    low, high = draw.of_median(distances)
    single = Bootstrap(40, resamples=20000).of_median(distances[::9])
    assert np.allclose((low, high), single, atol=0.1 * (single[1] - single[0]))
    assert high - low > 2 * np.subtract(*Bootstrap(360).of_median(distances)[::-1])


def test_infinite_values() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0, math.inf] * 20)
    low, high = Bootstrap(100).of_median(values)
    assert 2 <= low <= 3 <= high <= 4
    mostly = np.where(np.arange(100) < 45, 1.0, math.inf)
    assert Bootstrap(100).of_median(mostly)[1] == math.inf


def test_nothing_to_draw_from() -> None:
    empty = np.array([])
    assert all(math.isnan(end) for end in Bootstrap(0).of_median(empty))
    assert all(math.isnan(end) for end in Bootstrap(3).of_median(np.ones(3), np.zeros(3, dtype=bool)))
