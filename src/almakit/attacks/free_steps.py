"""Free steps, for a distance that no solver knows: between two model queries, many steps on the distance alone along the linearised decision boundary.

Only passes of the attacked model count. Each query gives the hard margin and the gradient g of a soft margin; then k steps of a preconditioned
descent on D follow, each projected onto {linearised margin <= 0} and the box. No multiplier, no penalty, and nothing is set per distance. From 180 queries
on there are several searches that differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core import Box, Problem, Query
from ..core.steps import per_image

Direction = Callable[[Problem, Query, float | Tensor], tuple[Tensor, Tensor]]
TINY = 1e-30
# Steps after which impatience has reached any limit; its power would overflow in long runs.
LONGEST_WAIT = 60
# The part of a search after which the overshoot follows each image's own successes, and the least share of it that is left.
SETTLED, TIGHTEST = 0.5, 0.03
# How many steps before the end images of which nothing is known begin to stride across the box.
LAST_RESORT = 7
# What one search is worth spending where several follow one another, and how many of them at most.
SLOT, MOST = 90, 20
# Likely rivals that get a search of their own.
RIVALS = 3


@dataclass(frozen=True)
class FreeSteps:
    """Settings of the phase, all dimensionless. ``guarded``: where the free steps end worse than the shortest way to the linearised boundary would, that is
    taken. A metric made of slopes lets single values that cost nothing yet (a change of zero in a distance of high order) go the whole way.
    ``tighter``, ``looser``: what an image's overshoot is multiplied by in the second half after a point that succeeds, and after one that does not.
    ``noise``: the standard deviation, in units of the first projection's root mean square, of what is added to it."""

    inner: int = 20
    rate: float = 0.2
    noise: float = 0.0
    smoothing: float = 0.95
    momentum: float = 0.9
    overshoot: float = 0.1
    patience: int = 5
    floor: float = 0.01
    overshoot_floor: float = 0.1
    tighter: float = 0.7
    looser: float = 1.5
    guarded: bool = True


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
            free_steps(problem, steps, AGAIN, untargeted, problem.best_point)


def _variant(problem: Problem, number: int) -> tuple[FreeSteps, Direction]:
    """The settings and direction of an exploring search: plain; very large steps after a random one; large ones; towards each likely rival; again random."""
    if number == 0:
        return PLAIN, untargeted
    if number == 2:
        return BOLD, untargeted
    assert problem.clean_logits is not None
    # Towards a target, or with one rival, there is no other way to choose.
    ways = problem.goal.rivals(problem.clean_logits)
    rivals = 0 if ways is None or ways.shape[1] < 2 else RIVALS
    if ways is not None and 3 <= number < 3 + rivals:
        return BOLD, towards(ways[:, min(number - 3, ways.shape[1] - 1)])
    return WILD, untargeted


def free_steps(problem: Problem, steps: int, s: FreeSteps, direction: Direction, start: Tensor | None = None) -> None:
    """Spends ``steps`` queries from the clean images or ``start`` (B, ...); what it finds is in the problem."""
    x, box, bound = problem.x, problem.box, problem.bound
    delta, square, momentum = torch.zeros_like(x) if start is None else start - x, torch.zeros_like(x), torch.zeros_like(x)
    seen, unit = 0, x.new_zeros(len(x))
    found, tightness = torch.zeros(len(x), dtype=torch.bool, device=x.device), x.new_ones(len(x))
    for i in range(steps):
        last = i == steps - 1
        query = problem.start() if i == 0 and start is None else problem.query(x + delta, grad=not last)
        if last:
            break
        found = found | query.success
        phase = i / max(steps - 1, 1)
        decay = s.floor**phase
        g, spread = direction(problem, query, 0.2 * 0.1**phase)
        impatience = min(1.2 ** min(max(0, i - s.patience), LONGEST_WAIT), 20 / decay)
        along = dot(g, delta)
        if phase >= SETTLED:
            followed = (tightness * torch.where(query.success, s.tighter, s.looser)).clamp(TIGHTEST, 1)
            tightness = torch.where(found, followed, tightness)
        overshoot = s.overshoot * max(decay, s.overshoot_floor) * torch.maximum(along.abs(), 0.02 * spread) * torch.where(found, tightness, impatience)
        # No more is asked for than half of what the box allows: the linearisation is not trusted further.
        lowest = -(g.abs() * room(x, g, box)).flatten(1).sum(1)
        level = torch.maximum(along - (query.margin + query.tolerance) - overshoot, 0.5 * lowest + 0.5 * along)
        level = torch.where(query.valid, level, along)
        d = delta
        if i == 0:
            d = onto_halfspace(delta, x, g, level, box)
            unit = torch.linalg.vector_norm(d.flatten(1), dim=1) / x[0].numel() ** 0.5
            if s.noise:
                d = box.project_continuous(x + d + per_image(s.noise * unit, x) * problem.random.normal(), x) - x
        size = s.rate * decay * unit * torch.where(found, 1.0, 0.9 ** max(0, i - s.patience))
        for _ in range(s.inner):
            slope = torch.nan_to_num(bound.value_and_grad(x + d)[1], nan=0.0, posinf=0.0, neginf=0.0)
            seen += 1
            square = s.smoothing * square + (1 - s.smoothing) * slope.square()
            root = (square / (1 - s.smoothing**seen)).sqrt()
            mean = root.flatten(1).mean(1).clamp_min(1e-30)
            metric = root + 1e-3 * per_image(mean, x)
            momentum = s.momentum * momentum + (1 - s.momentum) * slope / metric
            d = onto_halfspace(d - per_image(size, x) * momentum, x, g, level, box, metric / per_image(mean, x))
        if s.guarded:
            shortest = onto_halfspace(delta, x, g, level, box)
            with torch.no_grad():
                worse = bound(x + d) > bound(x + shortest)
            d = torch.where(per_image(worse, x), shortest, d)
        if steps - i <= LAST_RESORT:
            d = torch.where(per_image(found, x), d, strided(x, delta, g, box, LAST_RESORT))
        delta = torch.where(per_image(query.valid, x), d, problem.midway(x + delta) - x)


