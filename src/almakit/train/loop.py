"""The training loop, deterministic for a seed. Kinds of training differ only in their objective."""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as as_bytes
from torch import Tensor, nn

from ..data.dataset import IGNORED, Dataset
from ..errors import BadInput
from ..files import write_whole
from ..models.classifier import Classifier, state_sha256
from ..models.zoo import Entry
from . import networks
from .networks import settled
from .recipe import Recipe

MEASURED = 1000
"""Number of test images on which robustness is measured."""

Trace = Callable[[dict[str, Any]], None]
"""Called after every epoch with its entry of the log."""
BatchTrace = Callable[[int, int, float], None]
"""Called after every batch with its number, the number of batches, and its loss."""


@dataclass(frozen=True)
class Trained:
    """A trained network, in evaluation mode, and the log of its training."""

    model: Classifier
    log: dict[str, Any]


def train(
    recipe: Recipe,
    *,
    entry: Entry | None = None,
    limit: int | None = None,
    test_limit: int | None = None,
    test: Dataset | None = None,
    trace: Trace | None = None,
    batch_trace: BatchTrace | None = None,
) -> Trained:
    """Trains the recipe's network on its data set's training split and measures its accuracy on the test split.

    All randomness comes from ``recipe.seed``: the first weights, the order, the shifts, dropout and what the objective
    draws from its generator. The caller's random state is left unchanged.

    Args:
        recipe: network, kind of training and settings.
        entry: describes a network that is not in the zoo.
        limit: number of training images, the first ones; None: all.
        test_limit: number of test images.
        test: images that replace the test split.
        trace: called after every epoch.
        batch_trace: called after every batch.
    """
    recipe = settled(recipe, entry)
    entry, objective = entry or networks.entry_of(recipe), recipe.training.objective(**recipe.options)
    training, test = networks.data_of(recipe, entry, limit, test_limit, test)
    (x, labels), (test_x, test_labels) = training.tensors(), test.tensors()
    if labels.ndim == 3 and (recipe.shift or recipe.flip):
        raise BadInput("shift and flip move images and not their label maps: leave flip out and give --shift 0.")
    layout = torch.channels_last if recipe.channels_last else torch.contiguous_format
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        generator = torch.Generator().manual_seed(recipe.seed)
        model = networks.trainable(entry, x, labels).to(memory_format=layout)  # type: ignore[call-overload]
        networks.check_labels(model, training.name, labels)
        networks.check_labels(model, test.name, test_labels)
        # A loss that cannot be computed, of a network without interval bounds for example, is found before the first
        # epoch, on a copy and with a generator of its own.
        with torch.random.fork_rng(devices=[]):
            tried = torch.Generator().manual_seed(0)
            objective(copy.deepcopy(model).train(), x[:2], labels[:2], tried, 1.0)
        optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
        per_epoch = math.ceil(len(x) / recipe.batch_size)
        total = per_epoch * recipe.epochs
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimiser, lambda step: learning_rate(step / total, recipe.warm_up)
        )
        epochs: list[dict[str, Any]] = []
        started = time.process_time()
        for epoch in range(recipe.epochs):
            model.train()
            losses = []
            for number, rows in enumerate(torch.randperm(len(x), generator=generator).split(recipe.batch_size)):
                images = shifted(x[rows], recipe.shift, generator)
                images = mirrored(images, generator) if recipe.flip else images
                progress = (epoch * per_epoch + number) / total
                loss = objective(model, images.contiguous(memory_format=layout), labels[rows], generator, progress)
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                optimiser.step()
                schedule.step()
                losses.append(float(loss.detach()))
                if batch_trace is not None:
                    batch_trace(epoch * per_epoch + number + 1, total, losses[-1])
            mean, seconds = round(sum(losses) / len(losses), 6), round(time.process_time() - started, 1)
            if not math.isfinite(mean):
                raise BadInput(
                    f"the loss of {recipe.model} is {mean} after epoch {epoch + 1}; try a smaller learning rate."
                )
            epochs.append({"epoch": epoch + 1, "loss": mean, "cpu_seconds": seconds})
            if trace is not None:
                trace(epochs[-1])
    model.to(memory_format=torch.contiguous_format).eval().requires_grad_(False)
    robustness = recipe.training.measure(model, test_x[:MEASURED], test_labels[:MEASURED], recipe.options)
    if robustness:
        robustness = {"measured_images": min(MEASURED, len(test_x)), **robustness}
    log = {
        "recipe": asdict(recipe),
        "training_images": len(training),
        "test_images": len(test),
        "clean_accuracy": round(100 * accuracy(model, test_x, test_labels), 3),
        **({"mean_iou": round(100 * mean_iou(model, test_x, test_labels), 3)} if test_labels.ndim == 3 else {}),
        **robustness,
        "weights_sha256": state_sha256(_weights(model)),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "epochs": epochs,
    }
    return Trained(model, log)


