"""foolbox: its attacks in our engine (``foolbox:LinfFMNAttack(steps=100)``), and ours as a foolbox
``MinimizationAttack``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..attacks import get
from ..attacks.fixed_epsilon import FixedEpsilon
from ..core import Attack, Box, Result, Status
from ..core.attack import check_images
from ..core.oracle import predict
from ..distances.base import Distance
from ..errors import BadInput
from ..goals.classes import ClassGoal
from ..radius import Grid
from ..tensors import per_image
from .foreign import CountedModel, Foreign, labels_and_targets, library, norm_name

foolbox = library("foolbox", "pip install foolbox, or pip install 'almakit[bridges]'")
base = library("foolbox.attacks.base", "pip install foolbox")
Base: Any = base.MinimizationAttack
BaseDistance: Any = foolbox.distances.Distance


@dataclass(frozen=True)
class FoolboxForeign(Foreign):
    """``foolbox:<class of foolbox.attacks>(settings)``. Attacks at a fixed radius take it as ``epsilon``."""

    library = "foolbox"
    package = "foolbox"
    gradient_free = (
        *("HopSkipJumpAttack", "BoundaryAttack", "PointwiseAttack", "GenAttack"),
        *("NoiseAttack", "ContrastReductionAttack", "GaussianBlurAttack", "InversionAttack"),
    )

    @cached_property
    def target(self) -> Callable[..., Any]:
        return self.find_class(foolbox.attacks, base.Attack)

    def guess_distance(self) -> str | None:
        if "constraint" in self.parameters:  # HopSkipJump says l1 whatever it minimises
            return norm_name(self.values["constraint"])
        found = self.target.distance  # type: ignore[attr-defined]
        return norm_name(found.p) if isinstance(found, foolbox.distances.LpDistance) else None

    def radius(self) -> float | None:
        return None if issubclass(self.target, base.MinimizationAttack) else self.epsilon  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        super().__post_init__()
        fixed = not issubclass(self.target, base.MinimizationAttack)  # type: ignore[arg-type]
        if fixed and self.epsilon is None:
            raise BadInput(
                f"{self.name} works at a fixed radius: give epsilon=..., for example {self.name}(epsilon=0.3)."
            )
        if not fixed and self.epsilon is not None:
            raise BadInput(
                f"{self.name} looks for the smallest change and takes no epsilon; read robust accuracy at any radius "
                "off the results."
            )

    def targets_too(self) -> bool:
        # Attacks without a targeted form say so when they are run.
        return True

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
    """One of our attacks as foolbox's: ``FoolboxAttack("alma(distance=l2, steps=100)")(fmodel, images, labels,
    epsilons=[0.5, 1.0])``.

    Takes foolbox's models with their bounds and its criteria ``Misclassification`` and ``TargetedMisclassification``.
    ``starting_points`` (B, ...), which foolbox's FMN starts from, are one more candidate here: kept where they reach
    the goal nearer than what the attack finds, for one more forward. ``result`` is our own ``Result`` of the last call:
    distances, status and passes of each image.
    """

    def __init__(self, attack: str | Attack, **options: Any):
        """``options`` are those of our attacks' call: ``batch_size``, ``seed``, ``budget``, ``confidence`` ..."""
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
        starts = None
        if starting_points is not None:
            starts = _starting_points(getattr(starting_points, "raw", starting_points), x.raw, box)
        result = self.attack(model, x.raw, labels, targets, box=box, **self.options)
        if starts is not None:
            goal = ClassGoal(labels, targets, self.options.get("confidence", 0.0))
            result = self._or_start(result, model, x.raw, starts, goal)
        self.result = result
        return restore(eager.astensor(result.adversarials.to(x.raw)))

    def _or_start(self, result: Result, model: Any, x: Tensor, start: Tensor, goal: ClassGoal) -> Result:
        """The nearer of what was found and the points ``start`` (B, ...) where those reach the goal."""
        logits, distance = predict(model, start), self.attack.measure(x, start).to(result.distances)
        nearer = torch.isfinite(logits).all(1) & (goal.margin(logits) < 0) & (distance < result.distances)
        if isinstance(self.attack, FixedEpsilon):
            nearer &= distance <= result.grid.limit(self.attack.radius())
        return replace(
            result,
            adversarials=torch.where(per_image(nearer, x), start.to(result.adversarials), result.adversarials),
            distances=torch.where(nearer, distance, result.distances),
            status=torch.where(nearer, int(Status.SUCCESS), result.status),
            forwards=result.forwards + 1,
            reasons=[None if kept else reason for kept, reason in zip(nearer.tolist(), result.reasons, strict=True)],
        )


def _starting_points(points: object, x: Tensor, box: Box) -> Tensor:
    if not isinstance(points, Tensor) or points.shape != x.shape:
        got = f"shape {tuple(points.shape)}" if isinstance(points, Tensor) else f"a {type(points).__name__}"
        raise BadInput(f"starting_points must be a tensor of shape {tuple(x.shape)}, one point per image, not {got}.")
    return check_images(points, box)[0]


def _goal(model: Any, x: Tensor, criterion: Any) -> tuple[Tensor, Tensor | None]:
    """Labels (B,) and targets (B,) of a criterion; a targeted one does not know the labels, so the model's own classes
    stand in."""
    if isinstance(criterion, foolbox.criteria.Misclassification):
        return criterion.labels.raw, None
    if not isinstance(criterion, foolbox.criteria.TargetedMisclassification):
        raise BadInput("almakit's attacks know foolbox's criteria Misclassification and TargetedMisclassification.")
    return labels_and_targets(predict(model, x), criterion.target_classes.raw)


def _their_distance(distance: Distance) -> Any:
    return _Measured(distance) if distance.norm is None else foolbox.distances.LpDistance(distance.norm)


class _Measured(BaseDistance):
    """A distance of ours that is no norm, for foolbox to measure with."""

    def __init__(self, distance: Distance):
        self.ours = distance

    def __call__(self, reference: Any, perturbed: Any) -> Any:
        (x, y), restore = library("eagerpy", "pip install eagerpy").astensors_(reference, perturbed)
        return restore(type(x)(self.ours(x.raw, y.raw)))

    def clip_perturbation(self, references: Any, perturbed: Any, epsilon: float) -> Any:
        """What lies farther than ``epsilon`` goes back to the reference: there is no way to shrink a change in any
        distance."""
        (x, y), restore = library("eagerpy", "pip install eagerpy").astensors_(references, perturbed)
        outside = self.ours(x.raw, y.raw) > Grid.of(repr(self.ours)).limit(epsilon)
        return restore(type(x)(torch.where(outside.reshape(-1, *[1] * (x.raw.ndim - 1)), x.raw, y.raw)))
