"""The recipes of the pool's networks: architecture, data set and training; the one table, by name.

A recipe may only change together with its weights, and none of the fresh ones after any attack has seen its network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from almakit import train
from almakit.models.zoo import Entry, build
from benchmarks.pool import training  # noqa: F401  registers the kinds noise, l1 and pruned
from benchmarks.pool.architectures import deep_residual, depthwise, mixer, plain, residual
from benchmarks.subjects import Quantised, Winners

SHAPES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32)}
NORMALISATION = {"cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))}


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
    features: str | Callable[[], nn.Module],
    hidden: Sequence[int] = (),
    activation: Callable[[], nn.Module] = nn.ReLU,
    limit: int | None = None,
    **recipe: Any,
) -> Network:
    dataset = name.partition("-")[0]
    architecture = (
        partial(plain, SHAPES[dataset], features, hidden, activation) if isinstance(features, str) else features
    )
    entry = Entry(name, architecture, about, dataset, SHAPES[dataset], normalisation=NORMALISATION.get(dataset))
    usual: dict[str, Any] = {
        "shift": 0 if dataset == "mnist" else 2,
        "flip": dataset == "cifar10",
        "channels_last": True,
    }
    return Network(entry, train.Recipe(name, **usual | recipe), limit)


FIRST = {
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
"""Drawn into the halves choosing and sealed before any was trained."""

FRESH = {
    network.entry.name: network
    for network in (
        _network("mnist-mixer", "regular, MLP mixer over 4 x 4 patches, layer norm, GELU", mixer, epochs=3, seed=21),
        _network(
            "mnist-residual-pgd",
            "PGD, linf 0.2, two residual blocks, average pooling",
            partial(residual, SHAPES["mnist"], 12, 2, norm=False),
            kind="pgd",
            epochs=2,
            seed=22,
            options={"radius": 0.2, "steps": 4},
        ),
        _network(
            "mnist-elu-trades",
            "TRADES, linf 0.1, beta 6, ELU",
            "12/2 24/2",
            (48, 48),
            nn.ELU,
            kind="trades",
            epochs=2,
            seed=23,
            options={"radius": 0.1, "steps": 4, "beta": 6.0},
        ),
        _network(
            "mnist-ibp-deep",
            "IBP, linf 0.2, three strided convolutions, two hidden layers",
            "12/2 24/2 32/2",
            (64, 32),
            kind="ibp",
            epochs=6,
            seed=24,
            learning_rate=1.5e-3,
            weight_decay=0.0,
            options={"radius": 0.2, "begin": 0.1, "end": 0.7},
        ),
        _network(
            "cifar10-residual",
            "regular, two residual blocks with batch norm, average pooling",
            partial(residual, SHAPES["cifar10"], 24, 2, norm=True),
            epochs=2,
            seed=25,
        ),
        _network(
            "cifar10-gelu-ddn",
            "DDN, l2 0.5, GELU",
            "16/2 32/2",
            (64,),
            nn.GELU,
            kind="ddn",
            epochs=3,
            seed=26,
            options={"radius": 0.5, "steps": 3},
        ),
    )
}
"""Decided after the sealed half had been run twice, and before any of these was trained: sealed too, run once."""

GROUP_NORM = partial(nn.GroupNorm, 4)
PAIRS = {
    network.entry.name: network
    for network in (
        _network(
            "cifar10-deep",
            "regular, residual, 24 layers, batch norm",
            partial(deep_residual, SHAPES["cifar10"], (12, 20, 28), (4, 4, 2)),
            epochs=2,
            seed=31,
        ),
        _network(
            "cifar10-deep-noise",
            "Gaussian noise of 0.12, residual, 18 layers, group norm, SiLU",
            partial(deep_residual, SHAPES["cifar10"], (12, 20, 28), (3, 3, 1), GROUP_NORM, nn.SiLU),
            kind="noise",
            epochs=2,
            seed=32,
            options={"deviation": 0.12},
        ),
        _network(
            "cifar10-depthwise-pgd",
            "PGD, linf 8/255, depthwise convolutions",
            partial(depthwise, SHAPES["cifar10"], (24, 48, 72), 48),
            kind="pgd",
            epochs=3,
            seed=33,
            options={"radius": 8 / 255, "steps": 3},
        ),
        _network(
            "cifar10-l1",
            "PGD, l1 12, strided convolutions, SiLU",
            "16/2 24/2 32/2",
            (64,),
            nn.SiLU,
            kind="l1",
            epochs=3,
            seed=34,
            options={"radius": 12.0, "steps": 3},
        ),
        _network(
            "mnist-groupnorm-ddn",
            "DDN, l2 2.5, residual, 9 layers, group norm",
            partial(deep_residual, SHAPES["mnist"], (8, 16), (2, 1), GROUP_NORM),
            kind="ddn",
            epochs=2,
            seed=35,
            limit=30000,
            options={"radius": 2.5, "steps": 3},
        ),
        _network(
            "mnist-silu-noise",
            "Gaussian noise of 0.5, strided convolutions, SiLU",
            "12/2 24/2",
            (48,),
            nn.SiLU,
            kind="noise",
            epochs=4,
            seed=36,
            options={"deviation": 0.5},
        ),
        _network(
            "mnist-depthwise",
            "regular, depthwise convolutions",
            partial(depthwise, SHAPES["mnist"], (16, 32, 48), 48),
            epochs=3,
            seed=37,
        ),
        _network(
            "mnist-pruned",
            "regular, nine tenths of the weights pruned",
            "16/2 24/2",
            (40,),
            kind="pruned",
            epochs=4,
            seed=38,
            options={"share": 0.9},
        ),
    )
}
"""Decided on before any was trained, in pairs of like kind; the lot took one of each for choosing."""
