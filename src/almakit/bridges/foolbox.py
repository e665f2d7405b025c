"""foolbox: its attacks in almakit (``foolbox:LinfFMNAttack(steps=100)``), and almakit's attacks as a foolbox
``MinimizationAttack``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..attacks import get
from ..core import Attack, Box, Result, best_of
from ..core.attack import check_images
from ..core.oracle import predict
from ..distances.base import Distance
from ..errors import BadInput
from ..radius import Grid
from ..tensors import per_image
from .foreign import CountedModel, Foreign, labels_and_targets, library, norm_name
from .user_file import UserAttack

foolbox = library("foolbox", "pip install foolbox")
base = library("foolbox.attacks.base", "pip install foolbox")
Base: Any = base.MinimizationAttack
BaseDistance: Any = foolbox.distances.Distance


@dataclass(frozen=True)
class FoolboxForeign(Foreign):
    """``foolbox:<class of foolbox.attacks>(settings)``. Attacks at a fixed radius take it as ``epsilon``."""

    library = "foolbox"
    package = "foolbox"
    module = foolbox.attacks
    kind = base.Attack
    can_target = True  # attacks without a targeted form raise an error when they run
    gradient_free = (
        "HopSkipJumpAttack BoundaryAttack PointwiseAttack GenAttack NoiseAttack ContrastReductionAttack "
        "GaussianBlurAttack InversionAttack"
    )

    def guess_distance(self) -> str | None:
        if "constraint" in self.parameters:  # HopSkipJump declares l1 for every distance
            return norm_name(self.values["constraint"])
        found = self.target.distance  # type: ignore[attr-defined]
        return norm_name(found.p) if isinstance(found, foolbox.distances.LpDistance) else None

    def radius(self) -> float | None:
        return None if issubclass(self.target, base.MinimizationAttack) else self.epsilon  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        super().__post_init__()
        minimises = issubclass(self.target, base.MinimizationAttack)  # type: ignore[arg-type]
        if minimises and self.epsilon is not None:
            raise BadInput(
                f"{self.name} looks for the smallest change and takes no epsilon; read robust accuracy at any radius "
                "off the results."
            )
        if not minimises and self.epsilon is None:
            raise BadInput(
                f"{self.name} works at a fixed radius: give epsilon=..., for example {self.name}(epsilon=0.3)."
            )

    def made(self) -> Any:
        """foolbox's own attack object."""
        settings = {name: value.made() if isinstance(value, FoolboxForeign) else value for name, value in self.settings}
        if "distance" in settings:
            settings["distance"] = _their_distance(self.measure)
        return self.target(**settings)

    def perturb(self, model: CountedModel, x: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
        box = model.problem.box
        wrapped = foolbox.PyTorchModel(model.eval(), bounds=box.ends, device=x.device)
        criteria = foolbox.criteria
        targeted = targets is not None
        criterion = criteria.TargetedMisclassification(targets) if targeted else criteria.Misclassification(labels)
        more = {} if self.minimal else {"epsilon": self.epsilon}
        found: Tensor = self.made().run(wrapped, x, criterion, **more)
        return found


class FoolboxAttack(Base):
    """An attack of almakit as an attack of foolbox: ``FoolboxAttack("alma(distance=l2, steps=100)")(fmodel, images,
    labels, epsilons=[0.5, 1.0])``.

    Takes foolbox's models with their bounds and its criteria ``Misclassification`` and ``TargetedMisclassification``.
    ``starting_points`` (B, ...) are additional candidates, which cost two more forwards. ``result`` is the ``Result``
    of the last call: distances, status and passes of each image.
    """

    def __init__(self, attack: str | Attack, **options: Any):
        """``options`` are those of an attack's call: ``batch_size``, ``seed``, ``budget``, ``confidence`` ..."""
        self.attack, self.options = get(attack), options
        self.result: Result | None = None

    @property
    def distance(self) -> Any:
        return _their_distance(self.attack.measure)

    def run(
        self,
        model: Any,
        inputs: Any,
        criterion: Any,
        *,
        starting_points: Any = None,
        early_stop: float | None = None,
        **kwargs: Any,
    ) -> Any:
        """Attacks ``inputs`` (B, ...), a tensor of torch or of eagerpy."""
        base.raise_if_kwargs(kwargs)
        eager = library("eagerpy", "pip install eagerpy")
        x, restore = eager.astensor_(inputs)
        if not isinstance(x.raw, Tensor):
            raise BadInput("almakit's attacks work on torch tensors; wrap the model in foolbox.PyTorchModel.")
        criterion = base.get_criterion(criterion)
        box = Box(float(model.bounds.lower), float(model.bounds.upper))
        labels, targets = _goal(model, x.raw, criterion)
        attacks = [self.attack]
        if starting_points is not None:
            points, _ = check_images(getattr(starting_points, "raw", starting_points), box)
            radius = self.attack.radii[0] if self.attack.radii else None
            attacks.append(
                UserAttack.of(lambda model, x, y, targets=None: points, distance=self.attack.measure, epsilon=radius)
            )
        self.result = best_of(attack(model, x.raw, labels, targets, box=box, **self.options) for attack in attacks)
        return restore(eager.astensor(self.result.adversarials.to(x.raw)))


def _goal(model: Any, x: Tensor, criterion: Any) -> tuple[Tensor, Tensor | None]:
    """Labels (B,) and targets (B,) of a criterion. A targeted criterion has no labels, so the model's predictions are
    used."""
    if isinstance(criterion, foolbox.criteria.Misclassification):
        return criterion.labels.raw, None
    if not isinstance(criterion, foolbox.criteria.TargetedMisclassification):
        raise BadInput("almakit's attacks know foolbox's criteria Misclassification and TargetedMisclassification.")
    return labels_and_targets(predict(model, x), criterion.target_classes.raw)


def _their_distance(distance: Distance) -> Any:
    return _Measured(distance) if distance.norm is None else foolbox.distances.LpDistance(distance.norm)


class _Measured(BaseDistance):
    """A distance of almakit that is not a norm, for foolbox."""

    def __init__(self, distance: Distance):
        self.ours = distance

    def __call__(self, reference: Any, perturbed: Any) -> Any:
        (x, y), restore = library("eagerpy", "pip install eagerpy").astensors_(reference, perturbed)
        return restore(type(x)(self.ours(x.raw, y.raw)))

    def clip_perturbation(self, references: Any, perturbed: Any, epsilon: float) -> Any:
        """Perturbations beyond ``epsilon`` are set to zero, because a change cannot be scaled to a radius in every
        distance."""
        (x, y), restore = library("eagerpy", "pip install eagerpy").astensors_(references, perturbed)
        outside = self.ours(x.raw, y.raw) > Grid.of(repr(self.ours)).limit(epsilon)
        return restore(type(x)(torch.where(per_image(outside, x.raw), x.raw, y.raw)))
