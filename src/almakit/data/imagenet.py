"""ImageNet's photos in its own order of classes, from a csv or from sub-folders named by WordNet id."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from ..errors import BadInput, Unavailable
from . import hub
from .dataset import Dataset
from .folder import Listing, classes_in, dataset_of_files, existing, from_classes, from_csv, table_in

IMAGENET_SIZE = 224
_WNID = re.compile(r"n\d{8}\Z")


def imagenet(path: str | None, split: str, size: int | None) -> Dataset:
    """ImageNet photos, labels 0 to 999, from a csv or from sub-folders named by WordNet id (some or all of the
    thousand).

    ``size`` s: the shorter side is resized to 256 s / 224 and the centre s x s is cut out; without it, the images of a
    csv stay as they are and those of sub-folders are brought to 224. Pixels are taken as they are stored, whatever EXIF
    says, as for the published numbers.
    """
    place = existing(path) if path else _default_imagenet()
    inner = place / {"test": "val", "train": "train"}[split]
    place = inner if place.is_dir() and inner.is_dir() else place
    if split == "train" and place.is_dir() and place.name != "train":
        raise Unavailable(
            f"{place} has no folder train, so ImageNet's training images are not at hand: give the folder that has "
            "one, imagenet:<folder>, or the list of your own training images, imagenet:<file.csv>."
        )
    table = table_in(place)
    name = f"imagenet:{path}" if path else "imagenet"
    names = tuple(_wnids().values())
    if table:
        listing = from_csv(table)
        return dataset_of_files(
            name, Listing(listing.paths, listing.ids, listing.labels, listing.targets, names), size, 3, upright=False
        )
    found = classes_in(place)
    strange = [entry for entry in found if not _WNID.match(entry) or entry not in _wnids()]
    if strange:
        raise BadInput(
            f"{place} has a sub-folder {strange[0]!r} that is none of ImageNet's thousand WordNet ids (such as "
            "n01440764); rename it, "
            f"write a csv with file and label, or use folder:{path or place} for classes of your own."
        )
    index = {wnid: number for number, wnid in enumerate(_wnids())}
    listing = from_classes(place, found)
    labels = [index[found[label]] for label in listing.labels]
    return dataset_of_files(
        name, Listing(listing.paths, listing.ids, labels, None, names), size or IMAGENET_SIZE, 3, upright=False
    )


def _default_imagenet() -> Path:
    for candidate in [*hub.folders(), hub.home()]:
        if (candidate / "imagenet").is_dir():
            return candidate / "imagenet"
    raise Unavailable(
        "ImageNet is not at hand: give its folder as imagenet:<folder>, or put a folder imagenet into one of "
        "ALMAKIT_DATA."
    )


def imagenet_index(wnid: str) -> int | None:
    """ImageNet's label of a WordNet id; None for any other name."""
    return list(_wnids()).index(wnid) if wnid in _wnids() else None


@lru_cache(maxsize=1)
def _wnids() -> dict[str, str]:
    """WordNet id -> name, in the order of ImageNet's labels."""
    lines = (files("almakit.data") / "imagenet_classes.csv").read_text(encoding="utf-8").splitlines()
    return dict(line.split(",") for line in lines)
