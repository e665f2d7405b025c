"""The network and the images of a training: from the zoo, or ``file.py:function`` and any data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..data import load as load_data
from ..data.dataset import IGNORED, Dataset
from ..data.user_file import call, is_user_file, split
from ..errors import BadInput
from ..models.classifier import Classifier
from ..models.zoo import ZOO, Entry, build
from .recipe import Recipe

SPLIT = ("mnist", "fashion-mnist", "cifar10", "imagenet", "hf-dataset", "scenes")
"""Data with a training and a test split."""
HELD_OUT = 10
"""Of data without a test split every tenth image is kept for the test."""
RADII = {"cifar10": {"l2": 0.5, "linf": 8 / 255}}
"""Default radius of robust training by data set and norm; the defaults of the objectives are MNIST's."""


def entry_of(recipe: Recipe) -> Entry:
    """The zoo's entry, or one for a user's network, whose shape and classes are read off its data later."""
    if recipe.model in ZOO:
        return ZOO[recipe.model]
    if not is_user_file(recipe.model):
        raise BadInput(
            f"there is no architecture called {recipe.model!r} to train; known: {', '.join(ZOO)}, or one of your own, "
            "file.py:function."
        )
    if recipe.data is None:
        raise BadInput(
            f"{recipe.model} does not say what it is trained on: give --data, for example --data mnist or --data "
            "folder:photos."
        )
    return Entry(recipe.model, lambda: call(recipe.model), "a network of the user's own", recipe.data, (0, 0, 0))


def settled(recipe: Recipe, entry: Entry | None = None) -> Recipe:
    """The recipe, checked, with the radius of its data set where its kind of training needs one."""
    entry, kind = entry or entry_of(recipe), recipe.training
    recipe.check()
    if kind.norm is None or "radius" in recipe.options or entry.dataset == "mnist":
        return recipe
    radius = RADII.get(entry.dataset, {}).get(kind.norm)
    if radius is None:
        raise BadInput(f"there is no usual {kind.norm} radius for {entry.dataset}: give one, --option radius=R.")
    return replace(recipe, options={"radius": radius, **recipe.options})


def stem_of(model: str) -> str:
    """The name of a training's files, without suffix."""
    if not is_user_file(model):
        return model.replace("/", "-")
    file, function = split(model)
    return f"{Path(file).stem}-{function}"


def data_of(
    recipe: Recipe, entry: Entry, limit: int | None, test_limit: int | None, test: Dataset | None = None
) -> tuple[Dataset, Dataset]:
    """Training and test images (``test`` where it is not None); of data without splits every tenth image is held
    out."""
    training = recipe.data or entry.dataset
    if test is not None:
        return load_data(training, split="train", limit=limit), test
    if not is_user_file(entry.name) or entry.dataset.partition(":")[0] in SPLIT:
        return load_data(training, split="train", limit=limit), load_data(entry.dataset, limit=test_limit)
    whole = load_data(entry.dataset, limit=limit)
    if len(whole) < HELD_OUT:
        raise BadInput(
            f"{entry.dataset} has {len(whole)} images; training needs {HELD_OUT} or more, every tenth is kept for the "
            "test."
        )
    test = whole.select(range(HELD_OUT - 1, len(whole), HELD_OUT))
    rest = whole.select([place for place in range(len(whole)) if place % HELD_OUT != HELD_OUT - 1])
    return rest, test if test_limit is None else test.select(range(min(test_limit, len(test))))


def trainable(entry: Entry, x: Tensor, labels: Tensor) -> Classifier:
    """The entry's network with fresh weights, for images ``x`` (N, C, H, W) with ``labels`` (N,) or label maps (N, H,
    W)."""
    network: Any = build(entry)
    if not isinstance(network, nn.Module) or not any(parameter.numel() for parameter in network.parameters()):
        raise BadInput(
            f"{entry.name} returned a {type(network).__name__}; to be trained it must return a torch module with "
            "parameters."
        )
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            logits = network.eval()(x[:1])
    except Exception as error:  # a layer may raise any error
        raise BadInput(
            f"{entry.name} failed on an image of {' x '.join(map(str, x.shape[1:]))} with {type(error).__name__}: "
            f"{' '.join(str(error).split())[:200]}"
        ) from error
    if not isinstance(logits, Tensor) or logits.ndim < 2 or (1, *labels.shape[1:]) != (len(logits), *logits.shape[2:]):
        sizes = ", ".join(["batch", "classes", *map(str, labels.shape[1:])])
        raise BadInput(f"{entry.name} must return logits of shape ({sizes}) to be trained on {entry.dataset}.")
    mean, std = entry.normalisation or (None, None)
    shape = (x.shape[1], x.shape[2], x.shape[3])
    model = Classifier(
        network, name=entry.name, mean=mean, std=std, dataset=entry.dataset, shape=shape, classes=logits.shape[1]
    )
    return model.requires_grad_(True)


def check_labels(model: Classifier, name: str, labels: Tensor) -> None:
    """Raise an error if ``labels`` (N,), or label maps (N, H, W), contain classes that the network does not have."""
    labels = labels[labels != IGNORED] if labels.ndim == 3 else labels
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= (model.classes or 0):
        raise BadInput(f"{name} has labels {low} to {high}, and {model.name} has {model.classes} classes, from 0.")
