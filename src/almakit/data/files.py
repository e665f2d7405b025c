"""Image files in folders: class sub-folders, a csv that names files and labels, or images with masks that give every
pixel a class, as VOC and ADE20K lay them out."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import BadInput, Unavailable
from .dataset import IGNORED, Dataset
from .images import Reader, class_map

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"})
ORDERS = ("classes.txt", "classes.csv")
"""Files that say which label a class has."""
_FILE, _LABEL, _TARGET = (
    ("file", "filename", "path", "image"),
    ("label", "class", "true_label"),
    ("target", "target_label"),
)
IMAGES = ("images", "JPEGImages", "imgs")
MASKS = ("masks", "annotations", "SegmentationClass", "labels")
"""Names of the two sub-folders of images with masks."""
SPLITS = {"test": ("test", "val", "validation"), "train": ("train", "training")}
LISTS = Path("ImageSets") / "Segmentation"
"""Where VOC lists the images of a split, one stem on each line."""


@dataclass(frozen=True)
class Listing:
    """Files with ids, labels and perhaps targets and class names, before any image is read."""

    paths: list[Path]
    ids: list[str]
    labels: list[int]
    targets: list[int] | None = None
    class_names: tuple[str, ...] | None = None
    alphabetical: bool = False


def folder(name: str, path: str, size: int | None, channels: int | None = None, split: str = "test") -> Dataset:
    """Images of a folder: a csv in it (or given itself) says which, else every sub-folder is a class, counted in
    alphabetical order. Sub-folders ``images`` and ``masks`` (or as VOC and ADE20K call them) are images with a class
    for every pixel; see ``_masked``.

    The csv has columns ``file`` and ``label``, perhaps ``target``; or ``ImageId``, ``TrueLabel``, ``TargetClass``
    counted from 1 as in the NIPS 2017 competition. A file ``classes.txt`` (a class on each line, label 0 first) or
    ``classes.csv`` (columns ``class`` and ``label``) beside the images says which label a class has, whether
    sub-folders or the csv name it. From sub-folders the classes take turns, so that the first images are of all
    classes.
    """
    path, _, option = path.partition("?")
    place = existing(path)
    if (folders := _sub_folders(place)) is not None:
        if option not in ("", "zero=ignored"):
            raise BadInput(
                f"{name}: the one option of a folder with masks is ?zero=ignored, for label maps that number their "
                "classes from 1."
            )
        return _masked(name, folders, place, split, size, channels, bool(option))
    table = table_in(place)
    root = table.parent if table else place
    listing = from_csv(table) if table else from_classes(place, classes_in(place))
    return dataset_of_files(name, _in_order(root, listing), size, channels)


def from_files(
    name: str, files: Sequence[str | Path], labels: Tensor, targets: Tensor | None, size: int | None
) -> Dataset:
    """Image files by path, with labels (N,) and perhaps targets (N,)."""
    if len(labels) != len(files):
        raise BadInput(f"{name} has {len(files)} images and {len(labels)} labels; each image needs one label.")
    paths = _all_there(name, [Path(file).expanduser() for file in files])
    return dataset_of_files(
        name,
        Listing(paths, [str(file) for file in files], labels.tolist(), None if targets is None else targets.tolist()),
        size,
        None,
    )


def from_table(name: str, rows: Sequence[Mapping[str, Any]], size: int | None) -> Dataset:
    """A pandas frame, as its rows: the columns of a csv, the paths as they are."""
    return dataset_of_files(
        name,
        _from_rows(name, Path(), [{str(key): _word(value) for key, value in row.items()} for row in rows]),
        size,
        None,
    )


def _word(value: object) -> str:
    """A cell of a frame as a csv would hold it; whole numbers that pandas keeps as floats are whole numbers."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def existing(path: str) -> Path:
    place = Path(path).expanduser()
    if not place.exists():
        raise Unavailable(f"there is no folder {path}; give a folder with class sub-folders or a csv.")
    return place


def table_in(place: Path) -> Path | None:
    if place.is_file():
        return place
    tables = sorted(path for path in place.glob("*.csv") if path.name != ORDERS[1])
    if len(tables) > 1:
        raise BadInput(f"{place} has {len(tables)} csv files; give the one to use, e.g. folder:{tables[0]}.")
    return tables[0] if tables else None


