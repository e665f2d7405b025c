"""Image files in folders: class sub-folders, a csv with files and labels, or images with masks in the layout of VOC or
ADE20K."""

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
from .images import class_map, reader, stacked

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"})
FILE, LABEL, TARGET = (
    ("file", "filename", "path", "image"),
    ("label", "class", "true_label"),
    ("target", "target_label"),
)
"""Names of a csv's columns."""
IMAGES = ("images", "JPEGImages", "imgs")
MASKS = ("masks", "annotations", "SegmentationClass", "labels")
"""Names of the two sub-folders of images with masks."""
SPLITS = {"test": ("test", "val", "validation"), "train": ("train", "training")}
LISTS = Path("ImageSets") / "Segmentation"
"""VOC's files that list the images of a split, one stem per line."""


@dataclass(frozen=True)
class Listing:
    """Files with ids, labels and perhaps targets and class names, before any image is read."""

    paths: list[Path]
    ids: list[str]
    labels: list[int]
    targets: list[int] | None = None
    class_names: tuple[str, ...] | None = None
    alphabetical: bool = False

    def dataset(self, name: str, size: int | None, channels: int | None, upright: bool = True) -> Dataset:
        """The data set; without ``channels`` the first image decides whether all are read in grey."""
        missing = [path for path in self.paths if not path.is_file()]
        if missing:
            raise Unavailable(f"{name} lists {len(missing)} files that do not exist, the first is {missing[0]}.")
        read = reader(self.paths[0], channels, size, upright)
        return Dataset(
            name,
            tuple(self.ids),
            torch.tensor(self.labels),
            lambda indices: stacked(name, [read(self.paths[index]) for index in indices]),
            None if self.targets is None else torch.tensor(self.targets),
            self.class_names,
            self.alphabetical,
        )


def folder(name: str, path: str, size: int | None, channels: int | None = None, split: str = "test") -> Dataset:
    """Images of a folder: a csv in it (or given itself) lists them, else every sub-folder is a class, counted in
    alphabetical order. Sub-folders ``images`` and ``masks`` (or as VOC and ADE20K call them) are images with a class
    for every pixel; see ``_masked``.

    The csv has columns ``file`` and ``label``, perhaps ``target``. A file ``classes.txt`` (a class on each line, label
    0 first) beside the images says which label a class has, whether sub-folders or the csv name it. From sub-folders
    the classes take turns, so that the first images are of all classes.
    """
    path, _, option = path.partition("?")
    place = existing(path)
    images, masks = (
        next((place / name for name in names if (place / name).is_dir()), None) for names in (IMAGES, MASKS)
    )
    if images is not None and masks is not None:
        if option not in ("", "zero=ignored"):
            raise BadInput(
                f"{name}: the one option of a folder with masks is ?zero=ignored, for label maps that number their "
                "classes from 1."
            )
        return _masked(name, images, masks, place, split, size, channels, bool(option))
    table = table_in(place)
    listing = from_csv(table) if table else from_classes(place, classes_in(place))
    root = table.parent if table else place
    order = _class_names(root) if listing.class_names else None
    if missing := sorted(set(listing.class_names or ()) - set(order)) if order is not None else []:
        raise BadInput(f"{root / 'classes.txt'} does not name the class {missing[0]!r}, of which there are images.")
    return listing.dataset(name, size, channels).numbered_as(order)


def from_table(name: str, rows: Sequence[Mapping[str, Any]], size: int | None) -> Dataset:
    """A pandas frame, as its rows: the columns of a csv, the paths as they are."""

    def text(value: object) -> str:  # whole numbers that pandas keeps as floats are whole numbers
        return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)

    cells = [{str(key): text(value) for key, value in row.items()} for row in rows]
    return _from_rows(name, Path(), cells).dataset(name, size, None)


def existing(path: str) -> Path:
    """The path, if there is such a file or folder."""
    place = Path(path).expanduser()
    if not place.exists():
        raise Unavailable(f"there is no folder {path}; give a folder with class sub-folders or a csv.")
    return place


def table_in(place: Path) -> Path | None:
    """The csv file in a folder, or the file itself; None if the folder has none."""
    if place.is_file():
        return place
    tables = sorted(place.glob("*.csv"))
    if len(tables) > 1:
        raise BadInput(f"{place} has {len(tables)} csv files; give the one to use, e.g. folder:{tables[0]}.")
    return tables[0] if tables else None


