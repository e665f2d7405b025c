"""Whether the labels of the data and the classes of the model mean the same, judged by the classes' names and by the
predictions on clean images."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from ..data.named import imagenet_index

Severity = Literal["refuse", "warn", "note"]

LEAST, NEARLY_ALL = 5, 0.9
"""A class of so many images or more, of which so large a share goes to one other class, is a class with a wrong
number."""
SURE = 0.8
"""Mean probability of the predicted class from which on a model that is as good as guessing is confident about other
labels."""

Said = tuple[str, Severity, str]


def name_findings(names: Sequence[str], classes: int) -> list[Said]:
    """Findings from the data's class names, numbered in alphabetical order, for a model with so many classes."""
    found: list[Said] = []
    if len(names) != classes:
        found.append(
            (
                "class-count",
                "refuse",
                f"The data have {len(names)} classes ({_few(names)}) and the model {classes}: counted in alphabetical "
                "order, the data's classes need not have the model's numbers.",
            )
        )
    meant = [
        int(name) if re.fullmatch(r"[0-9]{1,6}", name) else imagenet_index(name) if classes == 1000 else None
        for name in names
    ]
    wrong = [
        (name, number, own)
        for number, (name, own) in enumerate(zip(names, meant, strict=True))
        if own is not None and own != number
    ]
    if (
        wrong
        and all(own is not None for own in meant)
        and [own - 1 for own in meant if own is not None] != list(range(len(names)))
    ):
        name, number, own = wrong[0]
        found.append(
            (
                "class-order",
                "refuse",
                f"The class {name!r} has the label {number}, its place in alphabetical order, and its name says {own} "
                f"({len(wrong)} of {len(names)} classes disagree).",
            )
        )
    return found


def prediction_findings(logits: Tensor, labels: Tensor, names: Sequence[str] | None, guessing: bool) -> list[Said]:
    """Findings from the logits (N, K) of clean images with ``labels`` (N,); ``guessing``: accuracy is no better than
    chance."""
    predicted, sure = logits.argmax(1), float(torch.softmax(logits.double(), 1).amax(1).nan_to_num(0.0).mean())
    if guessing:
        if sure < SURE or len(labels) < 2 * LEAST:
            return []
        return [
            (
                "shuffled-labels",
                "warn",
                f"The model is as good as guessing, yet sure of itself (a probability of {sure:.2f} on average): the "
                "labels seem to belong to other images or other classes.",
            )
        ]
    moved = []
    for label in labels.unique().tolist():
        mine = predicted[labels == label]
        other, count = mine.mode().values.item(), int((mine == mine.mode().values).sum())
        if len(mine) >= LEAST and other != label and count >= NEARLY_ALL * len(mine):
            moved.append(
                f"{count} of {len(mine)} images of class {_named(label, names)} are predicted as class {other}"
            )
    more = " and more" if len(moved) > 3 else ""
    return (
        [("class-elsewhere", "refuse", f"{'; '.join(moved[:3])}{more}: the class has another number in the model.")]
        if moved
        else []
    )


def _named(label: int, names: Sequence[str] | None) -> str:
    return (
        f"{label} ({names[label]!r})"
        if names is not None and label < len(names) and names[label] != str(label)
        else str(label)
    )


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
