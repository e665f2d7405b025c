"""Whether a recipe can be trained: asked before the first epoch, because what fails after the last one has cost
hours."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..data.dataset import IGNORED
from ..errors import BadInput
from ..models.classifier import Classifier
from ..models.zoo import Entry

if TYPE_CHECKING:
    from .loop import Objective, Recipe

RADII = {"cifar10": {"l2": 0.5, "linf": 8 / 255}}
"""The radius of robust training where none is given, by data set and norm; the defaults of the objectives themselves
are MNIST's."""

Rule = tuple[str, Callable[[float], bool]]
POSITIVE: Rule = ("a number above 0", lambda value: value > 0)
NOT_NEGATIVE: Rule = ("a number from 0 on", lambda value: value >= 0)
SHARE: Rule = ("a number from 0 to 1", lambda value: 0 <= value <= 1)
COUNT: Rule = ("a whole number from 1 on", lambda value: value >= 1 and value == int(value))
OPTIONS: dict[str, Rule] = {
    "balance": SHARE,
    "radius": POSITIVE,
    "train_radius": POSITIVE,
    "steps": COUNT,
    "gamma": ("a number between 0 and 1", lambda value: 0 < value < 1),
    "beta": NOT_NEGATIVE,
    "warm_up": SHARE,
    "kappa_last": SHARE,
    "beta_last": SHARE,
    "begin": SHARE,
    "end": SHARE,
}
SETTINGS: dict[str, Rule] = {
    "epochs": COUNT,
    "batch_size": COUNT,
    "learning_rate": POSITIVE,
    "weight_decay": NOT_NEGATIVE,
    "warm_up": ("a number from 0 to below 1", lambda value: 0 <= value < 1),
    "shift": ("a whole number from 0 on", lambda value: value >= 0 and value == int(value)),
}


def settings(recipe: Recipe, allowed: Iterable[str]) -> None:
    """Refuses numbers that no training can use; ``allowed`` are the options of its kind."""
    for name, rule in SETTINGS.items():
        _number(name, getattr(recipe, name), rule)
    for name, value in recipe.options.items():
        if name not in allowed:
            known = f"its options are {', '.join(allowed)}" if tuple(allowed) else "it has none"
            raise BadInput(f"the kind of training {recipe.kind!r} has no option {name!r}; {known}.")
        way_out = " (without a radius it is --kind regular)" if name == "radius" and value == 0 else ""
        _number(name, value, OPTIONS[name], way_out)
    if recipe.options.get("begin", 0.0) > recipe.options.get("end", 1.0):
        raise BadInput(
            f"begin={recipe.options['begin']:g} lies after end={recipe.options['end']:g}; give a smaller one."
        )


def _number(name: str, value: float, rule: Rule, way_out: str = "") -> None:
    words, holds = rule
    if not (math.isfinite(value) and holds(value)):
        raise BadInput(f"{name}={value:g}: give {words}{way_out}.")


def with_radius(recipe: Recipe, entry: Entry, norm: str | None) -> Recipe:
    """The recipe with the radius of its data set, where its kind of training has a ``norm`` and nobody gave a
    radius."""
    if norm is None or "radius" in recipe.options or entry.dataset == "mnist":
        return recipe
    radius = RADII.get(entry.dataset, {}).get(norm)
    if radius is None:
        raise BadInput(f"there is no usual {norm} radius for {entry.dataset}: give one, --option radius=R.")
    return replace(recipe, options={"radius": radius, **recipe.options})


def kept_in_place(recipe: Recipe, labels: Tensor) -> None:
    """Refuses to move images whose pixels have a class each, ``labels`` (N, H, W)."""
    if labels.ndim == 3 and (recipe.shift or recipe.flip):
        raise BadInput("shift and flip move images and not their label maps: leave flip out and give --shift 0.")


def images(entry: Entry, name: str, x: Tensor, labels: Tensor) -> None:
    """Refuses images ``x`` (N, C, H, W) with ``labels`` (N,), or label maps (N, H, W), that the network cannot take."""
    if tuple(x.shape[1:]) != entry.shape:
        here, wanted = (" x ".join(map(str, shape)) for shape in (x.shape[1:], entry.shape))
        raise BadInput(
            f"the images of {name} are {here}, and {entry.name} takes {wanted}; give images of that shape (--data)."
        )
    labels = labels[labels != IGNORED] if labels.ndim == 3 else labels
    if int(labels.min()) < 0 or int(labels.max()) >= entry.classes:
        raise BadInput(
            f"{name} has labels {int(labels.min())} to {int(labels.max())}, and {entry.name} has {entry.classes} "
            "classes, from 0."
        )


def tried(objective: Objective, model: Classifier, x: Tensor, labels: Tensor) -> None:
    """Asks for the loss at the end of training on two of the images ``x`` (N, C, H, W), on a copy of the network.

    A network without interval bounds, say, is refused here. The copy and a generator of its own leave the training as
    it would have been.
    """
    with torch.random.fork_rng(devices=[]):
        objective(copy.deepcopy(model).train(), x[:2], labels[:2], torch.Generator().manual_seed(0), 1.0).backward()
