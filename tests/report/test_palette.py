"""The colours are visible on their background and told apart with every common kind of colour vision."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from skimage.color import deltaE_ciede2000, rgb2lab

from almakit.report import palette

# Machado, Oliveira, Fernandes, IEEE TVCG 2009: severity 1.0, on linear RGB.
VISION = {
    "normal": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritan": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
THEMES = {"light": (palette.SERIES_LIGHT, palette.LIGHT), "dark": (palette.SERIES_DARK, palette.DARK)}


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one: str, two: str) -> float:
    low, high = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (one, two))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", THEMES)
def test_contrast(theme: str) -> None:
    series, named = THEMES[theme]
    assert min(contrast(colour, named["card"]) for colour in series) >= 3
    for ground in ("card", "page", "inset"):
        assert contrast(named["text"], named[ground]) >= 7
        assert contrast(named["muted"], named[ground]) >= 4.5
    for kind in ("good", "warn", "bad", "accent"):
        assert contrast(named[kind], named[f"{kind}-soft"]) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("vision", VISION)
def test_every_two_colours_differ(theme: str, vision: str) -> None:
    def seen(colour: str) -> np.ndarray:
        values = np.clip(VISION[vision] @ linear(colour), 0, 1)
        return rgb2lab(
            np.where(values <= 0.0031308, values * 12.92, 1.055 * values ** (1 / 2.4) - 0.055).reshape(1, 1, 3)
        )

    series, _ = THEMES[theme]
    assert min(float(deltaE_ciede2000(seen(one), seen(two))[0, 0]) for one, two in combinations(series, 2)) >= 10


def test_thirty_five_methods_are_told_apart() -> None:
    assert len({palette.slot(method) for method in range(35)}) == 35
    assert [palette.dash(rank, 3) for rank in range(3)] == ["solid", "dashed", "dotted"]
    assert palette.dash(0, 1) == "solid" and palette.dash(1, 2) == "dotted"
