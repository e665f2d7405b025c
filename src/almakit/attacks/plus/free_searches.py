"""How a budget is spent on a distance that only free steps know how to treat: one search, or from 180 passes on several that differ."""

from __future__ import annotations

from ...core import Problem
from .free_steps import FreeSteps, free_steps
from .margins import Direction, towards, untargeted

# What one search is worth spending where several follow one another, and how many of them at most.
SLOT, MOST = 90, 20
# Likely rivals that get a search of their own.
RIVALS = 3
PLAIN, AGAIN = FreeSteps(), FreeSteps(rate=0.5)
# Searches that explore do better with fewer free steps: with as many as the others they end in the same basins more often.
BOLD, WILD = FreeSteps(inner=10, smoothing=0.9, rate=0.5), FreeSteps(inner=10, smoothing=0.9, rate=2.0, noise=4.0)


def free_searches(problem: Problem, passes: int) -> None:
    """Spends ``passes`` queries. The first half of the searches begin at the clean images, each in another way; the others at the best points known."""
    slots = min(MOST, max(1, passes // SLOT))
    length = passes // slots
    exploring = (slots + 1) // 2
    for number in range(slots):
        steps = length if number < slots - 1 else passes - length * number
        if number < exploring:
            free_steps(problem, steps, *_variant(problem, number))
        else:
            # With large steps again: a basin nearby may be better, and what is known is not lost.
            free_steps(problem, steps, AGAIN, start=problem.best_point)


def _variant(problem: Problem, number: int) -> tuple[FreeSteps, Direction]:
    """The settings and direction of an exploring search: plain; very large steps after a random one; large ones; towards each likely rival; again random."""
    if number == 0:
        return PLAIN, untargeted
    if number == 2:
        return BOLD, untargeted
    assert problem.clean_logits is not None
    # Towards a target, or with one rival, there is no other way to choose.
    rivals = 0 if problem.goal.targeted or problem.clean_logits.shape[1] < 3 else RIVALS
    if 3 <= number < 3 + rivals:
        likely = problem.clean_logits.scatter(1, problem.goal.labels.unsqueeze(1), float("-inf")).argsort(dim=1, descending=True, stable=True)
        return BOLD, towards(likely[:, min(number - 3, likely.shape[1] - 2)])
    return WILD, untargeted
