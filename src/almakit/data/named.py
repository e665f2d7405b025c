"""The data sets by name, and ``npz:`` files: MNIST, Fashion-MNIST, CIFAR-10 and ImageNet's photos in its own order of
classes."""

from __future__ import annotations

import gzip
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BadInput, Unavailable
from . import hub
from .coerce import from_arrays
from .dataset import Dataset
from .files import classes_in, existing, from_classes, from_csv, table_in

DIGITS = tuple("0123456789")
CLOTHES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FEW_CIFAR = 1000
IMAGENET_SIZE = 224
KEYS, UNITS = ("x", "images", "y", "labels", "targets", "ids"), ("lo", "hi", "step", "fixed", "names")


def digits(name: str, split: str, size: int | None) -> Dataset:
    """MNIST or Fashion-MNIST: 10 000 test or 60 000 training images, 1 x 28 x 28."""
    part = {"test": "t10k", "train": "train"}[split]
    images, labels = (_idx(hub.path(f"{name}/{part}-{what}-ubyte.gz")) for what in ("images-idx3", "labels-idx1"))
    return from_arrays(name, images, labels, class_names=DIGITS if name == "mnist" else CLOTHES, size=size)


def demo(size: int | None) -> Dataset:
    """The 256 MNIST test digits inside the package: no file and no network needed."""
    with (
        (files("almakit.data") / "demo" / "mnist-demo.npz").open("rb") as opened,
        np.load(opened, allow_pickle=False) as arrays,
    ):
        ids = list(map(str, arrays["index"]))
        return from_arrays("mnist-demo", arrays["x"], arrays["y"], ids=ids, class_names=DIGITS, size=size)


def cifar10(split: str, size: int | None, last: int | None) -> Dataset:
    """CIFAR-10: 10 000 test or 50 000 training images, 3 x 32 x 32.

    If the test batch is not on disk, a small file with the first 1000 test images can replace it. ``last`` (the number
    of leading images that are needed; None: all) must then be at most 1000.
    """
    few = hub.local("cifar10/cifar10_test_first1000.npz") if split == "test" else None
    if few is not None and hub.local("cifar10/test_batch.bin") is None:
        if last is None or last > FEW_CIFAR:
            raise Unavailable(
                f"of CIFAR-10 the first {FEW_CIFAR} test images are available: use limit={FEW_CIFAR} or less, or run "
                "`almakit fetch cifar10`."
            )
        with np.load(few, allow_pickle=False) as arrays:
            return from_arrays("cifar10", arrays["x"], arrays["y"], class_names=CIFAR_CLASSES, size=size)
    batches = ["test_batch"] if split == "test" else [f"data_batch_{number}" for number in range(1, 6)]
    contents = [np.fromfile(hub.path(f"cifar10/{batch}.bin"), dtype=np.uint8) for batch in batches]
    rows = np.concatenate(contents).reshape(-1, 3073)
    return from_arrays("cifar10", rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0], class_names=CIFAR_CLASSES, size=size)


def npz(path: str, size: int | None) -> Dataset:
    """A numpy archive with ``x`` (or ``images``) and ``y`` (or ``labels``: a class for each image or for each pixel),
    and perhaps ``targets`` and ``ids``. With ``lo`` and ``hi`` (and ``step``, ``fixed``, ``names``) x holds values of
    any rank, (N, ...), in those units."""
    try:
        with np.load(Path(path).expanduser(), allow_pickle=False) as arrays:
            held = {key: np.asarray(arrays[key]) for key in arrays.files if key in (*KEYS, *UNITS)}
    except FileNotFoundError as error:
        raise Unavailable(f"there is no file {path}; give the path of an npz archive with x and y.") from error
    except Exception as error:  # a file that is no archive, or a damaged one, fails in many ways
        raise BadInput(
            f"{path} cannot be read as an npz archive of plain arrays ({error}); save it with numpy.savez('{path}', "
            "x=images, y=labels)."
        ) from error
    images, labels = held.get("x", held.get("images")), held.get("y", held.get("labels"))
    if images is None or labels is None:
        raise BadInput(
            f"{path} holds {', '.join(held) or 'no such array'}; it must hold x (or images) and y (or labels)."
        )
    texts = {key: [str(value) for value in held[key].flat] for key in ("ids", "names") if key in held}
    units: dict[str, Any] = {key: texts.get(key, held[key]) for key in UNITS if key in held}
    targets, ids = held.get("targets"), texts.get("ids")
    return from_arrays(f"npz:{path}", images, labels, targets=targets, ids=ids, size=size, units=units or None)


def _idx(path: Path) -> np.ndarray[Any, Any]:
    """An idx file of unsigned bytes: two zero bytes, type 8, the number of dimensions, the dimensions as big-endian
    int32, the values."""
    content = gzip.decompress(path.read_bytes())
    shape = np.frombuffer(content, dtype=">i4", count=content[3], offset=4)
    values: np.ndarray[Any, Any] = np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape).copy()
    return values


def imagenet(path: str | None, split: str, size: int | None) -> Dataset:
    """ImageNet photos, labels 0 to 999, from a csv or from sub-folders named by WordNet id (some or all of the
    thousand).

    ``size`` s: the shorter side is resized to 256 s / 224 and the centre s x s is cut out; without it, the images of a
    csv stay as they are and those of sub-folders are brought to 224. Pixels are taken as they are stored, whatever EXIF
    says, as for the published numbers.
    """
    place = imagenet_folder(path, split)
    if split == "train" and place.is_dir() and place.name != "train":
        raise Unavailable(
            f"{place} has no folder train, so ImageNet's training images were not found: give the folder that has "
            "one, imagenet:<folder>, or the list of your own training images, imagenet:<file.csv>."
        )
    table, known = table_in(place), _wnids()
    if table:
        listing = from_csv(table)
    else:
        size, found = size or IMAGENET_SIZE, classes_in(place)
        if strange := [entry for entry in found if entry not in known]:
            raise BadInput(
                f"{place} has a sub-folder {strange[0]!r} that is none of ImageNet's thousand WordNet ids (such as "
                f"n01440764); rename it, write a csv with file and label, or use folder:{path or place}."
            )
        index = {wnid: number for number, wnid in enumerate(known)}
        listing = from_classes(place, found)
        listing = replace(listing, labels=[index[found[label]] for label in listing.labels])
    listing = replace(listing, class_names=tuple(known.values()), alphabetical=False)
    return listing.dataset(f"imagenet:{path}" if path else "imagenet", size, 3, upright=False)


def imagenet_folder(path: str | None, split: str) -> Path:
    """The folder or csv of a split's photos; without ``path`` from a folder of ALMAKIT_DATA or the cache."""
    known = [existing(path)] if path else [place / "imagenet" for place in (*hub.folders(), hub.home())]
    place = next((place for place in known if place.exists()), None)
    if place is None:
        raise Unavailable(
            "ImageNet was not found: give its folder as imagenet:<folder>, or put a folder imagenet into one of "
            "ALMAKIT_DATA."
        )
    inner = place / {"test": "val", "train": "train"}[split]
    return inner if inner.is_dir() else place


def imagenet_index(wnid: str) -> int | None:
    """ImageNet's label of a WordNet id; None for any other name."""
    return list(_wnids()).index(wnid) if wnid in _wnids() else None


@lru_cache(maxsize=1)
def _wnids() -> dict[str, str]:
    """WordNet id -> name, in the order of ImageNet's labels."""
    lines = (files("almakit.data") / "imagenet_classes.csv").read_text(encoding="utf-8").splitlines()
    return dict(line.split(",") for line in lines)
