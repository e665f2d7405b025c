"""The networks known by name: the table in ``zoo.toml``, architectures in ``architectures.py``, weights beside them.

Weights are part of the package (``shipped``), are fetched by ``almakit.data.fetch`` under the name ``file``, or are the
user's own file: ``cifar10/wrn-28-10-carmon@checkpoint.pt``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from torch import nn

__all__ = ["ZOO", "Entry", "build"]

_SHAPES = {"mnist": (1, 28, 28), "cifar10": (3, 32, 32), "scenes": (3, 32, 32), "imagenet": (3, 224, 224)}
_CLASSES = {"scenes": 13, "imagenet": 1000}


@dataclass(frozen=True)
class Entry:
    """One network.

    Args:
        name: as in ``almakit run --model``.
        architecture: a function of ``architectures.py``, or a function without arguments that returns the network with
            fresh weights.
        about: a one-line description.
        dataset: the data set it classifies.
        shape: of its images, (C, H, W).
        accuracy: clean accuracy in percent on ``images`` images, which ``measured_on`` describes; ``stated_by``: who
            published it (None: measured by almakit).
        normalisation: means and standard deviations per channel, applied inside.
        file: the weights' name in ``data.fetch``.
        shipped: the weights' file in the package, with the sha256 of their tensors.
        whence: where a user gets weights that almakit cannot pin.
        via: the URI of another library that downloads them.
    """

    name: str
    architecture: str | Callable[[], nn.Module]
    about: str
    dataset: str
    shape: tuple[int, int, int]
    accuracy: float | None = None
    images: int | None = None
    measured_on: str = "the test set"
    file: str | None = None
    shipped: str | None = None
    sha256: str | None = None
    normalisation: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    classes: int = 10
    whence: str | None = None
    via: str | None = None
    stated_by: str | None = None

    @property
    def at_hand(self) -> bool:
        """Whether almakit knows where to get the weights; otherwise the user names a file."""
        return self.file is not None or self.shipped is not None


def build(entry: Entry) -> nn.Module:
    """The entry's architecture with fresh weights."""
    if not isinstance(entry.architecture, str):
        return entry.architecture()
    network: nn.Module = getattr(import_module(".architectures", __name__), entry.architecture)()
    return network


def _entry(name: str, dataset: str, mean: Any = None, std: Any = None, **facts: Any) -> Entry:
    normalisation = None if mean is None else (tuple(mean), tuple(std))
    classes = _CLASSES.get(dataset, 10)
    return Entry(name, dataset=dataset, shape=_SHAPES[dataset], classes=classes, normalisation=normalisation, **facts)


ZOO: dict[str, Entry] = {
    name: _entry(name, **facts)
    for name, facts in tomllib.loads((files(__name__) / "zoo.toml").read_text(encoding="utf-8")).items()
}