def from_csv(table: Path) -> Listing:
    try:
        with table.open(newline="", encoding="utf-8-sig") as opened:
            rows = [
                {(key or "").strip(): (value or "").strip() for key, value in row.items() if key}
                for row in csv.DictReader(opened)
            ]
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{table} cannot be read as a csv file ({error}).") from error
    if rows and {"ImageId", "TrueLabel"} <= set(rows[0]):
        return _from_competition(table, rows)
    return _from_rows(table, table.parent, rows)


def _from_rows(table: Path | str, root: Path, rows: list[dict[str, str]]) -> Listing:
    """The columns file, label and perhaps target; paths are below ``root``."""
    if not rows:
        raise BadInput(f"{table} lists no images.")
    columns = list(rows[0])
    file, label, target = (next((c for c in columns if c.lower() in known), None) for known in (_FILE, _LABEL, _TARGET))
    if file is None or label is None:
        raise BadInput(f"{table} has the columns {', '.join(columns)}; it needs file and label.")
    paths = [root / row[file] for row in rows]
    names: tuple[str, ...] | None = None
    if all(re.fullmatch(r"\d+", row[label]) for row in rows):
        labels = [_number(table, row[label]) for row in rows]
    else:
        names = tuple(sorted({row[label] for row in rows}))
        labels = [names.index(row[label]) for row in rows]
    targets = [_class_number(table, row[target], names) for row in rows] if target else None
    return Listing(_all_there(table, paths), [row[file] for row in rows], labels, targets, names, names is not None)


def _from_competition(table: Path, rows: list[dict[str, str]]) -> Listing:
    root = table.parent / "images" if (table.parent / "images").is_dir() else table.parent
    paths = [root / f"{row['ImageId']}.png" for row in rows]
    labels = [_class_number(table, row["TrueLabel"], None) - 1 for row in rows]
    targets = [_class_number(table, row["TargetClass"], None) - 1 for row in rows] if "TargetClass" in rows[0] else None
    return Listing(_all_there(table, paths), [row["ImageId"] for row in rows], labels, targets)


def _class_number(table: Path | str, text: str, names: tuple[str, ...] | None) -> int:
    if names is not None and text in names:
        return names.index(text)
    if names is None and text.isascii() and text.isdigit():
        return _number(table, text)
    raise BadInput(f"{table} names a class {text!r} that is none of its labels.")


def _number(table: Path | str, digits: str) -> int:
    if len(digits) > 18:
        raise BadInput(f"{table} gives the label {digits[:18]}..., which is no class; classes are counted from 0.")
    return int(digits)


def _all_there(table: Path | str, paths: list[Path]) -> list[Path]:
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise Unavailable(f"{table} lists {len(missing)} files that do not exist, the first is {missing[0]}.")
    return paths


