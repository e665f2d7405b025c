"""The one training loop: seeded, the same on every run, with the objective as the only part that differs between kinds
of training."""

from __future__ import annotations

import inspect
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as as_bytes
from torch import Tensor, nn

from ..data.dataset import IGNORED, Dataset
from ..data.user_file import is_user_file
from ..errors import BadInput
from ..files import write_whole
from ..models.classifier import Classifier, state_sha256
from ..models.zoo import Entry, build
from . import check, own
from .augment import mirrored, shifted
from .checkpoint import read as read_checkpoint
from .checkpoint import write as write_checkpoint
from .schedule import learning_rate

Objective = Callable[[nn.Module, Tensor, Tensor, torch.Generator, float], Tensor]
"""loss = objective(model, x, labels, generator, progress): the model takes images in [0, 1] (B, C, H, W), ``progress``
runs from 0 to 1."""

KINDS = {
    "regular": "almakit.train.regular",
    "ddn": "almakit.train.ddn",
    "pgd": "almakit.train.pgd",
    "trades": "almakit.train.trades",
    "ibp": "almakit.train.ibp",
    "crown-ibp": "almakit.train.crown_ibp",
}
"""Kind of training -> its module, which has ``objective(**options) -> Objective`` and ``RECIPES``, a dict from model
name to recipe.

A kind that promises robustness has a ``NORM`` its radius is in, and ``measure(model, x, labels, **options)``,
percentages for the log on ``MEASURED`` test images.
"""

MEASURED = 1000

Trace = Callable[[dict[str, Any]], None]
"""Called after every epoch with its line of the log."""

BatchTrace = Callable[[int, int, float], None]
"""Called after every batch with its number, how many there are in all, and its loss."""


