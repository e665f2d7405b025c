"""How near an attack has come for how many passes: each image's best distance at a few counts of forwards, and who
stops because it no longer improves."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

MARKS = (10, 30, 100, 300, 1000)
"""Forwards at which the best distance is kept."""


class Course:
    """``values`` (B, M): the best distance of each image when it had had ``marks`` forwards; NaN where it has not had
    more yet.

    With ``plan`` forwards in view and a ``share``, an image stops that has found something and has improved by less
    than that share over a quarter of the plan. While all images go through every pass their counts are one number, and
    nothing is computed between two marks.
    """

    def __init__(self, size: int, like: Tensor, plan: int | None = None, share: float = 0.0):
        quarter = 0 if plan is None else max(1, plan // 4)
        self._quarters = (quarter, 2 * quarter, 3 * quarter) if plan is not None else ()
        self._all_marks = MARKS + self._quarters
        self._marks = torch.tensor(self._all_marks, device=like.device)
        self.values = torch.full((size, len(self._all_marks)), float("nan"), dtype=like.dtype, device=like.device)
        self._share, self._cheap_sync = share, like.device.type == "cpu"
        self._alike: int | None = 0  # what every image has had; None once they differ
        self.floor: Tensor | None = None  # (B,) what was known before an attack inside another began afresh

    def passed(self, everyone: bool, forwards: Tensor, before: Tensor) -> Tensor | None:
        """After a pass: ``forwards`` (B,) of each image with it, and the best distances ``before`` (B,) it. Who stops
        (B,); None: nobody."""
        self._alike = self._alike + 1 if everyone and self._alike is not None else None
        if self._alike is not None and self._alike - 1 not in self._all_marks:
            return None
        crossed = (forwards.unsqueeze(1) > self._marks) & self.values.isnan()
        if self._alike is None and self._cheap_sync and not bool(crossed.any()):
            return None
        known = before if self.floor is None else torch.minimum(before, self.floor)
        self.values = torch.where(crossed, known.unsqueeze(1), self.values)
        if not self._quarters:
            return None
        first, second, third = self.values[:, len(MARKS) :].unbind(1)
        still = crossed[:, len(MARKS) :]
        stops = (still[:, 1] & _stale(first, second, self._share)) | (still[:, 2] & _stale(second, third, self._share))
        return stops if bool(stops.any()) else None

    def at_marks(self, final: Tensor) -> Tensor:
        """(B, 5) the best distance at each of ``MARKS``, with the ``final`` (B,) one where an image had fewer passes;
        never below that."""
        values = self.values[:, : len(MARKS)]
        return torch.maximum(torch.where(values.isnan(), final.unsqueeze(1), values), final.unsqueeze(1))


def _stale(then: Tensor, now: Tensor, share: float) -> Tensor:
    """(B,) found by then, and nearer by less than the share since."""
    return torch.isfinite(then) & (now > (1 - share) * then)


def expected_forwards(attack: Any) -> int | None:
    """About how many forwards an attack makes for an image, from its settings; None where they do not say."""
    parts, inner = getattr(attack, "attacks", None), getattr(attack, "attack", None)
    if parts:
        counts = [expected_forwards(part) for part in parts]
        return None if None in counts else sum(count for count in counts if count is not None)
    if inner is not None:
        each = expected_forwards(inner)
        return None if each is None else each * int(getattr(attack, "halvings", 1))
    if isinstance(outer := getattr(attack, "outer", None), int):
        return outer * int(attack.inner)
    steps = getattr(attack, "steps", None)
    return (
        steps * int(getattr(attack, "searches", 1)) * int(getattr(attack, "restarts", 1))
        if isinstance(steps, int)
        else None
    )
