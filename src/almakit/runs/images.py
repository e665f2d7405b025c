"""The images of a run: opened from any form, identified by a hash, with the box of the attacks. Also the target of each
image, which does not depend on batch, shard or resume."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..core import Box
from ..core.oracle import Model
from ..data import load as load_data
from ..data.coerce import Data, dataset_of
from ..data.dataset import Dataset
from ..data.features import Features
from ..errors import BadInput
from ..expression import parse
from ..goals.pixels import check_share
from ..models.classifier import Classifier, InUnits
from .progress import Progress
from .spec import RunSpec

SHARE = 0.99
"""The default share of the labelled pixels that must be wrong."""
RULES = ("random", "least-likely", "next")
"""Rules that choose one target per image from its clean logits, its hash and the seed."""


def side_of(model: object, data: object) -> int | None:
    """The input size of a model from another library, if the data are photos of any size and no size is set."""
    shape = getattr(model, "shape", None)
    photos = isinstance(data, str) and data.startswith(("folder:", "hf-dataset:"))
    return int(shape[1]) if photos and isinstance(model, Classifier) and shape and shape[1] == shape[2] else None


def open_data(data: Data, spec: RunSpec, side: int | None = None) -> Dataset:
    """The run's images, from a URI or from data that contain images and labels. ``side``: their size if the run sets
    none."""
    size = side if spec.size is None else spec.size
    if isinstance(data, str):
        if data.startswith("python:"):
            raise BadInput(f"the data {data} were passed in Python; resume with almakit.evaluate(...).")
        return load_data(
            data, limit=spec.limit, offset=spec.offset, split=spec.split, size=size, channels=spec.channels
        )
    if spec.channels is not None:
        raise BadInput("channels is for image files that are loaded by name; convert the images you give.")
    whole = dataset_of(data, None if spec.limit is None else spec.offset + spec.limit, size)
    if spec.offset >= len(whole):
        raise BadInput(f"there are {len(whole)} images; offset {spec.offset} lies beyond the last.")
    last = len(whole) if spec.limit is None else min(len(whole), spec.offset + spec.limit)
    return whole if (spec.offset, last) == (0, len(whole)) else whole.select(range(spec.offset, last))


def box_of(features: Features | None, bits: int | None = None) -> Box:
    """The box of a data set's inputs, scaled to [0, 1]."""
    if features is None:
        return Box(bits=bits)
    if bits is not None:
        raise BadInput("bits is the grid of image files; these data have features, which may have a step each.")
    moves, step = torch.from_numpy(features.moves), torch.from_numpy(features.scaled_step)
    return Box(mask=None if bool(moves.all()) else moves, step=step if bool((step > 0).any()) else None)


def parts_of(box: Box) -> dict[str, Any]:
    """A user's box as keyword arguments of ``Features``."""
    if box.bits is not None:
        raise BadInput("bits is the grid of image files; give the run bits=, or the box a step.")
    parts = {"lo": box.lo, "hi": box.hi, "step": 0.0 if box.step is None else box.step}
    return {
        name: value.cpu().numpy() if isinstance(value, torch.Tensor) else value for name, value in parts.items()
    } | {"fixed": False if box.mask is None else ~box.mask.cpu().numpy()}


def in_units(model: Model, features: Features | None) -> Model:
    """The model as a function of values scaled to [0, 1]."""
    return model if features is None else InUnits(model, features.lo, features.sides, features.step)


def data_sha256(ids: Sequence[str], hashes: Sequence[str], labels: Sequence[int], targets: Sequence[int] | None) -> str:
    """The sha256 over every image's id, contents, label and, if the user sets one, target."""
    digest = hashlib.sha256()
    for row, (name, image, label) in enumerate(zip(ids, hashes, labels, strict=True)):
        digest.update(f"{name}\t{image}\t{label}\t{'' if targets is None else targets[row]}\n".encode())
    return digest.hexdigest()


def share_of(goal: str | None) -> float:
    """The share of the labelled pixels that must be wrong, as in ``pixels(share=0.9)``."""
    if goal is None:
        return SHARE
    call = parse(goal)
    share = call.arguments.get("share", SHARE)
    if call.name != "pixels" or set(call.arguments) - {"share"} or not isinstance(share, (int, float)):
        raise BadInput(f"goal={goal!r}: for label maps give pixels(share=0.99), the share between 0 and 1.")
    check_share(share)
    return float(share)


# Targets.


def named_targets(targets: str | Tensor | Sequence[int] | None, dataset: Dataset) -> list[int] | None:
    """Explicit targets, one per image: those of the data set, of a csv file, or passed in Python; None if a rule
    chooses them."""
    if targets is None or targets in (*RULES, "all"):
        return None
    if not isinstance(targets, str):
        chosen = torch.as_tensor(targets).tolist()
    elif targets.isdigit():
        chosen = [int(targets)] * len(dataset)
    elif targets == "data":
        if dataset.targets is None:
            raise BadInput(f"{dataset.name} names no targets; choose --targets {', '.join(RULES)}, all or a csv file.")
        chosen = dataset.targets.tolist()
    else:
        chosen = _from_csv(Path(targets), dataset)
    labels = dataset.labels.tolist()
    if len(chosen) != len(labels):
        raise BadInput(f"there are {len(chosen)} targets for {len(labels)} images; each image needs one.")
    for name, label, target in zip(dataset.ids, labels, chosen, strict=True):
        if not isinstance(target, int) or target < 0:
            raise BadInput(f"the target of image {name} is {target!r}; it must be a class number from 0 on.")
        if label == target:
            raise BadInput(f"the target of image {name} equals its label ({label}); choose another class.")
    return chosen


def without_class(dataset: Dataset, target: int, progress: Progress) -> Dataset:
    """The images that do not have the common target class as their label."""
    kept = [place for place, label in enumerate(dataset.labels.tolist()) if label != target]
    if not kept:
        raise BadInput(f"all images are of class {target} already; choose another target.")
    if len(kept) < len(dataset):
        progress.note(
            f"{len(dataset) - len(kept)} of {len(dataset)} images are of the target class {target} and are left out."
        )
    return dataset if len(kept) == len(dataset) else dataset.select(kept)


def rule_target(rule: str, logits: Tensor, label: int, sha256: str, seed: int) -> int:
    """The target that a rule chooses for an image with clean ``logits`` (K,); never its label."""
    classes = len(logits)
    if rule == "next":
        return (label + 1) % classes
    if rule == "least-likely":
        others = torch.nan_to_num(logits, nan=float("inf")).clone()
        others[label] = float("inf")
        return int(others.argmin())
    # Random, but a function of only the seed and the image.
    number = int.from_bytes(hashlib.sha256(f"target:{seed}:{label}:{sha256}".encode()).digest()[:8], "big") % (
        classes - 1
    )
    return number + (number >= label)


def round_target(label: int, turn: int, classes: int) -> int:
    """With ``targets="all"``, the target of an image in a round."""
    return (label + 1 + turn) % classes


def _from_csv(path: Path, dataset: Dataset) -> list[int]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as opened:
            chosen = {row["id"]: int(row["target"]) for row in csv.DictReader(opened)}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"the targets {path} cannot be read ({error}).") from error
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path} needs the columns id and target, a class number ({error}).") from error
    missing = [name for name in dataset.ids if name not in chosen]
    if missing:
        raise BadInput(f"{path} has no target for {len(missing)} of the images, the first is {missing[0]!r}.")
    return [chosen[name] for name in dataset.ids]