@dataclass(frozen=True)
class Recipe:
    """How a network of the zoo is trained: AdamW, a learning rate that rises for ``warm_up`` of the steps and falls
    along a cosine to zero.

    ``shift`` moves every training image by up to that many pixels in each direction, the border filled with zeros,
    ``flip`` mirrors half of them; ``options`` go to the objective of the ``kind`` of training. ``data`` are training
    images other than the data set's own training split. ``channels_last`` stores images channel by channel for each
    pixel, which is faster on CPUs and rounds differently.
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
    flip: bool = False
    data: str | None = None
    channels_last: bool = False


@dataclass(frozen=True)
class Trained:
    """A trained network, in evaluation mode, and the log of its training."""

    model: Classifier
    log: dict[str, Any]


def recipes() -> dict[str, Recipe]:
    """The recipes of the networks almakit ships, by model name."""
    return {name: recipe for kind in KINDS for name, recipe in _kind(kind).RECIPES.items()}


def train(
    recipe: Recipe,
    *,
    entry: Entry | None = None,
    limit: int | None = None,
    test_limit: int | None = None,
    test: Dataset | None = None,
    trace: Trace | None = None,
    checkpoint: Path | None = None,
    batch_trace: BatchTrace | None = None,
) -> Trained:
    """Trains the recipe's network on its data set's training split and measures its accuracy on the test split.

    All randomness comes from ``recipe.seed``: the first weights, the order, the shifts, dropout and whatever the
    objective draws from its generator. The caller's random state is left as it was. ``limit`` takes the first training
    images only. With ``checkpoint`` the state is kept in that file after every epoch, and a training that finds its own
    file there goes on to the same weights, bit for bit.

    ``entry`` describes a network that is not in the zoo; ``test`` are images to measure on instead of (the first
    ``test_limit`` of) the test split.
    """
    recipe = settled(recipe, entry)
    entry, objective = entry or own.entry_of(recipe), _kind(recipe.kind).objective(**recipe.options)
    begun = read_checkpoint(checkpoint, recipe, limit)
    training, test = own.data_of(recipe, entry, limit, test_limit, test)
    (x, labels), (seen, wanted) = training.tensors(), test.tensors()
    with torch.random.fork_rng(devices=[]):
        entry = own.facts_of(entry, x, labels)
    check.kept_in_place(recipe, labels)
    check.images(entry, training.name, x, labels)
    check.images(entry, test.name, seen, wanted)
    layout = torch.channels_last if recipe.channels_last else torch.contiguous_format
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        generator = torch.Generator().manual_seed(recipe.seed)
        model = _trainable(entry).to(memory_format=layout)  # type: ignore[call-overload]
        check.tried(objective, model, x, labels)
        optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
        per_epoch = math.ceil(len(x) / recipe.batch_size)
        total = per_epoch * recipe.epochs
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimiser, lambda step: learning_rate(step / total, recipe.warm_up)
        )
        epochs: list[dict[str, Any]] = []
        if begun is not None:
            model.network.load_state_dict(begun["model"])
            optimiser.load_state_dict(begun["optimiser"])
            schedule.load_state_dict(begun["schedule"])
            generator.set_state(begun["generator"])
            torch.set_rng_state(begun["random"])
            epochs = begun["epochs"]
        started = time.process_time() - (epochs[-1]["cpu_seconds"] if epochs else 0.0)
        for epoch in range(len(epochs), recipe.epochs):
            model.train()
            losses = []
            for number, rows in enumerate(torch.randperm(len(x), generator=generator).split(recipe.batch_size)):
                images = mirrored(shifted(x[rows], recipe.shift, generator), recipe.flip, generator).contiguous(
                    memory_format=layout
                )
                loss = objective(model, images, labels[rows], generator, (epoch * per_epoch + number) / total)
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                optimiser.step()
                schedule.step()
                losses.append(float(loss.detach()))
                if batch_trace is not None:
                    batch_trace(epoch * per_epoch + number + 1, total, losses[-1])
            line = {
                "epoch": epoch + 1,
                "loss": round(sum(losses) / len(losses), 6),
                "cpu_seconds": round(time.process_time() - started, 1),
            }
            if not math.isfinite(line["loss"]):
                raise BadInput(
                    f"the loss of {recipe.model} is {line['loss']} after epoch {epoch + 1}; try a smaller learning "
                    "rate."
                )
            epochs.append(line)
            if checkpoint is not None:
                state = {
                    "model": model.network.state_dict(),
                    "optimiser": optimiser.state_dict(),
                    "schedule": schedule.state_dict(),
                    "generator": generator.get_state(),
                    "random": torch.get_rng_state(),
                    "epochs": epochs,
                }
                write_checkpoint(checkpoint, recipe, limit, state)
            if trace is not None:
                trace(line)
    model.to(memory_format=torch.contiguous_format).eval().requires_grad_(False)
    log = {
        "recipe": asdict(recipe),
        "training_images": len(training),
        "test_images": len(test),
        "clean_accuracy": round(100 * accuracy(model, seen, wanted), 3),
        **({"mean_iou": round(100 * mean_iou(model, seen, wanted), 3)} if wanted.ndim == 3 else {}),
        **_robustness(recipe, model, seen[:MEASURED], wanted[:MEASURED]),
        "weights_sha256": state_sha256(_weights(model)),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "epochs": epochs,
    }
    return Trained(model, log)


def _robustness(recipe: Recipe, model: Classifier, x: Tensor, labels: Tensor) -> dict[str, Any]:
    """What the kind of training promises, measured on the images ``x`` (N, C, H, W) with ``labels`` (N,)."""
    measure = getattr(_kind(recipe.kind), "measure", None)
    if measure is None:
        return {}
    found = measure(model, x, labels, **recipe.options)
    return {
        "measured_images": len(x),
        **{name: value if name == "epsilon" else round(value, 3) for name, value in found.items()},
    }


def accuracy(model: nn.Module, x: Tensor, labels: Tensor, batch_size: int = 500) -> float:
    """The share of the images ``x`` (N, C, H, W) whose largest logit is that of their label (N,); with label maps (N,
    H, W) of the labelled pixels."""
    predicted = _predicted(model, x, batch_size)
    counted = torch.ones_like(labels, dtype=torch.bool) if labels.ndim == 1 else labels != IGNORED
    return float((predicted == labels)[counted].double().mean())


def mean_iou(model: nn.Module, x: Tensor, maps: Tensor, batch_size: int = 500) -> float:
    """The mean over the classes in ``maps`` (N, H, W) of (labelled and predicted so) / (labelled or predicted so), over
    all labelled pixels."""
    counted = maps != IGNORED
    predicted, wanted = _predicted(model, x, batch_size)[counted], maps[counted]
    both = [((predicted == one) & (wanted == one), (predicted == one) | (wanted == one)) for one in wanted.unique()]
    return sum(int(meet.sum()) / int(join.sum()) for meet, join in both) / len(both)


@torch.no_grad()
def _predicted(model: nn.Module, x: Tensor, batch_size: int) -> Tensor:
    return torch.cat([model(part).argmax(1) for part in x.split(batch_size)])


def save(trained: Trained, folder: Path) -> Path:
    """Writes the weights (safetensors) and beside them the log (JSON), each whole or not at all; returns the weights'
    path."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = own.stem_of(trained.log["recipe"]["model"])
    write_whole(folder / f"{stem}.safetensors", as_bytes(_weights(trained.model)))
    write_whole(folder / f"{stem}.json", (json.dumps(trained.log, indent=1) + "\n").encode())
    return folder / f"{stem}.safetensors"


def _weights(model: Classifier) -> dict[str, Tensor]:
    """What of the network is kept: all but the counters of batch norm, which no answer depends on."""
    return {
        key: value.contiguous()
        for key, value in model.network.state_dict().items()
        if not key.endswith("num_batches_tracked")
    }


def _kind(kind: str) -> Any:
    if kind not in KINDS:
        raise BadInput(f"there is no kind of training called {kind!r}; known: {', '.join(KINDS)}.")
    return import_module(KINDS[kind])


def settled(recipe: Recipe, entry: Entry | None = None) -> Recipe:
    """The recipe as it will be trained, with the radius of its data set where it needs one; one that cannot be trained
    is refused."""
    entry = entry or own.entry_of(recipe)
    kind = _kind(recipe.kind)
    check.settings(recipe, tuple(inspect.signature(kind.objective).parameters))
    return check.with_radius(recipe, entry, getattr(kind, "NORM", None))


def _trainable(entry: Entry) -> Classifier:
    mean, std = entry.normalisation or (None, None)
    network = own.network_of(entry) if is_user_file(entry.name) else build(entry)
    model = Classifier(
        network, name=entry.name, mean=mean, std=std, dataset=entry.dataset, shape=entry.shape, classes=entry.classes
    )
    return model.requires_grad_(True)
