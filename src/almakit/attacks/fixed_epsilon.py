"""Base class of attacks inside a ball of radius epsilon: the check of successes, rounding to the grid, and losses."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..core.attack import Attack
from ..core.problem import Problem
from ..errors import BadInput
from ..goals.base import Goal
from ..optim import length
from ..tensors import SMALL, TINY, per_image

LOSSES = ("ce", "dlr", "margin", "targeted-dlr")
Loss = Callable[[Tensor, Tensor], Tensor]
"""A loss of the caller's own: logits (B, K) and labels (B,), or the targets of a targeted goal, to values (B,)."""

# Relative reduction of the radius of projections, which covers their rounding.
MARGIN = 5e-7
# Tolerance for reaching a level of the grid, as a share of a level, which covers rounding of the radius.
MISSED = 1e-3


@dataclass(frozen=True)
class FixedEpsilon(Attack):
    """An attack that searches for any adversarial point within distance ``epsilon``; a subclass adds its settings and
    ``run_at``.

    ``run_at(problem, epsilon)`` takes a radius per image; ``search`` calls it with several radii. A point is a success
    only if its distance is within epsilon, decided by ``problem.grid``; points farther away are discarded at the end.
    """

    minimal = False

    epsilon: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epsilon is not None and (isinstance(self.epsilon, str) or not 0 < self.epsilon < float("inf")):
            raise BadInput(f"epsilon={self.epsilon!r}: the radius must be a positive number.")

    def run_at(self, problem: Problem, epsilon: Tensor) -> None:
        """Search adversarial points within ``epsilon`` (B,), and release each image that has one."""
        raise NotImplementedError

    def run(self, problem: Problem) -> None:
        norm, width, values = self.measure.norm, problem.box.width, problem.x[0].numel()
        widest = width if norm == float("inf") else width * values ** (1 / norm) if norm else float("inf")
        if self.radius() > widest:
            warnings.warn(
                f"epsilon={self.radius():g} is above {widest:g}, the largest {self.measure!r} distance in the box: "
                "every input in it is within this radius. Is it meant in units of the box, such as 8/255?",
                stacklevel=2,
            )
        full = problem.x.new_ones(len(problem))
        with problem.limited_to(full * problem.grid.limit(self.radius())):
            self.run_at(problem, full * self.radius())

    @property
    def radii(self) -> tuple[float, ...]:
        return (self.radius(),)

    def radius(self) -> float:
        """The radius epsilon. Raises an error if it is not set."""
        if self.epsilon is None:
            name = type(self).__name__.lower()
            raise BadInput(
                f"{type(self).__name__} works at a fixed radius: give epsilon=..., or find the smallest one with "
                f"search(attack={name}(...))."
            )
        return self.epsilon


def reached(problem: Problem, epsilon: Tensor) -> Tensor:
    """(B,) whether an adversarial point within ``epsilon`` (B,) is known."""
    return problem.best_distance <= problem.grid.limit(epsilon)


def safe_radius(problem: Problem, epsilon: Tensor, norm: float) -> Tensor:
    """(B,) a radius slightly below ``epsilon`` (B,): a point projected onto it stays inside epsilon after x + delta is
    rounded."""
    pixels = problem.x[0].numel()
    rounding = torch.finfo(problem.x.dtype).eps / 2 * max(map(abs, problem.box.ends))
    grown = rounding * (1.0 if norm == float("inf") else pixels if norm == 1 else pixels**0.5)
    return torch.maximum(epsilon * (1 - MARGIN) - grown, epsilon / 2)


def onto_grid(problem: Problem, candidate: Tensor, epsilon: Tensor, norm: float) -> Tensor:
    """The nearest points of the grid to ``candidate`` (B, ...) that stay within ``epsilon`` (B,) of the images.

    If the nearest level is outside the ball, the change is reduced: value by value in linf, for the image as one vector
    in other norms. Without a grid the candidates are returned unchanged.
    """
    x, box = problem.x, problem.box
    if box.bits is None and box.step is None:
        return candidate
    nearest, limit = box.project(candidate, x), problem.grid.limit(epsilon)
    spacing = box.spacing.to(x)
    level = torch.where(spacing > 0, spacing, 1.0)
    delta = candidate - x
    cut = torch.where(spacing > 0, (delta / level + MISSED * delta.sign()).trunc() * level, delta)
    if norm == float("inf"):
        fits = (nearest - x).abs() <= per_image(limit, x)
    else:
        fits = per_image(length(nearest - x, norm) <= limit, x)
    return torch.where(fits, nearest, x + cut)


