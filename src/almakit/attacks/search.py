"""Binary search on epsilon around any fixed-radius attack, separately for each image."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..core import Attack, Problem
from ..distances.base import Distance
from ..errors import BadInput
from .fixed_epsilon import FixedEpsilon, reached


@dataclass(frozen=True)
class Search(Attack):
    """Finds the smallest epsilon at which a fixed-radius attack succeeds: tries ``largest``, then halves the bracket,
    ``halvings`` tries in all.

    A success at radius e with a point at distance d <= e makes d the upper end, a failure makes e the lower end. While
    no radius has failed the next is a quarter of the best distance, while none has succeeded twice the last one.
    ``largest`` None is half the distance to the farthest corner of the box, which suits any data, because successes at
    large radii cost few passes. The ALMA paper's tables (section 5) used APGD-T and LPA this way with the values in
    ``presets``.

    Unlike the search there: the upper end uses the distance found instead of the radius tried, a failed image tries
    larger radii up to the whole box, and the clean logits are not computed again for each radius.

    Args:
        attack: an attack at a fixed radius, such as apgd(distance=l2, steps=50).
        largest: the first radius; none for half the way to the farthest corner of the box.
        halvings: number of radii that are tried.
    """

    title = "search"
    cost = "halvings x the attack's cost; successes stop early"
    paper = "Rony et al., ICCV 2021, section 5"
    presets = {
        "paper-mnist": {"largest": 5.0, "halvings": 13},
        "paper-cifar10": {"largest": 2.5, "halvings": 12},
        "paper-imagenet": {"largest": 10.0, "halvings": 14},
        "paper-lpips": {"largest": 0.5, "halvings": 10},
    }

    ranges = {"[1, inf)": "halvings", "(0, inf)": "largest"}

    attack: FixedEpsilon = None  # type: ignore[assignment]  # __post_init__ refuses a search without an attack
    largest: float | None = None
    halvings: int = 14

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attack is None:
            raise BadInput("search needs an attack to search with: search(attack=apgd(distance=l2, steps=100)).")
        if not isinstance(self.attack, FixedEpsilon):
            what = type(self.attack).__name__ if isinstance(self.attack, Attack) else repr(self.attack)
            raise BadInput(
                f"search turns a fixed-radius attack into a minimal one; {what} is none: use pgd, apgd, lpa or square, "
                "or run it as it is."
            )
        if self.attack.epsilon is not None:
            raise BadInput(
                f"search chooses the radius itself: leave epsilon={self.attack.epsilon} out, or give the first radius "
                "as search(largest=...)."
            )

    @property
    def measure(self) -> Distance:
        return self.attack.measure

    @property
    def can_target(self) -> bool:  # type: ignore[override]
        return self.attack.can_target

    def needs_classes(self) -> bool:
        return self.attack.needs_classes()

    def needs_gradients(self) -> bool:
        return self.attack.needs_gradients()

    def run(self, problem: Problem) -> None:
        x, box = problem.x, problem.box
        corner = torch.where(x > (box.lo + box.hi) / 2, box.lo, box.hi).to(x.dtype)
        farthest = problem.bound(box.project_continuous(corner, x))
        epsilon = farthest / 2 if self.largest is None else torch.full_like(farthest, self.largest)
        lower = torch.zeros_like(epsilon)
        for _ in range(self.halvings):
            with problem.round():
                self.attack.run_at(problem, epsilon)
            lower = torch.where(reached(problem, epsilon), lower, epsilon)
            problem.record(0, epsilon=epsilon, lower=lower, best=problem.best_distance)
            # A success below a radius that failed (because of another random start) invalidates that failure.
            best = problem.best_distance
            inside = torch.where((lower > 0) & (lower < best), (lower + best) / 2, best / 4)
            epsilon = torch.where(torch.isfinite(best), inside, 2 * lower)
