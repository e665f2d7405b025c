"""What an attack may read of its problem: everything, as values and copies, and nothing can be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...distances.base import Bound
from ...goals.base import Goal
from ...radius import Grid
from ..box import Box, grid_of
from ..model import Oracle
from ..random import ImageRandom
from .best import Best
from .counts import Counts
from .course import Course
from .query import Query

Trace = Callable[[dict[str, Any]], None]


class Sealed:
    """The state of a problem behind properties without setters; slots keep methods from being replaced as well.

    ``x`` (B, ...) are the clean images; the ones that reached the goal unattacked were taken out by the caller's clean
    pass. ``reserve`` keeps one forward of the ``budget`` for ``recheck_full_precision``; ``rows`` (B,) are the images'
    places in the caller's batch, which ``trace`` is told. An image that improves by less than ``share`` over a
    quarter of ``plan`` forwards stops, and one with a success within ``stop_distance``. ``measure`` is the distance
    that counts, where ``bound`` is another one.
    """

    __slots__ = (
        "_active",
        "_all_active",
        "_best",
        "_bound",
        "_box",
        "_broken",
        "_budget",
        "_cheap_sync",
        "_clean_logits",
        "_counts",
        "_course",
        "_goal",
        "_grid",
        "_had_slope",
        "_last_logits",
        "_measure",
        "_noise",
        "_oracle",
        "_random",
        "_rows",
        "_start",
        "_steepest",
        "_stop_distance",
        "_sub_bound",
        "_trace",
        "_x",
    )

    def __init__(
        self,
        oracle: Oracle,
        x: Tensor,
        goal: Goal,
        bound: Bound,
        box: Box,
        random: ImageRandom,
        budget: int | None = None,
        trace: Trace | None = None,
        rows: Tensor | None = None,
        reserve: bool = False,
        plan: int | None = None,
        share: float = 0.0,
        stop_distance: float | None = None,
        measure: Bound | None = None,
    ):
        self._oracle, self._x, self._goal, self._bound, self._box, self._random = oracle, x, goal, bound, box, random
        self._trace, self._rows = trace, torch.arange(len(x)) if rows is None else rows
        # On the CPU a look at (B,) values costs nothing and saves passes over whole images. On another device it would
        # wait for all that is under way, so there the same is done with masks.
        self._cheap_sync = x.device.type == "cpu"
        self._budget, self._measure = budget, measure
        self._stop_distance: float | Tensor | None = stop_distance
        self._grid = grid_of(repr(bound.distance), box, x)
        self._counts = Counts(len(x), x.device, max(budget - 1, 1) if budget is not None and reserve else budget)
        self._best = Best.nothing(x, self._cheap_sync)
        self._course = Course(len(x), x, plan, share)
        self._broken = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        self._had_slope = torch.zeros_like(self._broken)
        self._active, self._all_active = torch.ones_like(self._broken), True
        self._start: Query | None = None
        self._clean_logits: Tensor | None = None
        self._last_logits: Tensor | None = None
        self._sub_bound: tuple[Tensor, Bound] | None = None
        # The last gradient, its largest entries (R,), and whether it is known that none of them is zero.
        self._steepest: tuple[Tensor, Tensor, bool] | None = None
        self._noise: Tensor | None = None

    # What can be read.

    @property
    def x(self) -> Tensor:
        """(B, ...) the clean images."""
        return self._x

    @property
    def goal(self) -> Goal:
        """What is wanted of the outputs."""
        return self._goal

    @property
    def bound(self) -> Bound:
        """The distance to the clean images."""
        return self._bound

    @property
    def box(self) -> Box:
        """Where candidates may live."""
        return self._box

    @property
    def grid(self) -> Grid:
        """Which distances lie within a radius."""
        return self._grid

    @property
    def random(self) -> ImageRandom:
        """Random numbers of each image's own."""
        return self._random

    @property
    def budget(self) -> int | None:
        """How many forwards, and how many backwards, an image may have at most."""
        return self._counts.budget

    @property
    def cheap_sync(self) -> bool:
        """Whether reading values back from the device is cheap."""
        return self._cheap_sync

    @property
    def clean_logits(self) -> Tensor | None:
        """(B, K) of the clean images, detached; None before they went through the model."""
        return self._clean_logits

    def __len__(self) -> int:
        return len(self._x)

    @property
    def best_point(self) -> Tensor:
        """(B, ...) the nearest verified point of each image, the clean image where none is known; a copy."""
        return self._best.point.clone()

    @property
    def best_distance(self) -> Tensor:
        """(B,) its distance, infinite where none is known; a copy."""
        return self._best.distance.clone()

    @property
    def found(self) -> Tensor:
        """(B,) whether an adversarial point is known."""
        return self._best.found

    @property
    def forwards(self) -> Tensor:
        """(B,) passes of each image so far; a copy."""
        return self._counts.forwards.clone()

    @property
    def backwards(self) -> Tensor:
        """(B,) the same backward."""
        return self._counts.backwards.clone()

    @property
    def attached(self) -> Tensor:
        """(B,) the forwards that were made for a gradient; a copy."""
        return self._counts.attached.clone()

    @property
    def course(self) -> Tensor:
        """(B, 5) the best distance when each image had had 10, 30, 100, 300 and 1000 forwards, or the best so far where
        it has had fewer."""
        return self._course.at_marks(self._best.distance)

    @property
    def broken(self) -> Tensor:
        """(B,) whether the model has given logits that are not finite; a copy."""
        return self._broken.clone()

    @property
    def active(self) -> Tensor:
        """(B,) which images still go through the model; a copy."""
        return self._active.clone()

    def tolerance(self, logits: Tensor) -> Tensor:
        """(B,) how far below zero the margin of ``logits`` (B, K) must be to count."""
        return self._goal.tolerance(logits, self._oracle.precision)

    def why(self, index: int) -> str:
        """Why nothing was found for an image."""
        if bool(self._broken[index]):
            return (
                "the model's logits were not finite for some candidates and no adversarial point was found among "
                "the others"
            )
        if int(self._counts.backwards[index]) and not bool(self._had_slope[index]):
            return "the gradient was zero everywhere it was asked for, and random directions found nothing"
        return "no adversarial point was found within the budget"