def random_start(problem: Problem, norm: float) -> Tensor:
    """(B, ...) a random direction of unit norm for each active image, zero for the others."""
    rows = problem.active.nonzero().flatten().tolist()
    noise = problem.box.free(
        2 * problem.random.uniform(rows) - 1 if norm == float("inf") else problem.random.normal(rows)
    )
    # Images that drew no numbers have zero noise, not minus one.
    noise = torch.where(per_image(problem.active, noise), noise, 0.0)
    return noise / per_image(length(noise, norm).clamp_min(TINY), noise)


def sparse_signs(slope: Tensor, delta: Tensor, low: Tensor, high: Tensor, count: Tensor) -> Tensor:
    """Signs (B, N) of the ``count`` (B,) largest entries of ``slope`` (B, ...): the direction of a sparse l1 step.

    Values of ``delta`` (B, ...) at their bound are left out, because they would use up their part of the step.
    """
    stuck = ((slope > 0) & (delta >= high)) | ((slope < 0) & (delta <= low))
    flat = slope.masked_fill(stuck, 0.0).flatten(1)
    smallest = flat.abs().sort(dim=1).values.gather(1, (flat.shape[1] - count).unsqueeze(1))
    return flat.sign() * (flat.abs() >= smallest)


def check_loss(loss: object, known: tuple[str, ...] = LOSSES) -> None:
    """Raise unless ``loss`` is a known name or a function."""
    if loss not in known and not callable(loss):
        raise BadInput(f"loss={loss!r}: choose one of {', '.join(known)}, or give a function of (logits, labels).")


def ascent_loss(name: str | Loss, goal: Goal, logits: Tensor, classes: Tensor | None = None) -> Tensor:
    """(B,) the loss of ``logits`` (B, K) that is maximised; ``classes`` (B,) are the rivals of "targeted-dlr".

    "ce": the cross-entropy of the label, or minus that of the target. "dlr": minus DLR+ or tDLR+ (Croce and Hein 2020,
    eq. 5 and 6). "margin": minus the margin. "targeted-dlr": (z_c - z_y)/(z_p1 - (z_p3 + z_p4)/2) for the rival class c
    of each image; a goal with targets takes those instead. A function is called with the logits and the labels.
    """
    if not isinstance(name, str):
        return _own_loss(name, goal, logits)
    if name == "ce":
        assert goal.classes is not None, "cross-entropy is for goals of classes"
        sign = -1.0 if goal.targeted else 1.0
        return sign * F.cross_entropy(logits, goal.classes, reduction="none")
    if name == "margin":
        return -goal.margin(logits)
    if name == "dlr" or goal.targeted or classes is None:
        return -goal.constraint(logits)
    assert goal.labels is not None
    lead = logits.gather(1, classes.unsqueeze(1)).squeeze(1) - logits.gather(1, goal.labels.unsqueeze(1)).squeeze(1)
    if logits.shape[1] < 4:
        assert goal.reference is not None, "the goal is bound to the clean images before its constraint is used"
        return lead / goal.reference.clamp_min(SMALL)
    top = logits.topk(4, dim=1).values
    return lead / (top[:, 0] - (top[:, 2] + top[:, 3]) / 2).clamp_min(SMALL)


def _own_loss(loss: Loss, goal: Goal, logits: Tensor) -> Tensor:
    """(B,) the user's loss. Raises an error without labels or for another shape."""
    if goal.classes is None:
        raise BadInput("loss is a function of (logits, labels) without labels: give labels, or loss='margin'.")
    value = loss(logits, goal.classes)
    if not isinstance(value, Tensor) or value.shape != (len(logits),):
        got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise BadInput(f"the loss must return shape ({len(logits)},), one value per image, got {got}; no reduction.")
    return value
