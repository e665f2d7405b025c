"""``check_goal`` tests on a few images whether attacks can use a goal."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..core.oracle import Model, Oracle, borrowed
from ..errors import AlmakitError, CheckReport
from .base import Goal
from .resolve import first_margin, goal_of

Decision = Callable[[Tensor], Tensor]
CLOSE = 1e-3  # how far two evaluations of one margin may lie apart, relative to it


def check_goal(
    f: object,
    model: Model,
    x: Tensor,
    labels: Tensor | None = None,
    targets: Tensor | None = None,
    *,
    decision: Decision | None = None,
) -> CheckReport:
    """Test on some images whether attacks can use ``f`` as a goal.

    The margin must be floating-point of shape (B,) and finite, depend on its own image alone, be the same when it is
    computed twice, have a finite gradient in the images that is not zero, and be negative exactly where ``decision`` is
    true. The check finds violations on these images; it proves nothing about others.

    Args:
        f: a goal, its text, or a function of the outputs and optionally the labels.
        model: maps images to outputs.
        x: images, shape (B, ...).
        labels: labels or other data of the images, shape (B, ...).
        targets: targets of the images, shape (B, ...).
        decision: maps outputs to booleans of shape (B,).
    """
    with borrowed(model), torch.enable_grad():
        try:
            goal = goal_of(len(x), labels, targets, f, 0.99)
            oracle = Oracle(model, x.dtype, read=goal.read)
            leaf = x.detach().to(oracle.device or x.device).clone().requires_grad_(True)
            outputs = oracle(leaf)
            rows = torch.arange(len(x), device=outputs.device)
            goal = goal.to(outputs.device).fit(outputs.detach(), rows)
            first_margin(goal, outputs.detach(), torch.ones_like(rows, dtype=torch.bool), rows, check=False)
            return CheckReport(goal.title, "a goal", tuple(_findings(goal, outputs, leaf, decision)))
        except AlmakitError as error:
            name = getattr(f, "title", "") or getattr(f, "__name__", "the goal")
            return CheckReport(name, "a goal", (("form", str(error)),))


def _findings(goal: Goal, outputs: Tensor, leaf: Tensor, decision: Decision | None) -> Iterator[tuple[str, str]]:
    values, margin = outputs.detach(), goal.margin(outputs)
    first = margin.detach()
    size = first.abs().clamp_min(1e-6)
    again = goal.margin(values).detach()
    if bool(((again - first).abs() > CLOSE * size).any()):
        yield ("the same twice", "two evaluations of the same outputs give different margins; take the randomness out.")
    for row in range(len(values)):
        alone = goal.take(torch.tensor([row], device=values.device)).margin(values[row : row + 1]).detach()
        if bool((alone[0] - first[row]).abs() > CLOSE * size[row]):
            yield (
                "per image",
                (
                    f"the margin of image {row} is {float(first[row]):.4g} in its batch and {float(alone[0]):.4g} "
                    "alone; use nothing of the other images, and give what belongs to an image as labels."
                ),
            )
            break
    if decision is not None:
        reached = decision(values).bool()
        if bool((reached != (first < 0)).any()):
            row = int((reached != (first < 0)).nonzero()[0])
            yield (
                "sign",
                f"the margin of image {row} is {float(first[row]):.4g}, and the decision says "
                f"{'reached' if bool(reached[row]) else 'not reached'}.",
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
    zero = (flat == 0).all(1) & (first >= 0)
    if bool(zero.any()):
        yield (
            "gradient",
            f"the gradient of image {int(zero.nonzero()[0])} is zero although its goal is not reached: no attack "
            "finds a way from there.",
        )
