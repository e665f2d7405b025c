"""Data with a class for every pixel: scenes, folders of images and masks, archives, and what Python gives."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from almakit import data
from almakit.data.coerce import dataset_of
from almakit.data.dataset import IGNORED
from almakit.errors import BadInput

RNG = np.random.default_rng(0)


def test_scenes_need_no_file_and_are_the_same_in_any_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ALMAKIT_DATA", "ALMAKIT_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    scenes = data.load("scenes", limit=40)
    x, maps = scenes.tensors()
    assert x.shape == (40, 3, 32, 32) and maps.shape == (40, 32, 32) and maps.dtype == torch.int64
    assert float(x.min()) >= 0 and float(x.max()) <= 1 and torch.equal((x * 255).round() / 255, x)
    assert set(maps.unique().tolist()) == {*range(13), IGNORED} and scenes.class_names == (
        "smooth",
        "stripes",
        "checks",
        *"0123456789",
    )
    later = data.load("scenes", limit=2, offset=37).chunk([1, 0])
    assert later.maps is not None and torch.equal(later.x, x[[38, 37]]) and torch.equal(later.maps, maps[[38, 37]])
    # Drawn by a stream that is the same everywhere: these very values, in 8 bits.
    drawn = hashlib.sha256((x * 255).round().byte().numpy().tobytes() + maps.byte().numpy().tobytes()).hexdigest()
    assert drawn == "9c77937a77e7e33dc9e6073c6e56e55d8e536f46a55c0d1c1d24a7f423d2d4d2"


def test_training_scenes_are_of_other_digits() -> None:
    one, other = data.load("scenes", limit=3).tensors()[0], data.load("scenes", split="train", limit=3).tensors()[0]
    assert one.shape == other.shape and not torch.equal(one, other)


def test_a_hash_covers_the_map() -> None:
    x, maps = torch.rand(1, 3, 4, 4), torch.zeros(1, 4, 4, dtype=torch.int64)
    before = dataset_of((x, maps)).chunk([0]).sha256
    maps[0, 2, 1] = 3
    assert dataset_of((x, maps)).chunk([0]).sha256 != before


def picture(path: Path, sides: tuple[int, int], mode: str = "RGB") -> np.ndarray:  # type: ignore[type-arg]
    path.parent.mkdir(parents=True, exist_ok=True)
    values = RNG.integers(0, 256 if mode == "RGB" else 5, (*sides, 3) if mode == "RGB" else sides, dtype=np.uint8)
    if mode != "RGB":
        values[0, 0] = IGNORED
    image = Image.fromarray(values)
    if mode == "P":
        image = Image.frombytes("P", (sides[1], sides[0]), values.tobytes())
        image.putpalette([number for colour in range(256) for number in (colour, 255 - colour, 7)])
    image.save(path)
    return values


def test_a_folder_of_images_and_masks(tmp_path: Path) -> None:
    for name in ("b", "a"):
        picture(tmp_path / "images" / f"{name}.png", (6, 8))
    wanted = {name: picture(tmp_path / "masks" / f"{name}.png", (6, 8), "L") for name in ("a", "b")}
    picture(tmp_path / "images" / "unlabelled.png", (6, 8))
    (tmp_path / "classes.txt").write_text("ground\nsky\n\ntree\n")
    found = data.load(f"folder:{tmp_path}")
    x, maps = found.tensors()
    assert (
        found.ids == ("a.png", "b.png") and x.shape == (2, 3, 6, 8) and found.class_names == ("ground", "sky", "tree")
    )
    assert np.array_equal(maps.numpy(), np.stack([wanted["a"], wanted["b"]]))
    shifted = data.load(f"folder:{tmp_path}?zero=ignored").tensors()[1]
    assert torch.equal(shifted, torch.where((maps == 0) | (maps == IGNORED), IGNORED, maps - 1))
    with pytest.raises(BadInput, match="zero=ignored"):
        data.load(f"folder:{tmp_path}?zero=one")


def test_voc_lists_and_palettes_and_ade_splits(tmp_path: Path) -> None:
    voc, ade = tmp_path / "voc", tmp_path / "ade"
    for name in ("2007_1", "2007_2"):
        picture(voc / "JPEGImages" / f"{name}.jpg", (8, 8))
        mask = picture(voc / "SegmentationClass" / f"{name}.png", (8, 8), "P")
    lists = voc / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    (lists / "val.txt").write_text("2007_2\n")
    found = data.load(f"folder:{voc}")
    assert found.ids == ("2007_2.jpg",) and np.array_equal(found.tensors()[1][0].numpy(), mask)
    (lists / "val.txt").write_text("2007_3\n")
    with pytest.raises(BadInput, match="2007_3"):
        data.load(f"folder:{voc}")
    for split in ("training", "validation"):
        picture(ade / "images" / split / f"{split}.jpg", (8, 8))
        picture(ade / "annotations" / split / f"{split}.png", (8, 8), "L")
    assert data.load(f"folder:{ade}").ids == ("validation.jpg",) and data.load(f"folder:{ade}", split="train").ids == (
        "training.jpg",
    )


def test_masks_are_cut_as_their_images_and_mix_no_classes(tmp_path: Path) -> None:
    values = np.zeros((20, 30), dtype=np.uint8)
    values[:, 15:] = 200
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
        Image.fromarray(values).save(tmp_path / folder / "a.png")
    x, maps = data.load(f"folder:{tmp_path}", size=14).tensors()
    assert x.shape == (1, 1, 14, 14) and maps.shape == (1, 14, 14) and set(maps.unique().tolist()) == {0, 200}
    assert torch.equal((x[0, 0] > 0.4).long() * 200, maps[0])


def test_masks_in_colour_or_of_another_size_are_sentences(tmp_path: Path) -> None:
    picture(tmp_path / "images" / "a.png", (6, 8))
    picture(tmp_path / "masks" / "a.png", (6, 8))
    with pytest.raises(BadInput, match="one number for each pixel"):
        data.load(f"folder:{tmp_path}").tensors()
    picture(tmp_path / "masks" / "a.png", (8, 6), "L")
    with pytest.raises(BadInput, match="class per pixel"):
        data.load(f"folder:{tmp_path}").chunk([0])
    (tmp_path / "masks" / "a.png").rename(tmp_path / "masks" / "b.png")
    with pytest.raises(BadInput, match="share no name"):
        data.load(f"folder:{tmp_path}")


def test_archives_and_python_give_maps_too(tmp_path: Path) -> None:
    x, maps = RNG.random((3, 3, 6, 8), dtype=np.float32), RNG.integers(-1, 4, (3, 6, 8))
    np.savez(tmp_path / "scenes.npz", x=x, y=maps)
    wanted = torch.where(torch.tensor(maps) < 0, IGNORED, torch.tensor(maps))
    loaded = data.load(f"npz:{tmp_path / 'scenes.npz'}", limit=2, offset=1)
    assert torch.equal(loaded.tensors()[1], wanted[1:]) and torch.equal(loaded.chunk([0]).truth, wanted[1:2])
    samples = [(torch.tensor(image), torch.tensor(one)) for image, one in zip(x, maps, strict=True)]
    batches = torch.utils.data.DataLoader(samples, batch_size=2)  # type: ignore[arg-type]
    for given in ((x, maps), batches, iter(samples), torch.utils.data.StackDataset(torch.tensor(x), wanted)):
        assert torch.equal(dataset_of(given).tensors()[1].clamp_min(0) % IGNORED, wanted % IGNORED), type(given)
    small = data.load(f"npz:{tmp_path / 'scenes.npz'}", size=3)
    assert small.chunk([0]).truth.shape == (1, 3, 3)
    with pytest.raises(BadInput, match="each pixel"):
        dataset_of((x, maps[:, :5]))
    with pytest.raises(BadInput, match="integers"):
        dataset_of((x, maps.astype(np.float32)))
