"""Small networks nobody has tuned an attack on (recipes.py): some for choosing the default attack, others sealed until
it is reported.

``python -m benchmarks walk pool`` lists and trains them. ``load(name)`` is the model, images in [0, 1] to logits. A
sealed network needs ``sealed=True``, so that nobody looks by accident: nothing may be chosen by its figures. Training
and its PGD check see training images only. The first sixteen were drawn into halves before any attack had run
(split.json); the fresh ones came when the sealed half had been run, the pairs when those had been.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

HERE = Path(__file__).resolve().parent

from almakit import data, train
from almakit.errors import BadInput, BadModel
from almakit.models.classifier import Classifier, state_sha256
from almakit.models.weights import fit, read
from almakit.models.zoo import Entry, build
from almakit.train.loop import settled
from benchmarks.pool.recipes import FIRST, FRESH, PAIRS, SHAPES

HALVES = ("choosing", "sealed", "fresh", "choosing-2", "sealed-2")
POOL = FIRST | FRESH | PAIRS
HELD_OUT = {"mnist": range(9000, 10000), "cifar10": range(2000, 10000)}
"""Test images of the clean accuracy on record."""
FEW = {"mnist": range(9000, 9200), "cifar10": range(200)}
"""Test images on which the number of right answers is on record for a quick check that the weights do what they did."""
SANITY = 500
"""So many training images are attacked with PGD after a robust training; no other attack runs here."""


def draw() -> dict[str, list[str]]:
    """The halves: the names of each data set, sorted, shuffled by the sha256 of all names; the first half is for
    choosing."""
    chance = random.Random(seed())
    halves: dict[str, list[str]] = {half: [] for half in HALVES[:2]}
    for dataset in sorted(SHAPES):
        names = sorted(name for name in FIRST if FIRST[name].entry.dataset == dataset)
        chance.shuffle(names)
        halves["choosing"] += names[: len(names) // 2]
        halves["sealed"] += names[len(names) // 2 :]
    return {half: sorted(names) for half, names in halves.items()}


def draw_pairs() -> dict[str, list[str]]:
    """The halves of the last eight: of each pair the lot takes one for choosing, the sha256 of all names the seed."""
    chance, names = random.Random(seed(PAIRS)), list(PAIRS)
    pairs = [chance.sample(names[first : first + 2], 2) for first in range(0, len(names), 2)]
    return {half: sorted(pair[side] for pair in pairs) for side, half in enumerate(HALVES[3:])}


def seed(names: Iterable[str] = FIRST) -> str:
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()


def halves() -> dict[str, list[str]]:
    """The names of each part of the pool, on record."""
    recorded = json.loads((HERE / "split.json").read_text(encoding="utf-8"))
    return {half: recorded[half] for half in HALVES}


def log(name: str) -> dict[str, Any]:
    """What is on record of the network's training: recipe, losses, accuracies, the sha256 of its weights."""
    found: dict[str, Any] = json.loads((HERE / "weights" / f"{name}.json").read_text(encoding="utf-8"))
    return found


def load(name: str, sealed: bool = False) -> Classifier:
    """The network with its weights, in evaluation mode: images in [0, 1] to logits; ``sealed`` opens a sealed one."""
    if name not in POOL:
        raise BadInput(f"there is no network {name!r} in the pool; known: {', '.join(POOL)}.")
    if not sealed and not any(name in names for half, names in halves().items() if half.startswith("choosing")):
        raise BadInput(
            f"{name} is sealed: nothing may be chosen by looking at it. To report on it, once and at the end, say "
            "sealed=True."
        )
    entry, state = POOL[name].entry, read(HERE / "weights" / f"{name}.safetensors")
    network = build(entry)
    fit(network, state, name)
    if (found := state_sha256(state)) != log(name)["weights_sha256"]:
        raise BadModel(
            f"the weights of {name} are not those of its log: sha256 {found}; restore both files, or train it again."
        )
    return _classifier(entry, network)


def images(name: str, rows: range) -> tuple[Tensor, Tensor]:
    """Test images of the network's data set and their labels."""
    return data.load(POOL[name].entry.dataset, offset=rows.start, limit=len(rows)).tensors()


def make(name: str) -> None:
    """Trains the network, unless its weights are there, and keeps weights and log."""
    network = POOL[name]
    recipe = settled(network.recipe, network.entry)
    made_of = {"recipe": asdict(recipe), "limit": network.limit, "architecture": str(build(network.entry))}
    if (HERE / "weights" / f"{name}.safetensors").is_file() and made_of.items() <= log(name).items():
        print(f"{name}: nothing is left to do.")
        return
    torch.set_num_threads(1)
    training = data.load(network.entry.dataset, split="train", limit=SANITY)
    trained = train.train(
        recipe, entry=network.entry, limit=network.limit, test=training, trace=partial(print, name, flush=True)
    )
    facts = made_of | trained.log
    facts["accuracy_on_training_images"] = facts.pop("clean_accuracy")
    facts["measured_on"] = f"the first {facts.pop('test_images')} training images"
    facts["clean_accuracy"] = round(
        100 * train.accuracy(trained.model, *images(name, HELD_OUT[network.entry.dataset])), 2
    )
    x, labels = images(name, FEW[network.entry.dataset])
    facts["few_right"] = round(len(x) * train.accuracy(trained.model, x, labels))
    train.save(train.Trained(trained.model, facts), HERE / "weights")
    print(f"{name}: clean accuracy {facts['clean_accuracy']} %", flush=True)


def rows() -> Iterator[str]:
    """The table of the README."""
    yield "| network | half | kind | pooling | weights | trained, s | clean % | PGD % (training images) | verified % |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for half, names in halves().items():
        for name in names:
            network, there = POOL[name], (HERE / "weights" / f"{name}.json").is_file()
            found = log(name) if there else {}
            seconds = f"{found['epochs'][-1]['cpu_seconds']:.0f}" if there else "not yet"
            size = sum(weight.numel() for weight in build(network.entry).parameters())
            figures = (found.get(key, "") for key in ("clean_accuracy", "pgd_accuracy", "verified_accuracy"))
            cells = (name, half, network.entry.about, "yes" if network.pooling else "no", size, seconds, *figures)
            yield f"| {' | '.join(map(str, cells))} |"


def _classifier(entry: Entry, network: nn.Module) -> Classifier:
    mean, std = entry.normalisation or (None, None)
    return Classifier(
        network,
        name=f"pool/{entry.name}",
        mean=mean,
        std=std,
        dataset=entry.dataset,
        shape=entry.shape,
        classes=entry.classes,
    )
