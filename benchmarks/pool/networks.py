"""Sixteen small networks nobody has tuned an attack on: half for choosing the default attack, half sealed until it is
reported.

    python benchmarks/pool/networks.py ls                      every network, its half, kind, size and accuracy
    python benchmarks/pool/networks.py train mnist-mlp         trains it again (one thread, minutes); goes on where it
      was stopped
    python benchmarks/pool/networks.py train choosing sealed   every network of these halves whose weights are not there

``load(name)`` is the model, images in [0, 1] to logits. A sealed network needs ``sealed=True``, so that nobody looks by
accident: nothing may be chosen by its figures. Training and its PGD check see training images only. The halves were
drawn before any attack had run (split.json).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))  # the other benchmarks, also when this file is run or loaded by its path

from subjects import Quantised, Winners

from almakit import data, train
from almakit.errors import BadInput, BadModel
from almakit.models.classifier import Classifier, state_sha256
from almakit.models.weights import fit, read
from almakit.models.zoo import Entry, build, small
from almakit.train.loop import settled

HALVES = ("choosing", "sealed")
SHAPES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}
NORMALISATION = {"cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))}
HELD_OUT = {"mnist": range(9000, 10000), "cifar10": range(2000, 10000)}
"""Test images of the clean accuracy on record."""
FEW = {"mnist": range(9000, 9200), "cifar10": range(200)}
"""Test images on which the number of right answers is on record for a quick check that the weights do what they did."""
SANITY = 500
"""So many training images are attacked with PGD after a robust training; no other attack runs here."""


@dataclass(frozen=True)
class Network:
    """A network of the pool: its ``entry`` (architecture and data set), how it is trained, and on how many images
    (None: all)."""

    entry: Entry
    recipe: train.Recipe
    limit: int | None = None

    @property
    def pooling(self) -> bool:
        return any(isinstance(layer, nn.MaxPool2d) for layer in build(self.entry).modules())


def _network(
    name: str,
    about: str,
    features: str,
    hidden: Sequence[int],
    activation: Callable[[], nn.Module] = nn.ReLU,
    limit: int | None = None,
    **recipe: Any,
) -> Network:
    dataset = name.partition("-")[0]
    architecture = partial(small.plain, SHAPES[dataset], features, hidden, activation)
    entry = Entry(name, architecture, about, dataset, SHAPES[dataset], normalisation=NORMALISATION.get(dataset))
    usual: dict[str, Any] = {
        "shift": 0 if dataset == "mnist" else 2,
        "flip": dataset == "cifar10",
        "channels_last": True,
    }
    return Network(entry, train.Recipe(name, **usual | recipe), limit)


POOL = {
    network.entry.name: network
    for network in (
        _network("mnist-mlp", "regular, two hidden layers, ReLU", "", (128, 128), epochs=6, learning_rate=2e-3),
        _network(
            "mnist-near-linear",
            "regular, leaky ReLU of slope 0.8: nearly a linear model",
            "",
            (96, 96),
            partial(nn.LeakyReLU, 0.8),
            epochs=5,
            learning_rate=1e-3,
        ),
        _network("mnist-tanh", "regular, tanh", "12 pool 24 pool", (60,), nn.Tanh, epochs=3, seed=1),
        _network(
            "mnist-kwta",
            "regular, k-winners-take-all: the largest 15 % of each layer's activations",
            "16/2 32/2",
            (80,),
            partial(Winners, 0.15),
            epochs=6,
            seed=2,
        ),
        _network(
            "mnist-sigmoid-pgd",
            "PGD, linf 0.1, one hidden layer, sigmoid",
            "",
            (200,),
            nn.Sigmoid,
            kind="pgd",
            epochs=6,
            seed=3,
            learning_rate=5e-3,
            weight_decay=1e-4,
            options={"radius": 0.1, "steps": 5},
        ),
        _network(
            "mnist-pgd",
            "PGD, linf 0.15, strided convolutions",
            "12/2 24/2",
            (64,),
            kind="pgd",
            epochs=4,
            seed=4,
            options={"radius": 0.15, "steps": 5},
        ),
        _network(
            "mnist-trades-deep",
            "TRADES, linf 0.2, beta 4, six layers",
            "8/2 16 pool 16 24",
            (40,),
            kind="trades",
            epochs=3,
            seed=5,
            options={"radius": 0.2, "steps": 5, "beta": 4.0},
        ),
        _network(
            "mnist-ddn",
            "DDN, l2 1.0",
            "16/2 pool 32",
            (48,),
            kind="ddn",
            epochs=3,
            seed=6,
            options={"radius": 1.0, "steps": 4},
        ),
        _network(
            "mnist-ibp",
            "IBP, linf 0.1, strided convolutions",
            "16/2 32/2",
            (64,),
            kind="ibp",
            epochs=6,
            seed=7,
            learning_rate=1.5e-3,
            weight_decay=0.0,
            options={"radius": 0.1, "train_radius": 0.11, "begin": 0.08, "end": 0.7},
        ),
        _network(
            "mnist-crown-ibp",
            "CROWN-IBP, linf 0.3, strided convolutions",
            "12/2 24/2",
            (64,),
            kind="crown-ibp",
            epochs=6,
            seed=8,
            learning_rate=1.5e-3,
            weight_decay=0.0,
            options={"radius": 0.3, "begin": 0.1, "end": 0.6},
        ),
        _network("cifar10-regular", "regular, three convolutions", "16 pool 32 pool 32 pool", (64,), epochs=4, seed=9),
        _network(
            "cifar10-quantised",
            "regular, activations of 16 levels",
            "16/2 32/2 48/2",
            (64,),
            partial(Quantised, 16),
            epochs=8,
            seed=10,
            learning_rate=2e-3,
        ),
        _network(
            "cifar10-pgd",
            "PGD, linf 2/255, strided convolutions",
            "16/2 32/2 32",
            (64,),
            kind="pgd",
            epochs=4,
            seed=11,
            options={"radius": 2 / 255, "steps": 4},
        ),
        _network(
            "cifar10-trades",
            "TRADES, linf 4/255, beta 3",
            "16/2 24 pool",
            (80,),
            kind="trades",
            epochs=3,
            seed=12,
            options={"radius": 4 / 255, "steps": 4, "beta": 3.0},
        ),
        _network(
            "cifar10-ddn",
            "DDN, l2 0.25",
            "24/2 pool 32",
            (64,),
            kind="ddn",
            epochs=3,
            seed=13,
            options={"radius": 0.25, "steps": 4},
        ),
        _network(
            "cifar10-ibp",
            "IBP, linf 2/255, strided convolutions",
            "16/2 32/2",
            (64,),
            kind="ibp",
            epochs=8,
            seed=14,
            learning_rate=1e-3,
            weight_decay=0.0,
            options={"radius": 2 / 255, "begin": 0.1, "end": 0.7},
        ),
    )
}
"""The one table. Names and their halves are fixed; a recipe may only change together with its weights."""


def draw() -> dict[str, list[str]]:
    """The halves: the names of each data set, sorted, shuffled by the sha256 of all names; the first half is for
    choosing."""
    chance = random.Random(seed())
    halves: dict[str, list[str]] = {half: [] for half in HALVES}
    for dataset in sorted(SHAPES):
        names = sorted(name for name in POOL if POOL[name].entry.dataset == dataset)
        chance.shuffle(names)
        halves["choosing"] += names[: len(names) // 2]
        halves["sealed"] += names[len(names) // 2 :]
    return {half: sorted(names) for half, names in halves.items()}


def seed() -> str:
    return hashlib.sha256("\n".join(sorted(POOL)).encode()).hexdigest()


def halves() -> dict[str, list[str]]:
    """The halves on record."""
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
    if name in halves()["sealed"] and not sealed:
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
    checkpoint = HERE / ".cache" / f"{name}.pt"
    training = data.load(network.entry.dataset, split="train", limit=SANITY)
    trained = train.train(
        recipe,
        entry=network.entry,
        limit=network.limit,
        test=training,
        trace=partial(print, name, flush=True),
        checkpoint=checkpoint,
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
    checkpoint.unlink()
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("ls", "train"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks, or choosing, or sealed")
    args = parser.parse_args()
    if args.verb == "ls":
        print("\n".join(rows()))
        return
    for word in args.names:
        if word not in POOL and word not in HALVES:
            parser.error(f"there is no network {word!r} in the pool; known: {', '.join((*HALVES, *POOL))}.")
        for name in sorted(halves()[word], key=list(POOL).index) if word in HALVES else [word]:
            make(name)


if __name__ == "__main__":
    main()
