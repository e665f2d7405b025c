"""Pictures of the page: true to the pixels, differences scaled, the choice spread and bounded."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from report.made_runs import MadeAttack, make_run

from almakit.report import pictures, subjects
from almakit.report.page import build


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 5, 7), (1, 1, 1), (3, 64, 33)])
def test_png_holds_the_pixels(shape: tuple[int, ...]) -> None:
    image = np.random.default_rng(0).random(shape).astype(np.float32)
    pixels = pictures.eight_bit(image)
    read = np.asarray(Image.open(io.BytesIO(pictures.png(pixels))))
    assert np.array_equal(read, pixels)
    expected = np.rint(image.astype(np.float64) * 255).astype(np.uint8)
    assert np.array_equal(read, expected[0] if shape[0] == 1 else np.moveaxis(expected, 0, -1))


def test_difference_is_scaled_to_a_full_swing() -> None:
    original = np.full((1, 2, 2), 0.5, dtype=np.float32)
    changed = original.copy()
    changed[0, 0, 0], changed[0, 1, 1] = 0.5 + 2**-8, 0.5 - 2**-9
    picture, largest = pictures.difference(original, changed)
    assert largest == 2**-8
    assert np.array_equal(picture[0, 0], pictures.ABOVE) and np.array_equal(picture[0, 1], pictures.SAME)
    assert np.array_equal(picture[1, 1], np.rint((pictures.SAME + pictures.BELOW) / 2).astype(np.uint8))
    colour, largest = pictures.difference(np.zeros((3, 2, 2)), np.stack([np.eye(2), np.zeros((2, 2)), -np.eye(2)]))
    assert largest == 1 and colour[0, 0].tolist() == [255, 128, 0] and colour[0, 1].tolist() == [128, 128, 128]
    assert pictures.difference(original, original)[1] == 0


def test_choice_is_bounded_and_spread(tmp_path: Path) -> None:
    (subject,) = subjects.load([make_run(tmp_path / "a", 300, (MadeAttack(failing=0.1),), chunk=100)])
    chosen = pictures.choose(subject, 30)
    assert len(chosen) == len(set(chosen)) == 30 and chosen == sorted(chosen)
    rows = subject.columns[0].rows
    found = [rows[place].verified for place in chosen]
    assert 1 <= sum(np.isinf(found)) <= 6
    everything = sorted(record.verified for record in rows.values() if np.isfinite(record.verified))
    finite = [value for value in found if np.isfinite(value)]
    assert min(finite) == everything[0] and max(finite) > everything[int(0.9 * len(everything))]
    assert pictures.choose(subject, 1000) == list(range(300)) and pictures.choose(subject, 0) == []


def test_a_page_keeps_each_picture_once(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", 30, shape=(3, 64, 64))
    data = build(subjects.load([run]), 30)
    assert data["models"][0]["shown"] == len(data["gallery"]) == 30
    assert len(set(data["pictures"])) == len(data["pictures"])
    item = data["gallery"][0]
    stored = np.asarray(Image.open(io.BytesIO(base64.b64decode(data["pictures"][item["original"]].partition(",")[2]))))
    assert np.array_equal(stored, pictures.eight_bit(subjects.load([run])[0].runs[0].originals([item["image"]])[0]))


def test_large_pictures_are_fewer(tmp_path: Path) -> None:
    for side, count in ((8, 20), (256, 6)):
        (subject,) = subjects.load([make_run(tmp_path / str(side), 20, shape=(3, side, side))])
        assert len(build([subject])["gallery"]) == count == pictures.fitting(subject, 20)
    assert len(build([subject], 10)["gallery"]) == 10, "unless the reader asks for more"
