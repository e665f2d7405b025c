"""almakit's attacks with the interface of adv-lib and AttackBench, ``attack(model=, inputs=, labels=, targeted=,
targets=) -> images``. Neither library is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ..attacks import get
from ..core import Attack
from ..core.oracle import Model, predict
from .foreign import labels_and_targets

Call = Callable[..., Tensor]


def as_function(attack: str | Attack, **options: Any) -> Call:
    """An attack as a function with this interface: ``as_function("alma(distance=l2, steps=100)")(model, inputs,
    labels)``.

    ``inputs`` (B, ...) are in [0, 1] and ``labels`` (B,) the true classes. With ``targeted=True`` the targets are
    ``targets`` (B,), as AttackBench calls it, or the labels themselves where no targets are given, as adv-lib does.
    Images without a success are returned unchanged. ``options`` are those of an attack's call: ``batch_size``,
    ``seed``, ``budget`` ... ``check`` is False by default: a benchmark judges the images itself, counts every query,
    and answers queries past its limit with the true label, so that a re-check would refute every success.
    """
    ours, options = get(attack), {"check": False, **options}

    def run(
        model: Model, inputs: Tensor, labels: Tensor, targeted: bool = False, targets: Tensor | None = None, **_: Any
    ) -> Tensor:
        if not targeted:
            return ours(model, inputs, labels, **options).adversarials
        if targets is None:
            labels, targets = labels_and_targets(predict(model, inputs), labels)
        return ours(model, inputs, labels, targets, **options).adversarials

    run.__name__ = type(ours).__name__.lower()
    return run