def untargeted(problem: Problem, query: Query, temperature: float | Tensor) -> tuple[Tensor, Tensor]:
    """Gradient (B, ...) of the margin with its maximum softened over ``temperature`` standard deviations of the logits, and these (B,).

    The scale is not differentiated: on saturated logits a differentiated one hides the margin's own gradient.
    """
    spread = problem.goal.spread(query.logits.detach().nan_to_num()).clamp_min(1e-12)
    slope = query.gradient(problem.goal.soft_margin(query.logits, temperature * spread))
    return problem.escape(slope, ~query.success), spread


def towards(classes: Tensor) -> Direction:
    """The margin against the given classes (B,) alone, which are among the goal's rivals."""

    def direction(problem: Problem, query: Query, temperature: float | Tensor) -> tuple[Tensor, Tensor]:
        spread = problem.goal.spread(query.logits.detach().nan_to_num()).clamp_min(1e-12)
        return problem.escape(query.gradient(problem.goal.rival_margin(query.logits, classes)), ~query.success), spread

    return direction


def dot(a: Tensor, b: Tensor) -> Tensor:
    """(B,) inner products of images (B, ...)."""
    return (a * b).flatten(1).sum(1)


def room(x: Tensor, g: Tensor, box: Box) -> Tensor:
    """(B, ...) how far each value of ``x`` (B, ...) may go against the gradient ``g`` (B, ...) before the box stops it."""
    free = torch.where(g < 0, box.hi - x, x - box.lo) * (g != 0)
    return box.free(free)


def strided(x: Tensor, delta: Tensor, g: Tensor, box: Box, steps: int) -> Tensor:
    """(B, ...) ``delta`` (B, ...) one stride further against the gradient's signs: a sixth of the box, or as much as crosses it in ``steps`` - 1."""
    return box.project_continuous(x + delta - box.width / max(1, min(6, steps - 1)) * g.sign(), x) - x


def onto_halfspace(point: Tensor, x: Tensor, g: Tensor, level: Tensor, box: Box, metric: Tensor | None = None) -> Tensor:
    """The projection of the perturbations ``point`` (B, ...) onto {d: g.d <= level, x + d in the box}, in a diagonal ``metric`` (B, ...) > 0.

    u(nu) = clip(point - nu g/H) with nu >= 0 and g.u <= level (B,), by Newton steps on the values the box leaves free.
    """
    direction = g if metric is None else g / metric
    nu = torch.zeros_like(level)
    for _ in range(6):
        wanted = x + point - per_image(nu, x) * direction
        allowed = box.project_continuous(wanted, x)
        slope = (g * direction * (allowed == wanted)).flatten(1).sum(1)
        clipped = allowed - x
        nu = (nu + (dot(g, clipped) - level) / slope.clamp_min(TINY)).clamp(0, 1e30)
    return box.project_continuous(x + point - per_image(nu, x) * direction, x) - x
