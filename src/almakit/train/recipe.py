"""Recipes: how a network is trained, the recipes of the shipped networks, and the values that settings may have."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..errors import BadInput
from ..models.zoo import Entry
from .objectives import KINDS, Kind

RADII = {"cifar10": {"l2": 0.5, "linf": 8 / 255}}
"""Default radius of robust training by data set and norm; the defaults of the objectives are MNIST's."""

Rule = tuple[str, Callable[[float], bool]]
POSITIVE: Rule = ("a number above 0", lambda value: value > 0)
NOT_NEGATIVE: Rule = ("a number from 0 on", lambda value: value >= 0)
SHARE: Rule = ("a number from 0 to 1", lambda value: 0 <= value <= 1)
COUNT: Rule = ("a whole number from 1 on", lambda value: value >= 1 and value == int(value))
SETTINGS: dict[str, Rule] = {
    "epochs": COUNT,
    "batch_size": COUNT,
    "learning_rate": POSITIVE,
    "weight_decay": NOT_NEGATIVE,
    "warm_up": ("a number from 0 to below 1", lambda value: 0 <= value < 1),
    "shift": ("a whole number from 0 on", lambda value: value >= 0 and value == int(value)),
}
OPTIONS: dict[str, Rule] = {
    "radius": POSITIVE,
    "train_radius": POSITIVE,
    "steps": COUNT,
    "gamma": ("a number between 0 and 1", lambda value: 0 < value < 1),
    "beta": NOT_NEGATIVE,
    **dict.fromkeys(("balance", "warm_up", "kappa_last", "beta_last", "begin", "end"), SHARE),
}


@dataclass(frozen=True)
class Recipe:
    """How a network is trained: AdamW with a learning rate that rises for ``warm_up`` of the steps and falls along a
    cosine to zero.

    Args:
        model: the network: its name in the zoo, or ``file.py:function``.
        kind: the kind of training, one of ``KINDS``; ``options`` are those of its objective.
        shift: moves every training image by up to so many pixels in each direction, the border filled with zeros.
        flip: mirrors half of the training images.
        data: training images other than the data set's own training split.
        channels_last: stores images channel by channel for each pixel, which is faster on CPUs and rounds differently.
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

    @property
    def training(self) -> Kind:
        """The kind of training, as a value."""
        if self.kind not in KINDS:
            raise BadInput(f"there is no kind of training called {self.kind!r}; known: {', '.join(KINDS)}.")
        return KINDS[self.kind]


SHIPPED = (
    Recipe("mnist/smallcnn-tiny"),
    Recipe(
        "scenes/unet-small",
        epochs=12,
        batch_size=32,
        learning_rate=4e-3,
        shift=0,
        options={"balance": 0.5},
        channels_last=True,
    ),
    Recipe(
        "mnist/smallcnn-tiny-ddn",
        kind="ddn",
        epochs=2,
        batch_size=64,
        shift=1,
        channels_last=True,
        options={"radius": 2.0, "steps": 4},
    ),
    Recipe(
        "mnist/smallcnn-tiny-trades",
        kind="trades",
        epochs=4,
        batch_size=64,
        shift=0,
        channels_last=True,
        options={"radius": 0.3, "steps": 6, "beta": 1.0},
    ),
    Recipe(
        "mnist/smallcnn-tiny-ibp",
        kind="ibp",
        epochs=10,
        learning_rate=1.5e-3,
        weight_decay=0.0,
        shift=0,
        channels_last=True,
        options={"radius": 0.2, "train_radius": 0.22, "begin": 0.08, "end": 0.7},
    ),
    Recipe(
        "mnist/mlp-2x100",
        kind="ibp",
        epochs=12,
        learning_rate=1.5e-3,
        weight_decay=0.0,
        shift=0,
        options={"radius": 0.08, "kappa_last": 0.5},
    ),
)


def recipes() -> dict[str, Recipe]:
    """The recipes of the networks almakit ships, by model name."""
    return {recipe.model: recipe for recipe in SHIPPED}


def checked(recipe: Recipe, entry: Entry) -> Recipe:
    """The recipe with the radius of its data set where its kind of training needs one; settings that no training can
    use are refused."""
    kind = recipe.training
    for name, rule in SETTINGS.items():
        _check(name, getattr(recipe, name), rule)
    for name, value in recipe.options.items():
        if name not in kind.options:
            raise BadInput(
                f"the kind of training {recipe.kind!r} has no option {name!r}; its options are "
                f"{', '.join(kind.options)}."
            )
        hint = " (without a radius it is --kind regular)" if name == "radius" and value == 0 else ""
        _check(name, value, OPTIONS[name], hint)
    begin, end = recipe.options.get("begin", 0.0), recipe.options.get("end", 1.0)
    if begin > end:
        raise BadInput(f"begin={begin:g} lies after end={end:g}; give a smaller one.")
    if kind.norm is None or "radius" in recipe.options or entry.dataset == "mnist":
        return recipe
    radius = RADII.get(entry.dataset, {}).get(kind.norm)
    if radius is None:
        raise BadInput(f"there is no usual {kind.norm} radius for {entry.dataset}: give one, --option radius=R.")
    return replace(recipe, options={"radius": radius, **recipe.options})


def _check(name: str, value: float, rule: Rule, hint: str = "") -> None:
    words, holds = rule
    if not (math.isfinite(value) and holds(value)):
        raise BadInput(f"{name}={value:g}: give {words}{hint}.")
