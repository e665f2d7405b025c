"""Images with a class for every pixel: folders of images and masks as VOC and ADE20K lay them out, and maps in
arrays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from ..errors import BadInput
from .dataset import IGNORED, Dataset
from .images import Reader, class_map

IMAGES = ("images", "JPEGImages", "imgs")
MASKS = ("masks", "annotations", "SegmentationClass", "labels")
"""What the two sub-folders are called."""
SPLITS = {"test": ("test", "val", "validation"), "train": ("train", "training")}
LISTS = Path("ImageSets") / "Segmentation"
"""Where VOC lists the images of a split, one stem on each line."""


def sub_folders(place: Path) -> tuple[Path, Path] | None:
    """The folders of images and of masks in ``place``, where it has both."""
    found = [next((place / name for name in names if (place / name).is_dir()), None) for names in (IMAGES, MASKS)]
    return (found[0], found[1]) if found[0] is not None and found[1] is not None else None


def masked(
    name: str,
    place: Path,
    split: str,
    size: int | None,
    channels: int | None,
    suffixes: frozenset[str],
    zero_ignored: bool,
) -> Dataset:
    """Images with PNG masks of the same name in the sub-folder beside theirs: a grey or palette value is a class, 255
    counts for nothing.

    Where both have a sub-folder for the ``split``, or VOC's lists name one, only its images. ``zero_ignored``: 0 counts
    for nothing and 1 is the first class, as ADE20K numbers them. A file ``classes.txt`` names the classes. Pixels are
    taken as they are stored, whatever EXIF says.
    """
    folders = sub_folders(place)
    assert folders is not None, "asked before"
    images, masks = folders
    for part in SPLITS[split]:
        if (images / part).is_dir() and (masks / part).is_dir():
            images, masks = images / part, masks / part
            break
    listed = next((file for part in SPLITS[split] if (file := place / LISTS / f"{part}.txt").is_file()), None)
    by_stem = {
        path.relative_to(images).with_suffix("").as_posix(): path
        for path in sorted(images.rglob("*"))
        if path.suffix.lower() in suffixes
    }
    wanted = (
        listed.read_text(encoding="utf-8").split()
        if listed
        else [stem for stem in by_stem if (masks / f"{stem}.png").is_file()]
    )
    if not wanted:
        raise BadInput(f"{images} and {masks} share no name; the mask of images/a.jpg is {masks.name}/a.png.")
    for stem in wanted:
        if stem not in by_stem or not (masks / f"{stem}.png").is_file():
            raise BadInput(
                f"{listed} lists {stem}, of which {images.name if stem not in by_stem else masks.name} has no file."
            )
    paths, maps = [by_stem[stem] for stem in wanted], [masks / f"{stem}.png" for stem in wanted]
    reader = Reader(paths[0], channels, size, upright=False)
    grey = reader.grey()

    def read(indices: Sequence[int]) -> Tensor:
        return _stacked(name, [reader(paths[index], grey) for index in indices])

    def classes(indices: Sequence[int]) -> Tensor:
        found = _stacked(name, [class_map(maps[index], size) for index in indices])
        return torch.where((found == 0) | (found == IGNORED), IGNORED, found - 1) if zero_ignored else found

    ids = tuple(path.relative_to(images).as_posix() for path in paths)
    return Dataset(name, ids, torch.zeros(len(ids), dtype=torch.int64), read, None, _class_names(place), maps=classes)


def _stacked(name: str, tensors: list[Tensor]) -> Tensor:
    shapes = sorted({tuple(tensor.shape) for tensor in tensors})
    if len(shapes) > 1:
        raise BadInput(
            f"the images of {name} have different sizes, such as {', '.join(map(str, shapes[:3]))}; give a size, e.g. "
            "size=224."
        )
    return torch.stack(tensors) if tensors else torch.empty(0)


def _class_names(place: Path) -> tuple[str, ...] | None:
    file = place / "classes.txt"
    return (
        tuple(line.strip() for line in file.read_text(encoding="utf-8-sig").splitlines() if line.strip())
        if file.is_file()
        else None
    )


def from_maps(name: str, images: int, maps: Any, sides: tuple[int, int], size: int | None) -> Any:
    """A reader of label maps held in an array (N, H, W) of integers, for so many ``images`` with these ``sides``;
    negative classes count for nothing."""
    stored = torch.as_tensor(maps)
    if stored.is_floating_point() or stored.is_complex() or stored.dtype == torch.bool:
        raise BadInput(f"the label maps of {name} are {stored.dtype}; they must be integers, a class for every pixel.")
    if len(stored) != images or tuple(stored.shape[1:]) != sides:
        got = f"{images} images of {sides[0]} x {sides[1]} and label maps of shape {tuple(stored.shape)}"
        raise BadInput(f"{name} has {got}; each pixel of each image needs one class.")

    def read(indices: Sequence[int]) -> Tensor:
        chosen = stored[torch.as_tensor(list(indices), dtype=torch.long)].to(torch.int64)
        if size is not None and tuple(chosen.shape[1:]) != (size, size):
            chosen = interpolate(chosen[:, None].double(), size=(size, size), mode="nearest-exact")[:, 0].long()
        return torch.where(chosen < 0, IGNORED, chosen)

    return read