def from_csv(table: Path) -> Listing:
    """The images that a csv file lists."""
    try:
        with table.open(newline="", encoding="utf-8-sig") as opened:
            rows = [
                {(key or "").strip(): (value or "").strip() for key, value in row.items() if key}
                for row in csv.DictReader(opened)
            ]
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{table} cannot be read as a csv file ({error}).") from error
    return _from_rows(table, table.parent, rows)


def _from_rows(table: Path | str, root: Path, rows: list[dict[str, str]]) -> Listing:
    """The columns file, label and perhaps target; paths are below ``root``."""
    if not rows:
        raise BadInput(f"{table} lists no images.")
    file, label, target = (next((c for c in rows[0] if c.lower() in known), None) for known in (FILE, LABEL, TARGET))
    if file is None or label is None:
        raise BadInput(f"{table} has the columns {', '.join(rows[0])}; it needs file and label.")
    numbered = all(re.fullmatch(r"[0-9]+", row[label]) for row in rows)
    names = None if numbered else tuple(sorted({row[label] for row in rows}))

    def classes(column: str) -> list[int]:
        if names is None:
            return [_number(table, row[column]) for row in rows]
        if unknown := {row[column] for row in rows} - set(names):
            raise BadInput(f"{table} names a class {min(unknown)!r} that is none of its labels.")
        return [names.index(row[column]) for row in rows]

    paths, ids = [root / row[file] for row in rows], [row[file] for row in rows]
    return Listing(paths, ids, classes(label), classes(target) if target else None, names, names is not None)


def _number(table: Path | str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise BadInput(f"{table} gives {text[:18]!r} as a label or target, which is no class number.")
    return int(text)


def classes_in(place: Path) -> list[str]:
    """The names of the sub-folders."""
    names = sorted(entry.name for entry in place.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not names:
        raise BadInput(f"{place} has neither sub-folders (one for each class) nor a csv with columns file and label.")
    return names


def from_classes(place: Path, names: list[str]) -> Listing:
    """The images of class sub-folders: the first of each class, then the second of each, and so on."""
    entries = []
    for label, name in enumerate(names):
        images = sorted(path for path in (place / name).rglob("*") if path.suffix.lower() in SUFFIXES)
        entries += [(turn, label, path) for turn, path in enumerate(images)]
    if not entries:
        raise BadInput(f"the sub-folders of {place} hold no images ({', '.join(sorted(SUFFIXES))}).")
    _, labels, paths = zip(*sorted(entries, key=lambda entry: entry[:2]), strict=True)
    ids = [path.relative_to(place).as_posix() for path in paths]
    return Listing(list(paths), ids, list(labels), None, tuple(names), True)


def _class_names(place: Path) -> tuple[str, ...] | None:
    file = place / "classes.txt"
    if not file.is_file():
        return None
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{file} cannot be read ({error}).") from error
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def _masked(
    name: str,
    images: Path,
    masks: Path,
    place: Path,
    split: str,
    size: int | None,
    channels: int | None,
    zero_ignored: bool,
) -> Dataset:
    """Images with PNG masks of the same names in another sub-folder: a grey or palette value is a class, 255 is
    ignored.

    If both have a sub-folder for the ``split``, or VOC's lists name one, only its images. ``zero_ignored``: 0 is
    ignored and 1 is the first class, as ADE20K numbers them. A file ``classes.txt`` names the classes. Pixels are used
    as they are stored; EXIF rotation is not applied.
    """
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
    labelled = [stem for stem in by_stem if (masks / f"{stem}.png").is_file()]
    stems = listed.read_text(encoding="utf-8").split() if listed else labelled
    if not stems:
        raise BadInput(f"{images} and {masks} share no name; the mask of images/a.jpg is {masks.name}/a.png.")
    if missing := sorted(set(stems) - set(labelled)):
        raise BadInput(f"{listed} lists {missing[0]}, which has no file in {images.name} or in {masks.name}.")
    read = reader(by_stem[stems[0]], channels, size, upright=False)

    def classes(indices: Sequence[int]) -> Tensor:
        found = stacked(name, [class_map(masks / f"{stems[index]}.png", size) for index in indices])
        return torch.where((found == 0) | (found == IGNORED), IGNORED, found - 1) if zero_ignored else found

    return Dataset(
        name,
        tuple(by_stem[stem].relative_to(images).as_posix() for stem in stems),
        torch.zeros(len(stems), dtype=torch.int64),
        lambda indices: stacked(name, [read(by_stem[stems[index]]) for index in indices]),
        class_names=_class_names(place),
        maps=classes,
    )
