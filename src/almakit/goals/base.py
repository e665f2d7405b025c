"""What an attack wants of the outputs: one margin per image, negative exactly when the goal is reached, and what can be
said about it beside.

A small tolerance, relative to the outputs and their precision, is demanded on top of the sign, so that a success is
still one when the model rounds differently in another batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from ..errors import BadInput, BadModel
from ..tensors import largest_entry
from .outputs import described, picked

if TYPE_CHECKING:
    from typing_extensions import Self

# Relative safety of a decision by the precision the model computes in: far above its rounding, far below any margin
# that matters.
SAFETY = {torch.float64: 1e-11, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
TINY = 1e-12
# Below this part of the logits a difference between them is a tie.
TIE = 1e-4


# Marks a field of a goal that is the same for all images; tensors in other fields have a row for each.
SHARED = {"shared": True}


@dataclass(frozen=True, eq=False)
class Goal:
    """A frozen value with ``margin(outputs) -> (B,)``; a subclass defines it, and what else it knows better than the
    defaults here.

    Tensors in its fields have a row for each image, unless its metadata are ``SHARED``. ``labels`` and ``targets`` (B,
    ...) are the caller's, where the goal has none of its own. ``output`` says which part of the model's answer is meant
    (a key, an attribute or a place); ``reference`` (B,) is the size of the margin on the clean images, the scale of
    everything where nothing better is known.
    """

    title: ClassVar[str] = ""
    about: ClassVar[str] = ""
    needs_labels: ClassVar[bool] = False
    of_logits: ClassVar[bool] = True  # whether outputs (B, K) may be logits of classes, which tables then speak of
    by_class: ClassVar[bool] = False  # whether it is about which logit of (B, K) is the largest
    finite: ClassVar[bool] = True  # whether finite outputs always have a finite margin

    labels: Tensor | None = None
    targets: Tensor | None = None
    confidence: float = 0.0
    reference: Tensor | None = None
    output: str | int | None = field(default=None, kw_only=True, metadata=SHARED)

    # What a goal must say.

    def margin(self, outputs: Tensor) -> Tensor:
        """(B,) of ``outputs`` (B, ...), differentiable: negative exactly when the goal is reached."""
        raise NotImplementedError

    # What it may say better.

    def soft_margin(self, outputs: Tensor, temperature: Tensor) -> Tensor:
        """(B,) the margin with its maxima and minima softened over ``temperature`` (B,) > 0, in units of ``spread``."""
        return self.margin(outputs)

    def spread(self, outputs: Tensor) -> Tensor:
        """(B,) how much the numbers of ``outputs`` (B, ...) that the margin compares differ: the unit of
        temperatures."""
        return self._reference()

    def tolerance(self, outputs: Tensor, precision: torch.dtype) -> Tensor:
        """(B,) how far below zero a margin must be to count, for a model that computes in ``precision``."""
        return SAFETY.get(precision, 1e-5) * largest_entry(outputs.detach())

    def scale(self, outputs: Tensor) -> Tensor:
        """(B,) what the margin is divided by to become a constraint of order one, positive."""
        # Twice the clean margin: the constraint starts at 1/2, where linear models come out best at 100 and at 1000
        # steps.
        return kept_safe(2 * self._reference(), outputs, largest_entry(outputs.detach()))

    @property
    def conditions(self) -> int:
        """How many things must be so at once, the same number for all images: the boundaries that may meet at the
        nearest point. 1 where nothing is known."""
        return 1

    def rivals(self, outputs: Tensor) -> Tensor | None:
        """(B, C) the ways to the goal, each with a boundary of its own, likeliest first; None where there is one way
        only."""
        return None

    def rival_margin(self, outputs: Tensor, rivals: Tensor) -> Tensor:
        """(B,) the margin towards one of the ways ``rivals`` (B,): negative only where the goal is reached."""
        return self.margin(outputs)

    # What follows.

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
        """(B, P) the same for each of the P parts of a goal that is made of many, such as the pixels of a map."""
        return self.constraint(outputs, tolerance).unsqueeze(1)

    def parts(self, size: int, device: torch.device) -> Tensor:
        """(B, P) which of them count, for ``size`` images."""
        return torch.ones(size, 1, dtype=torch.bool, device=device)

    def constraint_and_slope(
        self, outputs: Tensor, margin: Tensor, tolerance: Tensor, largest: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """``constraint`` (B,) of the detached ``outputs`` (B, ...) whose ``margin`` (B,) is known, and its gradient in
        them."""
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
        """The goal with the caller's ``labels`` and ``targets`` (B, ...) where it has none of its own."""
        return replace(
            self,
            labels=labels if self.labels is None else self.labels,
            targets=targets if self.targets is None else self.targets,
        )

    def read(self, answer: Any, images: int) -> Tensor:
        """The outputs (B, ...) that the margin needs, as one tensor, of whatever the model returned for so many
        ``images``."""
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
        """The goal for clean ``outputs`` (B, ...) of the images ``rows`` (B,) of the caller's batch; a sentence where
        it does not suit them."""
        return self

    def scaled_by(self, outputs: Tensor) -> Self:
        """The goal with the size of its margin on the clean ``outputs`` (B, ...) as its reference."""
        return replace(self, reference=self.margin(outputs).detach().abs())

    def check_size(self, count: int) -> None:
        """Raises where a tensor of the goal does not have a row for each of ``count`` images."""
        for each in fields(self):
            value = getattr(self, each.name)
            if (
                isinstance(value, Tensor)
                and not each.metadata.get("shared")
                and (not value.ndim or len(value) != count)
            ):
                raise BadInput(
                    f"{each.name} of the goal {self.title} has shape {tuple(value.shape)}; for {count} images it "
                    "needs a row for each."
                )

    def _reference(self) -> Tensor:
        assert self.reference is not None, "the goal is bound to the clean images before its constraint is used"
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


def kept_safe(scale: Tensor, outputs: Tensor, largest: Tensor | None = None) -> Tensor:
    """``scale`` (B,) kept above the rounding of ``outputs`` (B, K), or of each pixel; 1 where all are zero.

    Divided by less, a constraint is so steep at a tie that the first step, sized by its gradient, is lost in rounding.
    """
    if largest is None:
        values = outputs.detach()
        largest = torch.maximum(values.amax(1), -values.amin(1))
    scale = torch.maximum(scale, TIE * largest)
    return torch.where(scale > 0, scale, torch.ones_like(scale))
