"""Training a user's own network, ``file.py:function``, on data of any name: what the zoo says of its networks is found
out here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from ..data import load as load_data
from ..data.dataset import Dataset
from ..data.user_file import call, is_user_file, split
from ..errors import BadInput
from ..models.zoo import ZOO, Entry

if TYPE_CHECKING:
    from .loop import Recipe

SPLIT = (
    "mnist",
    "fashion-mnist",
    "cifar10",
    "imagenet",
    "hf-dataset",
    "scenes",
)  # data with a training and a test split
HELD_OUT = 10  # of data without a test split every tenth image is kept for the test


def entry_of(recipe: Recipe) -> Entry:
    """The zoo's entry, or one for a network of the user's own, whose shape and classes its data will tell."""
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
    return Entry(recipe.model, "", "a network of the user's own", recipe.data, (0, 0, 0))


def stem_of(model: str) -> str:
    """What the files of a training are called."""
    if not is_user_file(model):
        return model.replace("/", "-")
    file, function = split(model)
    return f"{Path(file).stem}-{function}"


def data_of(
    recipe: Recipe, entry: Entry, limit: int | None, test_limit: int | None, test: Dataset | None = None
) -> tuple[Dataset, Dataset]:
    """Training and test images, ``test`` where given; of a user's own data without splits every tenth image is held
    out."""
    training = entry.dataset if is_user_file(entry.name) else recipe.data or entry.dataset
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


def network_of(entry: Entry) -> nn.Module:
    """The network a user's function returns, with fresh weights."""
    made = call(entry.name)
    if not isinstance(made, nn.Module) or not any(parameter.numel() for parameter in made.parameters()):
        raise BadInput(
            f"{entry.name} returned a {type(made).__name__}; to be trained it must return a torch module with "
            "parameters."
        )
    return made.requires_grad_(True)


def facts_of(entry: Entry, x: torch.Tensor, labels: torch.Tensor) -> Entry:
    """The entry with the shape of its training images ``x`` (N, C, H, W) and the network's number of classes;
    ``labels`` (N,) or maps (N, H, W)."""
    if not is_user_file(entry.name):
        return entry
    network = network_of(entry).eval()
    try:
        with torch.no_grad():
            logits = network(x[:1])
    except Exception as error:  # whatever a layer meets first
        shape = " x ".join(map(str, x.shape[1:]))
        raise BadInput(
            f"{entry.name} failed on an image of {shape} with {type(error).__name__}: "
            f"{' '.join(str(error).split())[:200]}"
        ) from error
    wanted = (1, *labels.shape[1:])
    if not isinstance(logits, torch.Tensor) or logits.ndim < 2 or (len(logits), *logits.shape[2:]) != wanted:
        shape = "(batch, classes)" if labels.ndim == 1 else f"(batch, classes, {labels.shape[1]}, {labels.shape[2]})"
        raise BadInput(f"{entry.name} must return logits of shape {shape} to be trained on {entry.dataset}.")
    return replace(entry, shape=(x.shape[1], x.shape[2], x.shape[3]), classes=logits.shape[1])
