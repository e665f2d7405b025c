"""The one training loop: seeded, the same on every run, with the objective as the only part that differs between kinds of training."""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..data import load as load_data
from ..errors import BadInput
from ..models.classifier import Classifier, state_sha256
from ..models.zoo import ZOO, Entry, build

Objective = Callable[[nn.Module, Tensor, Tensor, torch.Generator, float], Tensor]
"""loss = objective(model, x, labels, generator, progress): the model takes images in [0, 1] (B, C, H, W), ``progress`` runs from 0 to 1."""

KINDS = {"regular": "almakit.train.regular"}
"""Kind of training -> its module, which has ``objective(**options) -> Objective`` and ``RECIPES``, a dict from model name to recipe."""

Trace = Callable[[dict[str, Any]], None]
"""Called after every epoch with its line of the log."""


@dataclass(frozen=True)
class Recipe:
    """How a network of the zoo is trained: AdamW, a learning rate that rises for ``warm_up`` of the steps and falls along a cosine to zero.

    ``shift`` moves every training image by up to that many pixels in each direction, the border filled with zeros; ``options`` go to the
    objective of the ``kind`` of training.
    """

    model: str
    kind: str = "regular"
    epochs: int = 8
    batch_size: int = 128
    learning_rate: float = 3e-3
    weight_decay: float = 1e-2
    warm_up: float = 0.1
    shift: int = 2
    seed: int = 0
    options: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Trained:
    """A trained network, in evaluation mode, and the log of its training."""

    model: Classifier
    log: dict[str, Any]


def recipes() -> dict[str, Recipe]:
    """The recipes of the networks almakit ships, by model name."""
    return {name: recipe for kind in KINDS for name, recipe in _kind(kind).RECIPES.items()}


def train(recipe: Recipe, *, limit: int | None = None, test_limit: int | None = None, trace: Trace | None = None) -> Trained:
    """Trains the recipe's network on its data set's training split and measures clean accuracy on the test split.

    All randomness comes from ``recipe.seed``: the first weights, the order, the shifts, dropout and whatever the objective draws from its
    generator. The caller's random state is left as it was. ``limit`` takes the first training images only.
    """
    entry, objective = _entry(recipe), _kind(recipe.kind).objective(**recipe.options)
    training, test = load_data(entry.dataset, split="train", limit=limit), load_data(entry.dataset, limit=test_limit)
    x, labels = training.tensors()
    epochs: list[dict[str, Any]] = []
    started = time.process_time()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        generator = torch.Generator().manual_seed(recipe.seed)
        model = _trainable(entry)
        optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
        per_epoch = math.ceil(len(x) / recipe.batch_size)
        total = per_epoch * recipe.epochs
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _rate(step / total, recipe.warm_up))
        for epoch in range(recipe.epochs):
            model.train()
            losses = []
            for number, rows in enumerate(torch.randperm(len(x), generator=generator).split(recipe.batch_size)):
                images = _shifted(x[rows], recipe.shift, generator)
                loss = objective(model, images, labels[rows], generator, (epoch * per_epoch + number) / total)
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                optimiser.step()
                schedule.step()
                losses.append(float(loss.detach()))
            line = {"epoch": epoch + 1, "loss": round(sum(losses) / len(losses), 6), "cpu_seconds": round(time.process_time() - started, 1)}
            epochs.append(line)
            if trace is not None:
                trace(line)
    model.eval().requires_grad_(False)
    log = {
        "recipe": asdict(recipe),
        "training_images": len(training),
        "test_images": len(test),
        "clean_accuracy": round(100 * accuracy(model, *test.tensors()), 3),
        "weights_sha256": state_sha256(model.network.state_dict()),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "epochs": epochs,
    }
    return Trained(model, log)


def accuracy(model: nn.Module, x: Tensor, labels: Tensor, batch_size: int = 500) -> float:
    """The share of the images ``x`` (N, C, H, W) whose largest logit is that of their label (N,)."""
    with torch.no_grad():
        right = [(model(part).argmax(1) == wanted).sum() for part, wanted in zip(x.split(batch_size), labels.split(batch_size), strict=True)]
    return int(torch.stack(right).sum()) / len(x)


def save(trained: Trained, folder: Path) -> Path:
    """Writes the weights (safetensors) and beside them the log (JSON), each whole or not at all; returns the weights' path."""
    from safetensors.torch import save as as_bytes

    folder.mkdir(parents=True, exist_ok=True)
    stem = trained.log["recipe"]["model"].replace("/", "-")
    state = {key: value.contiguous() for key, value in trained.model.network.state_dict().items() if not key.endswith("num_batches_tracked")}
    _write(folder / f"{stem}.safetensors", as_bytes(state))
    _write(folder / f"{stem}.json", (json.dumps(trained.log, indent=1) + "\n").encode())
    return folder / f"{stem}.safetensors"


def _kind(kind: str) -> Any:
    if kind not in KINDS:
        raise BadInput(f"there is no kind of training called {kind!r}; known: {', '.join(KINDS)}.")
    return import_module(KINDS[kind])


def _entry(recipe: Recipe) -> Entry:
    if recipe.model not in ZOO:
        raise BadInput(f"there is no architecture called {recipe.model!r} to train; known: {', '.join(ZOO)}.")
    if recipe.epochs < 1 or recipe.batch_size < 1 or recipe.shift < 0:
        raise BadInput(f"a recipe needs at least one epoch, one image per batch and no negative shift; got {recipe}.")
    return ZOO[recipe.model]


def _trainable(entry: Entry) -> Classifier:
    mean, std = entry.normalisation or (None, None)
    model = Classifier(build(entry), name=entry.name, mean=mean, std=std, dataset=entry.dataset, shape=entry.shape, classes=entry.classes)
    return model.requires_grad_(True)


def _rate(progress: float, warm_up: float) -> float:
    if progress < warm_up:
        return (progress + 1e-3) / (warm_up + 1e-3)
    return 0.5 * (1 + math.cos(math.pi * (progress - warm_up) / (1 - warm_up)))


def _shifted(x: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Each image (B, C, H, W) moved by its own whole number of pixels, at most ``most`` in each direction."""
    if most == 0:
        return x
    high, wide = x.shape[2:]
    padded = torch.nn.functional.pad(x, (most,) * 4)
    moves = torch.randint(0, 2 * most + 1, (2, len(x)), generator=generator)
    rows = (moves[0][:, None] + torch.arange(high))[:, None, :, None]
    columns = (moves[1][:, None] + torch.arange(wide))[:, None, None, :]
    return padded[torch.arange(len(x))[:, None, None, None], torch.arange(x.shape[1])[None, :, None, None], rows, columns]


def _write(path: Path, content: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as out:
        out.write(content)
    os.chmod(out.name, 0o644)
    os.replace(out.name, path)