def train_into(
    folder: Path,
    recipe: Recipe,
    *,
    limit: int | None = None,
    test_limit: int | None = None,
    trace: Trace | None = None,
    batch_trace: BatchTrace | None = None,
) -> tuple[Path, dict[str, Any] | None]:
    """Train into a folder. Returns the weights' path and the log, None if the folder contains this training already.
    See ``train`` for the other arguments."""
    recipe = settled(recipe)
    weights = folder / f"{networks.stem_of(recipe.model)}.safetensors"
    if weights.is_file() and _is_log_of(weights.with_suffix(".json"), recipe, limit, test_limit):
        return weights, None
    trained = train(recipe, limit=limit, test_limit=test_limit, trace=trace, batch_trace=batch_trace)
    trained.log.update(limit=limit, test_limit=test_limit)
    return save(trained, folder), trained.log


def _is_log_of(log: Path, recipe: Recipe, limit: int | None, test_limit: int | None) -> bool:
    try:
        found = json.loads(log.read_text(encoding="utf-8"))
        limits = found.get("limit"), found.get("test_limit")
        return bool(found["recipe"] == asdict(recipe) and limits == (limit, test_limit))
    except (OSError, ValueError, KeyError):
        return False


def learning_rate(progress: float, warm_up: float) -> float:
    """The share of the largest learning rate: a line up over ``warm_up`` of the training, then half a cosine to
    zero."""
    if progress < warm_up:
        return (progress + 1e-3) / (warm_up + 1e-3)
    return 0.5 * (1 + math.cos(math.pi * (progress - warm_up) / (1 - warm_up)))


def shifted(x: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Each image (B, C, H, W) moved by its own whole number of pixels, at most ``most`` in each direction."""
    if most == 0:
        return x
    high, wide = x.shape[2:]
    padded = torch.nn.functional.pad(x, (most,) * 4)
    moves = torch.randint(0, 2 * most + 1, (2, len(x)), generator=generator)
    rows = (moves[0][:, None] + torch.arange(high))[:, None, :, None]
    columns = (moves[1][:, None] + torch.arange(wide))[:, None, None, :]
    images, channels = torch.arange(len(x))[:, None, None, None], torch.arange(x.shape[1])[None, :, None, None]
    return padded[images, channels, rows, columns]


def mirrored(x: Tensor, generator: torch.Generator) -> Tensor:
    """Half of the images (B, C, H, W), drawn at random, with left and right exchanged."""
    chosen = torch.rand(len(x), generator=generator) < 0.5
    return torch.where(chosen[:, None, None, None], x.flip(3), x)


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
    predicted, labels = _predicted(model, x, batch_size)[counted], maps[counted]
    pairs = [(predicted == one, labels == one) for one in labels.unique()]
    return sum(int((a & b).sum()) / int((a | b).sum()) for a, b in pairs) / len(pairs)


@torch.no_grad()
def _predicted(model: nn.Module, x: Tensor, batch_size: int) -> Tensor:
    return torch.cat([model(part).argmax(1) for part in x.split(batch_size)])


def save(trained: Trained, folder: Path) -> Path:
    """Writes the weights (safetensors) and beside them the log (JSON), each atomically; returns the weights' path."""
    stem = networks.stem_of(trained.log["recipe"]["model"])
    write_whole(folder / f"{stem}.safetensors", as_bytes(_weights(trained.model)))
    write_whole(folder / f"{stem}.json", (json.dumps(trained.log, indent=1) + "\n").encode())
    return folder / f"{stem}.safetensors"


def _weights(model: Classifier) -> dict[str, Tensor]:
    """The network's state without the counters of batch norm, which no output depends on."""
    return {
        key: value.contiguous()
        for key, value in model.network.state_dict().items()
        if not key.endswith("num_batches_tracked")
    }
