"""``almakit.attack``: the default attack in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from .attacks.soft_walk import SoftWalk
from .core import Result
from .core.attack import DistanceLike
from .core.oracle import Model


def attack(model: Model, x: Tensor, labels: Tensor | Sequence[int], targets: Tensor | Sequence[int] | None = None, *,
           distance: DistanceLike = "l2", steps: int = 100, **options: Any) -> Result:
    """The smallest change of the images ``x`` (B, ...) that makes ``model`` leave ``labels`` (B,), or reach ``targets`` (B,) where given.

    ``model`` maps images in [0, 1] to logits. ``distance`` is a name or any function ``f(x, y) -> (B,)``; ``steps`` is the budget of model
    passes per image. Further options are those of every attack's call: ``box``, ``confidence``, ``batch_size``, ``seed``, ``trace`` ...
    """
    return SoftWalk(distance=distance, steps=steps)(model, x, labels, targets, **options)
