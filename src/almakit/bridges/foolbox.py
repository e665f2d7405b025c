"""almakit's attacks as a foolbox ``MinimizationAttack``."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..attacks import get
from ..core import Attack, Box, Result
from ..core.oracle import predict
from ..errors import BadInput, optional
from .foreign import labels_and_targets

MISSING = "foolbox is not installed: pip install foolbox."
foolbox, base = optional("foolbox", MISSING), optional("foolbox.attacks.base", MISSING)
Base: Any = base.MinimizationAttack


class FoolboxAttack(Base):
    """An attack of almakit as an attack of foolbox: ``FoolboxAttack("alma(distance=l2, steps=100)")(fmodel, images,
    labels, epsilons=[0.5, 1.0])``.

    Takes foolbox's models with their bounds and its criteria ``Misclassification`` and ``TargetedMisclassification``.
    ``result`` is the ``Result`` of the last call: distances, status and passes of each image.
    """

    def __init__(self, attack: str | Attack, **options: Any):
        """``options`` are those of an attack's call: ``batch_size``, ``seed``, ``budget``, ``box`` ..."""
        self.attack, self.options = get(attack), options
        self.result: Result | None = None
        if self.attack.measure.norm is None:
            raise BadInput(f"foolbox's distances are norms, not {self.attack.measure!r}: call the attack itself.")

    @property
    def distance(self) -> Any:
        return foolbox.distances.LpDistance(self.attack.measure.norm)

    def run(self, model: Any, inputs: Any, criterion: Any, *, early_stop: float | None = None, **kwargs: Any) -> Any:
        """Attacks ``inputs`` (B, ...), a tensor of torch or of eagerpy."""
        base.raise_if_kwargs(kwargs)
        eager = optional("eagerpy", "foolbox needs eagerpy: pip install eagerpy.")
        x, restore = eager.astensor_(inputs)
        if not isinstance(x.raw, Tensor):
            raise BadInput("almakit's attacks work on torch tensors; wrap the model in foolbox.PyTorchModel.")
        criterion, targets = base.get_criterion(criterion), None
        if isinstance(criterion, foolbox.criteria.Misclassification):
            labels = criterion.labels.raw
        elif isinstance(criterion, foolbox.criteria.TargetedMisclassification):
            labels, targets = labels_and_targets(predict(model, x.raw), criterion.target_classes.raw)
        else:
            raise BadInput("almakit's attacks know foolbox's criteria Misclassification and TargetedMisclassification.")
        box = Box(float(model.bounds.lower), float(model.bounds.upper))
        self.result = self.attack(model, x.raw, labels, targets, box=box, **self.options)
        return restore(eager.astensor(self.result.adversarials.to(x.raw)))
