"""Does a goal keep the laws an attack relies on? ``check_goal`` tries them on a few images and says what it saw."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.model import Model, Oracle, borrowed
from ..errors import AlmakitError
from .base import Goal
from .given import as_goal, first_margin, goal_of

Decision = Callable[[Tensor], Tensor]
CLOSE = 1e-3  # how far two evaluations of one margin may lie apart, relative to it


@dataclass(frozen=True)
class GoalReport:
    """What ``check_goal`` found; ``ok`` when nothing. Printed, it is a sentence per finding."""

    goal: str
    findings: tuple[tuple[str, str], ...]

    @property
    def ok(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        if self.ok:
            return f"{self.goal} keeps every law of a goal on these images."
        return "\n".join(
            [
                f"{self.goal} breaks {len(self.findings)} of the laws of a goal:",
                *(f"  {law}: {sentence}" for law, sentence in self.findings),
            ]
        )


def check_goal(
    f: object,
    model: Model,
    x: Tensor,
    labels: Tensor | None = None,
    targets: Tensor | None = None,
    *,
    decision: Decision | None = None,
) -> GoalReport:
    """Tries whether ``f``, a goal or a function of the outputs, keeps the laws of a goal for ``model`` and images ``x``
    (B, ...).

    The laws: a floating-point margin (B,), finite, of each image by itself, the same twice, with a gradient in the
    images that is finite and not zero, and negative exactly where ``decision``, a function from outputs to booleans
    (B,), says so. They are tried, not proved.
    """
    with borrowed(model), torch.enable_grad():
        try:
            goal = goal_of(len(x), labels, targets, as_goal(f), 0.0, None, 0.99)
            oracle = Oracle(model, x.dtype, read=goal.read)
            leaf = oracle.place(x.detach()).clone().requires_grad_(True)
            outputs = oracle(leaf)
            rows = torch.arange(len(x), device=outputs.device)
            goal = goal.to(outputs.device).fit(outputs.detach(), rows)
            first_margin(goal, outputs.detach(), torch.ones_like(rows, dtype=torch.bool), rows, check=False)
            return GoalReport(goal.title, tuple(_findings(goal, outputs, leaf, decision)))
        except AlmakitError as error:
            return GoalReport(getattr(f, "title", "") or getattr(f, "__name__", "the goal"), (("form", str(error)),))


def _findings(goal: Goal, outputs: Tensor, leaf: Tensor, decision: Decision | None) -> Iterator[tuple[str, str]]:
    values, margin = outputs.detach(), goal.margin(outputs)
    seen = margin.detach()
    size = seen.abs().clamp_min(1e-6)
    again = goal.margin(values).detach()
    if bool(((again - seen).abs() > CLOSE * size).any()):
        yield (
            "the same twice",
            "asked twice about the same outputs it gives different margins; take the randomness out.",
        )
    for row in range(len(values)):
        alone = goal.take(torch.tensor([row], device=values.device)).margin(values[row : row + 1]).detach()
        if bool((alone[0] - seen[row]).abs() > CLOSE * size[row]):
            yield (
                "per image",
                (
                    f"the margin of image {row} is {float(seen[row]):.4g} in its batch and {float(alone[0]):.4g} "
                    "alone; use nothing of the other images, and give what belongs to an image as labels."
                ),
            )
            break
    if decision is not None:
        told = decision(values).bool()
        if bool((told != (seen < 0)).any()):
            row = int((told != (seen < 0)).nonzero()[0])
            yield (
                "sign",
                f"the margin of image {row} is {float(seen[row]):.4g}, and the decision says "
                f"{'reached' if bool(told[row]) else 'not reached'}.",
            )
    if not margin.requires_grad:
        yield (
            "gradient",
            "the margin has no gradient in the images; leave out detach(), item() and conversions to numpy, in the "
            "model too.",
        )
        return
    (slope,) = torch.autograd.grad(margin.sum(), leaf)
    flat = slope.flatten(1)
    if not bool(torch.isfinite(flat).all()):
        yield "gradient", f"the gradient of image {int((~torch.isfinite(flat)).any(1).nonzero()[0])} is not finite."
    zero = (flat == 0).all(1) & (seen >= 0)
    if bool(zero.any()):
        yield (
            "gradient",
            f"the gradient of image {int(zero.nonzero()[0])} is zero although its goal is not reached: no attack "
            "finds a way from there.",
        )
