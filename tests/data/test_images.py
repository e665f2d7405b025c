"""Image files in folders: the rules of docs/add-model-and-data.md about several files, sizes and channels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from fuzz import picture_files as made
from PIL import Image

from almakit import data
from almakit.cli.main import main
from almakit.data.coerce import from_arrays
from almakit.errors import BadInput

GREY = np.arange(54, dtype=np.uint8).reshape(6, 9) * 4
COLOUR = np.stack([GREY, 255 - GREY, GREY // 2], -1)
DEEP = GREY.astype(np.uint16) * 257 + 100


def folder(place: Path, *contents: bytes) -> str:
    (place / "class").mkdir()
    for number, content in enumerate(contents):
        (place / "class" / f"{number}.png").write_bytes(content)
    return f"folder:{place}"


def test_16_bit_images_in_colour_and_resized(tmp_path):
    smooth = np.tile(np.linspace(0, 65535, 40).astype(np.uint16), (40, 1))
    uri = folder(tmp_path, made.png(smooth, 16, 0))
    colour = data.load(uri, channels=3).tensors()[0][0]
    assert colour.shape == (3, 40, 40) and torch.equal(colour[0], colour[2])
    small = data.load(uri, size=20).tensors()[0][0]
    by_bytes = tmp_path / "bytes"
    by_bytes.mkdir()
    eight = data.load(folder(by_bytes, made.png(smooth // 257, 8, 0)), size=20).tensors()[0][0]
    assert small.shape == (1, 20, 20) and float((small - eight).abs().max()) < 1.1 / 255 and len(small.unique()) > 15


def test_grey_first_and_colour_later_is_refused_unless_it_is_said_how(tmp_path):
    uri = folder(tmp_path, made.png(GREY, 8, 0), made.png(COLOUR, 8, 2))
    with pytest.raises(
        BadInput, match=r"1.png is in colour while .*0.png is grey; say how to read them all: channels=3, or channels=1"
    ):
        data.load(uri).tensors()
    grey, _ = data.load(uri, channels=1).tensors()
    luma = COLOUR @ np.array([0.299, 0.587, 0.114]) / 255
    assert grey.shape == (2, 1, 6, 9) and float(np.abs(grey[1, 0].numpy() - luma).max()) <= 1 / 255
    assert data.load(uri, channels=3).tensors()[0].shape == (2, 3, 6, 9)


def test_a_grey_image_in_a_palette_is_grey_among_grey_ones(tmp_path):
    palette = (b"PLTE", np.repeat(np.arange(256, dtype=np.uint8), 3).tobytes())
    x, _ = data.load(folder(tmp_path, made.png(GREY, 8, 0), made.png(GREY, 8, 3, [palette]))).tensors()
    assert torch.equal(x[0], x[1])


def test_colour_first_and_grey_later_loses_nothing(tmp_path):
    x, _ = data.load(folder(tmp_path, made.png(COLOUR, 8, 2), made.png(GREY, 8, 0), made.png(DEEP, 16, 0))).tensors()
    assert torch.equal(x[1, 0], x[1, 2]) and torch.equal(x[1, 0], torch.from_numpy(GREY).float() / 255)
    assert float((x[2, 0] - x[1, 0]).abs().max()) < 0.01


def test_exif_turns_photos_of_folders_and_not_those_of_imagenet(tmp_path):
    (tmp_path / "n01440764").mkdir()
    stored = np.tile(COLOUR, (40, 40, 1))[:224, :224]
    (tmp_path / "n01440764" / "photo.png").write_bytes(made.png(stored, 8, 2, [(b"eXIf", made.exif(6))]))
    turned, plain = data.load(f"folder:{tmp_path}").tensors()[0][0], data.load(f"imagenet:{tmp_path}").tensors()[0][0]
    assert torch.equal(plain, torch.from_numpy(stored).permute(2, 0, 1).float() / 255)
    assert torch.equal(turned, plain.transpose(1, 2).flip(2)) and not torch.equal(turned, plain)


def test_a_size_beyond_reason_is_a_sentence(tmp_path, capsys):
    command = (
        f"run --model mnist/smallcnn-tiny --data mnist-demo --attack ddn(steps=2) --size 8193 --out {tmp_path}/run"
    )
    assert main(command.split()) == 1
    assert "size=8193: images are made square with a side of 8192 at most" in capsys.readouterr().err


def test_an_image_too_narrow_to_resize_is_a_sentence(tmp_path):
    uri = folder(tmp_path, made.png(np.zeros((1, 3000), np.uint8), 8, 0))
    with pytest.raises(
        BadInput, match=r"0.png is 3000 x 1 pixels; with its shorter side brought to 256 it would be too large: crop it"
    ):
        data.load(uri, size=224).tensors()


@pytest.mark.parametrize("label", ["9" * 30, "9" * 5000])
def test_labels_beyond_any_class_are_a_sentence(label, tmp_path):
    (tmp_path / "a.png").write_bytes(made.png(GREY, 8, 0))
    (tmp_path / "list.csv").write_text(f"file,label\na.png,{label}\n")
    with pytest.raises(BadInput, match="label"):
        data.load(f"folder:{tmp_path}")


@pytest.mark.parametrize(
    ("images", "sentence"),
    [
        (np.array([["a", "b"]]), "are no array of numbers"),
        (np.zeros((2, 4, 4), object), "are no array of numbers"),
        (np.zeros((2, 4, 4), np.uint16), "give uint8"),
        (np.zeros((2, 4, 4), np.complex64), "give uint8"),
    ],
)
def test_arrays_that_are_no_images_are_a_sentence(images, sentence):
    with pytest.raises(BadInput, match=sentence):
        from_arrays("mine", images, [0, 1])


def test_ordinary_files_are_read_as_ever(tmp_path):
    """Bit for bit what Pillow's own conversion and resizing give."""
    photo = np.random.default_rng(0).integers(0, 256, (300, 280, 3), np.uint8)
    uri = folder(tmp_path, made.png(photo, 8, 2))
    assert torch.equal(data.load(uri).tensors()[0][0], torch.from_numpy(photo).permute(2, 0, 1).float() / 255)
    resized = Image.fromarray(photo).resize((256, 274), Image.Resampling.BILINEAR).crop((16, 25, 240, 249))
    assert torch.equal(
        data.load(uri, size=224).tensors()[0][0], torch.from_numpy(np.array(resized)).permute(2, 0, 1).float() / 255
    )
