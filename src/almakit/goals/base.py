"""The base class of goals, combinations of goals, and goals from functions.

A goal gives one margin per image, negative exactly if it is reached. A success must exceed a small tolerance, relative
to the outputs and their precision, so that it remains one if the model rounds differently in another batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from ..errors import AlmakitError, BadInput, BadModel
from ..tensors import deviation, largest_entry, soft_maximum
from .outputs import described, picked

if TYPE_CHECKING:
    from typing_extensions import Self

# Relative safety of a decision by the precision the model computes in: far above its rounding, far below any margin
# that matters.
SAFETY = {torch.float64: 1e-11, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
# A difference below this share of the logits is a tie.
TIE = 1e-4
# Metadata of a field that all images share; tensors in other fields have one row per image.
SHARED = {"shared": True}


@dataclass(frozen=True, eq=False)
class Goal:
    """Base class of goals: a frozen dataclass with ``margin(outputs) -> (B,)``. A subclass defines it and may override
    other methods.

    ``a & b`` is reached where both goals are, ``a | b`` where one of them is. Tensors in the fields have a row for each
    image, unless the field's metadata are ``SHARED``.

    Args:
        labels: classes or other data of the images, shape (B, ...); default: those of the attack's call.
        targets: targets of the images, shape (B, ...); default: those of the attack's call.
        confidence: added to the margin.
        reference: size of the margin on the clean images, shape (B,), the default scale.
        output: part of the model's answer that is read: a key, an attribute or an index.
    """

    title: ClassVar[str] = ""
    about: ClassVar[str] = ""
    needs_labels: ClassVar[bool] = False
    of_logits: ClassVar[bool] = True  # whether outputs (B, K) may be class logits, so that tables show classes
    by_class: ClassVar[bool] = False  # whether the goal concerns the largest of the logits (B, K)
    finite: ClassVar[bool] = True  # whether finite outputs always have a finite margin

    labels: Tensor | None = None
    targets: Tensor | None = None
    confidence: float = 0.0
    reference: Tensor | None = None
    output: str | int | None = field(default=None, kw_only=True, metadata=SHARED)

    def margin(self, outputs: Tensor) -> Tensor:
        """The margin, which defines the goal.

        Args:
            outputs: the model's outputs, shape (B, ...).

        Returns:
            A differentiable margin, shape (B,), negative exactly if the goal is reached.
        """
        raise NotImplementedError

    def soft_margin(self, outputs: Tensor, temperature: Tensor) -> Tensor:
        """The margin with softened maxima and minima, whose gradient some attacks follow.

        Args:
            outputs: the model's outputs, shape (B, ...).
            temperature: temperatures above 0 in units of ``spread``, shape (B,).

        Returns:
            The soft margin, shape (B,); by default the margin.
        """
        return self.margin(outputs)

    def spread(self, outputs: Tensor) -> Tensor:
        """(B,) the spread of the numbers in ``outputs`` (B, ...) that the margin compares: the unit of temperatures."""
        return self._reference()

    def tolerance(self, outputs: Tensor, precision: torch.dtype) -> Tensor:
        """The amount by which the margin of a success must be below zero.

        Args:
            outputs: the model's outputs, shape (B, ...).
            precision: the type in which the model computes.

        Returns:
            The tolerance, shape (B,).
        """
        return SAFETY.get(precision, 1e-5) * largest_entry(outputs.detach())

    def scale(self, outputs: Tensor) -> Tensor:
        """(B,) what the margin is divided by to become a constraint of order one, positive."""
        # Twice the clean margin: the constraint starts at 1/2, where linear models come out best at 100 and at 1000
        # steps.
        return safe_scale(2 * self._reference(), outputs, largest_entry(outputs.detach()))

    @property
    def conditions(self) -> int:
        """Number of conditions that must hold at the same time, equal for all images."""
        return 1

    def rivals(self, outputs: Tensor) -> Tensor | None:
        """(B, C) indices of alternative ways to reach the goal, each with its own boundary, nearest first; None for one
        way."""
        return None

    def rival_margin(self, outputs: Tensor, rivals: Tensor) -> Tensor:
        """The margin of one of the alternatives that ``rivals`` lists.

        Args:
            outputs: the model's outputs, shape (B, ...).
            rivals: the alternative of each image, shape (B,).

        Returns:
            A margin, shape (B,), negative only if the goal is reached.
        """
        return self.margin(outputs)

    def __and__(self, other: GoalLike) -> AllOf:
        return AllOf(goals=(*(self.goals if type(self) is AllOf else (self,)), as_goal(other)))

    def __or__(self, other: GoalLike) -> AnyOf:
        return AnyOf(goals=(*(self.goals if isinstance(self, AnyOf) else (self,)), as_goal(other)))

    @property
    def targeted(self) -> bool:
        return self.targets is not None

    @property
    def classes(self) -> Tensor | None:
        """(B, ...) the class whose logit decides: the target where there is one, the label otherwise."""
        return self.labels if self.targets is None else self.targets

    def constraint(self, outputs: Tensor, tolerance: Tensor | float = 0.0) -> Tensor:
        """(B,) (margin + tolerance) / scale."""
        return (self.margin(outputs) + tolerance) / self.scale(outputs)

    def constraints(self, outputs: Tensor, tolerance: Tensor) -> Tensor:
        """(B, P) the constraint of each of the goal's P parts, such as the pixels of a map."""
        return self.constraint(outputs, tolerance).unsqueeze(1)

    def parts(self, size: int, device: torch.device) -> Tensor:
        """(B, P) which parts count, for ``size`` images."""
        return torch.ones(size, 1, dtype=torch.bool, device=device)

    def margin_slope(self, outputs: Tensor, temperature: Tensor | None = None) -> Tensor | None:
        """The gradient (B, ...) of the margin, or of the soft margin at ``temperature`` (B,), in detached ``outputs``
        (B, ...), where it has a closed form; None where autograd takes it."""
        return None

    def soft_margin_slope(self, outputs: Tensor, temperature: Tensor) -> Tensor | None:
        """The gradient (B, ...) of ``soft_margin`` in detached ``outputs`` (B, ...), with the bits that autograd gives,
        where it has a closed form; None where autograd takes it."""
        return None

    def constraint_and_slope(
        self, outputs: Tensor, margin: Tensor, tolerance: Tensor, largest: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The constraint (B,) of detached ``outputs`` whose ``margin`` (B,) is known, and its gradient in them."""
        with torch.enable_grad():
            leaf = outputs.detach().clone().requires_grad_(True)
            value = self.constraint(leaf, tolerance)
            (slope,) = torch.autograd.grad(value.sum(), leaf)
        return value.detach(), torch.nan_to_num(slope, nan=0.0, posinf=0.0, neginf=0.0)

    def take(self, rows: Tensor) -> Self:
        """The goal of the images ``rows`` (R,)."""
        return self._with(lambda values: values[rows], everything=False)

    def to(self, device: torch.device) -> Self:
        return self._with(lambda values: values.to(device), everything=True)

    def for_labels(self, labels: Tensor | None, targets: Tensor | None) -> Self:
        """The goal with the labels and targets of an attack's call.

        Args:
            labels: labels of the call, shape (B, ...), used if the goal has none.
            targets: targets of the call, shape (B, ...), used if the goal has none.

        Returns:
            The goal.
        """
        return replace(
            self,
            labels=labels if self.labels is None else self.labels,
            targets=targets if self.targets is None else self.targets,
        )

    def read(self, answer: Any, images: int) -> Tensor:
        """Select the outputs that the margin needs.

        Args:
            answer: what the model returned.
            images: number of images.

        Returns:
            The outputs, shape (B, ...).
        """
        outputs = picked(answer, self.output)
        if (
            not isinstance(outputs, Tensor)
            or not outputs.is_floating_point()
            or not outputs.ndim
            or len(outputs) != images
        ):
            raise BadModel(
                f"the goal needs a floating-point tensor with a row for each of the {images} images, and the model "
                f"returned {described(outputs)}; give goal(output=...) the key or the place of the right part."
            )
        return outputs if outputs.ndim > 1 else outputs.unsqueeze(1)

    def fit(self, outputs: Tensor, rows: Tensor) -> Self:
        """Fit the goal to the clean outputs. Raises an error if they are unsuitable.

        Args:
            outputs: clean outputs, shape (B, ...).
            rows: numbers of the images for error messages, shape (B,).

        Returns:
            The fitted goal; by default the goal itself.
        """
        return self

    def scaled_by(self, outputs: Tensor) -> Self:
        """The goal with its margin on the clean ``outputs`` (B, ...) as reference."""
        return replace(self, reference=self.margin(outputs).detach().abs())

    def check_size(self, count: int) -> None:
        """Raise an error if a tensor of the goal does not have one row for each of ``count`` images."""
        for each in fields(self):
            value = getattr(self, each.name)
            per_image = isinstance(value, Tensor) and not each.metadata.get("shared")
            if per_image and (not value.ndim or len(value) != count):
                raise BadInput(
                    f"{each.name} of the goal {self.title} has shape {tuple(value.shape)}; for {count} images it "
                    "needs a row for each."
                )

    def _reference(self) -> Tensor:
        assert self.reference is not None, "scaled_by(clean outputs) comes before the constraint"
        return self.reference

    def _with(self, change: Callable[[Tensor], Tensor], everything: bool) -> Self:
        """The goal with its tensors changed: those with a row per image, or ``everything``."""
        found: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, Tensor) and (everything or not each.metadata.get("shared")):
                found[each.name] = change(value)
            elif isinstance(value, tuple) and value and all(isinstance(part, Goal) for part in value):
                found[each.name] = tuple(part._with(change, everything) for part in value)
        return replace(self, **found)


GoalLike = str | Goal | Callable[..., Tensor]
"""A goal, its text, or a function of outputs (B, ...), and perhaps labels (B, ...), that returns margins (B,)."""


def safe_scale(scale: Tensor, outputs: Tensor, largest: Tensor | None = None) -> Tensor:
    """``scale`` (B,) kept above the rounding of ``outputs`` (B, K), or of each pixel; 1 where all are zero.

    With a smaller divisor, a constraint is so steep at a tie that the first step, which is scaled by its gradient, is
    lost in rounding.
    """
    if largest is None:
        values = outputs.detach()
        largest = torch.maximum(values.amax(1), -values.amin(1))
    scale = torch.maximum(scale, TIE * largest)
    return torch.where(scale > 0, scale, torch.ones_like(scale))


def spread_of(values: Tensor, otherwise: Tensor) -> Tensor:
    """(B,) the standard deviation of ``values`` (B, N), or ``otherwise`` (B,) if N is 1."""
    return deviation(values.detach()) if values.shape[1] > 1 else otherwise


def check_number(name: str, value: object) -> None:
    """Raise unless the setting ``name`` is a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or abs(value) == float("inf"):
        raise BadInput(f"{name}={value!r}: give a finite number.")


@dataclass(frozen=True, eq=False)
class Conditions(Goal):
    """Base of goals with a margin for each of N conditions (B, N): one of them is enough, or all must hold at once."""

    one_suffices: ClassVar[bool] = False

    def margins(self, outputs: Tensor) -> Tensor:
        """(B, N) the margin of each condition; inf, or -inf if all must hold, for conditions that do not count."""
        raise NotImplementedError

    def margin(self, outputs: Tensor) -> Tensor:
        each = self.margins(outputs)
        return (each.amin(1) if self.one_suffices else each.amax(1)) + self.confidence

    def soft_margin(self, outputs: Tensor, temperature: Tensor) -> Tensor:
        return self._softened(self.margins(outputs), temperature)

    def _softened(self, each: Tensor, temperature: Tensor) -> Tensor:
        soft = -soft_maximum(-each, temperature) if self.one_suffices else soft_maximum(each, temperature)
        return soft + self.confidence

    def rivals(self, outputs: Tensor) -> Tensor | None:
        """(B, C) the conditions ordered by their margins, if one of them suffices."""
        if not self.one_suffices:
            return None
        each = self.margins(outputs.detach())
        return each.argsort(dim=1, stable=True)[:, : max(1, int(torch.isfinite(each).sum(1).min()))]

    def rival_margin(self, outputs: Tensor, rivals: Tensor) -> Tensor:
        return self.margins(outputs).gather(1, rivals.unsqueeze(1)).squeeze(1) + self.confidence


@dataclass(frozen=True, eq=False)
class AllOf(Conditions):
    """All ``goals``, which read the same outputs, are reached at once: the largest of their margins."""

    title = "all-of"
    about = "several goals at once"

    goals: tuple[Goal, ...] = field(default=(), kw_only=True, metadata=SHARED)

    def __post_init__(self) -> None:
        object.__setattr__(self, "goals", tuple(self.goals) if isinstance(self.goals, (tuple, list)) else (self.goals,))
        if not self.goals or not all(isinstance(part, Goal) for part in self.goals):
            raise BadInput(
                f"the goal {self.title} is made of goals: {self.title}(goals=[top-k(k=3), threshold(below=0)])."
            )
        if len({part.output for part in self.goals}) > 1:
            raise BadInput(f"the parts of {self.title} must read the same output of the model.")

    @property
    def needs_labels(self) -> bool:  # type: ignore[override]
        return any(part.needs_labels for part in self.goals)

    @property
    def of_logits(self) -> bool:  # type: ignore[override]
        return all(part.of_logits for part in self.goals)

    @property
    def finite(self) -> bool:  # type: ignore[override]
        return all(part.finite for part in self.goals)

    @property
    def conditions(self) -> int:
        return sum(part.conditions for part in self.goals)

    def _each(self, change: Callable[[Goal], Goal]) -> Self:
        return replace(self, goals=tuple(change(part) for part in self.goals))

    def for_labels(self, labels: Tensor | None, targets: Tensor | None) -> Self:
        return super().for_labels(labels, targets)._each(lambda part: part.for_labels(labels, targets))

    def fit(self, outputs: Tensor, rows: Tensor) -> Self:
        return self._each(lambda part: part.fit(outputs, rows))

    def scaled_by(self, outputs: Tensor) -> Self:
        return super().scaled_by(outputs)._each(lambda part: part.scaled_by(outputs))

    def check_size(self, count: int) -> None:
        for part in self.goals:
            part.check_size(count)

    def read(self, answer: Any, images: int) -> Tensor:
        return self.goals[0].read(answer, images)

    def _stack(self, values: Callable[[Goal], Tensor]) -> Tensor:
        """(B, N) a value of each goal."""
        return torch.stack([values(part) for part in self.goals], 1)

    def margins(self, outputs: Tensor) -> Tensor:
        return self._stack(lambda part: part.margin(outputs))

    def soft_margin(self, outputs: Tensor, temperature: Tensor) -> Tensor:
        return self._softened(self._stack(lambda part: part.soft_margin(outputs, temperature)), temperature)

    def spread(self, outputs: Tensor) -> Tensor:
        return self._stack(lambda part: part.spread(outputs)).amax(1)

    def tolerance(self, outputs: Tensor, precision: torch.dtype) -> Tensor:
        return self._stack(lambda part: part.tolerance(outputs, precision)).amax(1)


@dataclass(frozen=True, eq=False)
class AnyOf(AllOf):
    """One of ``goals`` is reached: the smallest of their margins."""

    title = "any-of"
    about = "one of several goals"
    one_suffices = True

    @property
    def conditions(self) -> int:
        return max(part.conditions for part in self.goals)


@dataclass(frozen=True, eq=False)
class FunctionGoal(Goal):
    """``function(outputs) -> (B,)``, or ``function(outputs, labels) -> (B,)``: negative where the goal is reached.

    The function is called with some of the images at a time, so data of an image are passed as ``labels``, of any shape
    (B, ...).
    """

    title = "function"
    finite = False

    function: Callable[..., Tensor] | None = field(default=None, kw_only=True, metadata=SHARED)

    @property
    def needs_labels(self) -> bool:  # type: ignore[override]
        return _arguments(self.function) == 2

    def margin(self, outputs: Tensor) -> Tensor:
        assert self.function is not None
        arguments = (outputs, self.labels) if self.needs_labels else (outputs,)
        try:
            return self.function(*arguments)
        except AlmakitError:
            raise
        except Exception as error:
            raise BadInput(
                f"the goal's function failed on outputs of shape {tuple(outputs.shape)} with {type(error).__name__}: "
                f"{error}"
            ) from error


def as_goal(goal: object) -> Goal:
    """``goal`` itself, or the goal of a function."""
    if isinstance(goal, Goal):
        return goal
    if not callable(goal) or _arguments(goal) not in (1, 2):
        raise BadInput(
            f"goal={goal!r}: give one of almakit.goals, or a function of the outputs (and perhaps labels) that "
            "returns a margin for each image."
        )
    return FunctionGoal(function=goal)


def _arguments(function: object) -> int:
    """Number of required positional arguments; 1 if it cannot be inspected."""
    try:
        parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return 1
    return sum(
        each.default is each.empty and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        for each in parameters
    )
