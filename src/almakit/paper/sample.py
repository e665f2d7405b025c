"""The images of the paper's experiments: all of MNIST's test set, the first 1000 of CIFAR-10's, 1000 of ImageNet's
validation set."""

from __future__ import annotations

import csv
import io
import re
from importlib.resources import files
from pathlib import Path

from ..data import load
from ..data.named import imagenet_folder
from ..errors import Unavailable
from .grid import SAMPLES

LIST = "imagenet_sample.txt"
"""The validation images of the experiment, by number. The paper drew 1000 at random and does not name them; these were
drawn once, and stay."""

WRITTEN = "imagenet-sample.csv"
_VALIDATION = re.compile(r"ILSVRC2012_val_(\d{8})\.")


def numbers() -> frozenset[int]:
    """The numbers of the validation images, from 1."""
    return frozenset(map(int, files("almakit.paper").joinpath(LIST).read_text(encoding="utf-8").split()))


def images_of(dataset: str, data: str | None, out: Path) -> tuple[str, int, str | None]:
    """The URI of the data, the number of images, and a note if they are not the paper's.

    For ImageNet's validation set a csv that names the listed files is written into ``out``, so that a run's
    specification names its images.
    """
    uri = data or dataset
    if dataset != "imagenet":
        count = min(SAMPLES[dataset], len(load(uri, limit=SAMPLES[dataset])))
        return uri, count, None if data is None else f"The images are those of {data}, not the paper's."
    everything = load(uri)
    found = {
        int(match[1]): (name, label)
        for name, label in zip(everything.ids, everything.labels.tolist(), strict=True)
        if (match := _VALIDATION.search(name)) and int(match[1]) in numbers()
    }
    if not found:
        count = len(everything)
        note = f"{uri} is not ImageNet's validation set: its {count} photos are used instead of the paper's 1000."
        return uri, count, note
    place = imagenet_folder(uri.partition(":")[2] or None, "test")
    root, text = (place if place.is_dir() else place.parent).resolve(), io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("file", "label"))
    for _, (name, label) in sorted(found.items()):
        if not (root / name).is_file():
            raise Unavailable(f"the file {root / name} of ImageNet's validation set is gone.")
        table.writerow((root / name, label))
    place = out.resolve() / WRITTEN
    if not place.is_file() or place.read_text(encoding="utf-8") != text.getvalue():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text.getvalue(), encoding="utf-8")
    missing = len(numbers()) - len(found)
    return (
        f"folder:{place}",
        len(found),
        f"{missing} of the 1000 listed validation images are missing." if missing else None,
    )
