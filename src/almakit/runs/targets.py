"""Which class a targeted attack aims at, decided once per image so that no batch, shard or resume can change it."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ..data.dataset import Dataset
from ..errors import BadInput
from .progress import Silent


def given_targets(targets: str | Tensor | Sequence[int] | None, dataset: Dataset) -> list[int] | None:
    """The targets somebody named, one per image: the data set's own, a csv's, or numbers from Python; None where a rule
    decides."""
    if targets is None or targets in ("random", "least-likely", "next", "all"):
        return None
    if not isinstance(targets, str):
        chosen = torch.as_tensor(targets).tolist()
    elif targets.isdigit():
        chosen = [int(targets)] * len(dataset)
    elif targets == "data":
        if dataset.targets is None:
            raise BadInput(
                f"{dataset.name} names no targets; choose --targets random, least-likely, next, all or a csv file."
            )
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


def without_class(dataset: Dataset, target: int, show: Silent) -> Dataset:
    """The images that are not of the class every image is to get; those that are have nothing to be attacked for."""
    kept = [place for place, label in enumerate(dataset.labels.tolist()) if label != target]
    if not kept:
        raise BadInput(f"all images are of class {target} already; choose another target.")
    if len(kept) < len(dataset):
        show.note(
            f"{len(dataset) - len(kept)} of {len(dataset)} images are of the target class {target} and are left out."
        )
    return dataset if len(kept) == len(dataset) else dataset.select(kept)


def rule_target(rule: str, logits: Tensor, label: int, sha256: str, seed: int) -> int:
    """The target a rule gives an image with clean ``logits`` (K,): never its label."""
    classes = len(logits)
    if rule == "next":
        return (label + 1) % classes
    if rule == "least-likely":
        others = torch.nan_to_num(logits, nan=float("inf")).clone()
        others[label] = float("inf")
        return int(others.argmin())
    # Random, but a function of the seed and the image alone.
    number = int.from_bytes(hashlib.sha256(f"target:{seed}:{label}:{sha256}".encode()).digest()[:8], "big") % (
        classes - 1
    )
    return number + (number >= label)


def rounds(rule: str | None, classes: int) -> int:
    """How many targets each image gets: one, or with ``all`` every class but its label."""
    return classes - 1 if rule == "all" else 1


def round_target(label: int, turn: int, classes: int) -> int:
    """With ``all``: the target of an image in a round."""
    return (label + 1 + turn) % classes


def _from_csv(path: Path, dataset: Dataset) -> list[int]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as opened:
            rows = list(csv.DictReader(opened))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"the targets {path} cannot be read ({error}).") from error
    if not rows or not {"id", "target"} <= set(rows[0]):
        raise BadInput(f"{path} needs the columns id and target.")
    try:
        chosen = {row["id"]: int(row["target"]) for row in rows}
    except (TypeError, ValueError):
        raise BadInput(f"{path} has a target that is no class number.") from None
    missing = [name for name in dataset.ids if name not in chosen]
    if missing:
        raise BadInput(f"{path} has no target for {len(missing)} of the images, the first is {missing[0]!r}.")
    return [chosen[name] for name in dataset.ids]
