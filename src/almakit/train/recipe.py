"""Recipes: how a network is trained. ``recipes.toml`` holds those of the networks in the package."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from importlib.resources import files

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from ..core.attack import check_range
from ..errors import BadInput
from .objectives import KINDS, Kind

RANGES = {
    "[1, inf)": "epochs batch_size steps",
    "(0, inf)": "learning_rate radius train_radius",
    "[0, inf)": "weight_decay shift beta",
    "[0, 1)": "warm_up",
    "(0, 1)": "gamma",
    "[0, 1]": "balance kappa_last beta_last begin end",
}
"""The interval of each setting and option."""
WHOLE = ("epochs", "batch_size", "shift", "steps")


@dataclass(frozen=True)
class Recipe:
    """How a network is trained: AdamW with a learning rate that rises for ``warm_up`` of the steps and falls along a
    cosine to zero.

    Args:
        model: the network: its name in the zoo, or ``file.py:function``.
        kind: the kind of training, one of ``KINDS``; ``options`` are those of its objective.
        shift: largest random shift of a training image in each direction, in pixels; the border is filled with zeros.
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
        """The ``Kind`` of training whose name is ``kind``."""
        if self.kind not in KINDS:
            raise BadInput(f"there is no kind of training called {self.kind!r}; known: {', '.join(KINDS)}.")
        return KINDS[self.kind]

    def check(self) -> None:
        """Raise an error for invalid settings."""
        known = self.training.options
        if unknown := [name for name in self.options if name not in known]:
            raise BadInput(
                f"the kind of training {self.kind!r} has no option {unknown[0]!r}; its options are {', '.join(known)}."
            )
        for settings in (vars(self), self.options):
            for interval, names in RANGES.items():
                for name in names.split():
                    check_range(name, settings.get(name), interval)
            for name in WHOLE:
                if settings.get(name, 0) % 1:
                    raise BadInput(f"{name}={settings[name]:g}: it must be a whole number.")
        begin, end = self.options.get("begin", 0.0), self.options.get("end", 1.0)
        if begin > end:
            raise BadInput(f"begin={begin:g} lies after end={end:g}; give a smaller one.")


def recipes() -> dict[str, Recipe]:
    """The recipes of the networks almakit ships, by model name."""
    found = tomllib.loads((files(__package__) / "recipes.toml").read_text(encoding="utf-8"))
    return {name: Recipe(name, **settings) for name, settings in found.items()}