def classes_in(place: Path) -> list[str]:
    names = sorted(entry.name for entry in place.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not names:
        raise BadInput(
            f"{place} has neither sub-folders (one for each class) nor a csv with the columns file and label."
        )
    return names


def from_classes(place: Path, names: list[str]) -> Listing:
    entries = []
    for label, name in enumerate(names):
        images = sorted(path for path in (place / name).rglob("*") if path.suffix.lower() in SUFFIXES)
        entries += [(turn, label, path) for turn, path in enumerate(images)]
    if not entries:
        raise BadInput(f"the sub-folders of {place} hold no images ({', '.join(sorted(SUFFIXES))}).")
    entries.sort(key=lambda entry: entry[:2])
    paths = [path for _, _, path in entries]
    return Listing(
        paths,
        [path.relative_to(place).as_posix() for path in paths],
        [label for _, label, _ in entries],
        None,
        tuple(names),
        True,
    )


def _in_order(root: Path, listing: Listing) -> Listing:
    """The listing with the labels that classes.txt or classes.csv in ``root`` gives its classes, where there is one."""
    there = [root / name for name in ORDERS if (root / name).is_file()]
    if not there or listing.class_names is None:
        return listing
    try:
        text = there[0].read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{there[0]} cannot be read ({error}).") from error
    if there[0].suffix == ".txt":
        order = {name: number for number, name in enumerate(line.strip() for line in text.splitlines()) if name}
    else:
        rows = [
            {(key or "").strip().lower(): (value or "").strip() for key, value in row.items() if key}
            for row in csv.DictReader(text.splitlines())
        ]
        if (
            not rows
            or not {"class", "label"} <= set(rows[0])
            or not all(re.fullmatch(r"[0-9]{1,6}", row["label"]) for row in rows)
        ):
            raise BadInput(f"{there[0]} needs the columns class and label, with a whole number as label.")
        order = {row["class"]: int(row["label"]) for row in rows}
    if missing := [name for name in listing.class_names if name not in order]:
        raise BadInput(f"{there[0]} does not name the class {missing[0]!r}, of which there are images; add it.")
    if len(set(order.values())) < len(order):
        raise BadInput(f"{there[0]} gives two classes the same label.")
    labels, by_label = (
        [order[listing.class_names[label]] for label in listing.labels],
        {number: name for name, number in order.items()},
    )
    targets = None if listing.targets is None else [order[listing.class_names[target]] for target in listing.targets]
    names = tuple(by_label.get(number, str(number)) for number in range(max(by_label) + 1))
    return Listing(listing.paths, listing.ids, labels, targets, names)


def dataset_of_files(
    name: str, listing: Listing, size: int | None, channels: int | None, upright: bool = True
) -> Dataset:
    """The data set of a listing; without ``channels`` the first image decides whether all are read in grey."""
    reader = Reader(listing.paths[0], channels, size, upright)
    grey = reader.grey()

    def read(indices: Sequence[int]) -> Tensor:
        return _stacked(name, [reader(listing.paths[index], grey) for index in indices])

    targets = None if listing.targets is None else torch.tensor(listing.targets, dtype=torch.int64)
    labels = torch.tensor(listing.labels, dtype=torch.int64)
    return Dataset(name, tuple(listing.ids), labels, read, targets, listing.class_names, listing.alphabetical)


def _sub_folders(place: Path) -> tuple[Path, Path] | None:
    """The folders of images and of masks in ``place``, where it has both."""
    found = [next((place / name for name in names if (place / name).is_dir()), None) for names in (IMAGES, MASKS)]
    return (found[0], found[1]) if found[0] is not None and found[1] is not None else None


def _masked(
    name: str,
    folders: tuple[Path, Path],
    place: Path,
    split: str,
    size: int | None,
    channels: int | None,
    zero_ignored: bool,
) -> Dataset:
    """Images with PNG masks of the same name in the sub-folder beside theirs: a grey or palette value is a class, 255
    is ignored.

    Where both have a sub-folder for the ``split``, or VOC's lists name one, only its images. ``zero_ignored``: 0 is
    ignored and 1 is the first class, as ADE20K numbers them. A file ``classes.txt`` names the classes. Pixels are
    taken as they are stored, whatever EXIF says.
    """
    images, masks = folders
    for part in SPLITS[split]:
        if (images / part).is_dir() and (masks / part).is_dir():
            images, masks = images / part, masks / part
            break
    listed = next((file for part in SPLITS[split] if (file := place / LISTS / f"{part}.txt").is_file()), None)
    by_stem = {
        path.relative_to(images).with_suffix("").as_posix(): path
        for path in sorted(images.rglob("*"))
        if path.suffix.lower() in SUFFIXES
    }
    stems = (
        listed.read_text(encoding="utf-8").split()
        if listed
        else [stem for stem in by_stem if (masks / f"{stem}.png").is_file()]
    )
    if not stems:
        raise BadInput(f"{images} and {masks} share no name; the mask of images/a.jpg is {masks.name}/a.png.")
    for stem in stems:
        if stem not in by_stem or not (masks / f"{stem}.png").is_file():
            raise BadInput(
                f"{listed} lists {stem}, of which {images.name if stem not in by_stem else masks.name} has no file."
            )
    paths, maps = [by_stem[stem] for stem in stems], [masks / f"{stem}.png" for stem in stems]
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
