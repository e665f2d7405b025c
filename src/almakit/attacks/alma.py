"""ALMA, the augmented Lagrangian method for adversarial attacks, as in the paper and the authors' runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from .. import registry
from ..core import Attack, DistanceLike, Problem
from ..errors import BadInput
from ..optim import length
from ..optim.penalties import MU_MAX, MU_MIN
from ..optim.steps import exponential_decay, first_step
from ..tensors import SMALL, per_image


@dataclass(frozen=True)
class ALMA(Attack):
    """Minimises D(x + delta, x) subject to DLR+(f(x + delta), y) < 0 by a joint descent on delta and ascent on the
    multiplier mu.

    Each step: mu <- clip(alpha mu + (1 - alpha) P'(d, rho, mu)); g = P'(d, rho, mu) grad d + grad D; RMSProp with
    momentum; rho <- gamma rho every ``check_steps`` steps while nothing is found and d has not fallen below
    ``improvement`` times its last checked value. Rony et al., *Augmented Lagrangian Adversarial Attacks*, ICCV 2021,
    Algorithm 2.

    As the authors' runs and unlike the paper's text: the first step follows the penalty alone, mu is first updated at
    the second step, rho is checked before the step, and the first step is found on the raw gradient while the applied
    one is divided by the root of the RMSProp average, so it is 1/sqrt(alpha) times epsilon. Unlike both: no backward
    pass after the last query, argmax decides, and a vanished constraint gradient is replaced by a random direction.

    Args:
        epsilon: the distance of the first step: a number, or paper or scripts for the published or the authors' value
            of the distance, where it has none that of an l2 step of 0.1.
        alpha: smoothing of the multipliers; unless given 0.5 at 100 steps to 0.9 from 1000 on.
        gamma: the factor rho grows by.
        ema: whether the multipliers are running averages.
    """

    title = "ALMA"
    cost = "1 forward, 1 backward per step"
    paper = "Rony et al., ICCV 2021"
    ranges = {"(0, inf)": "epsilon mu rho", "[0, 1)": "alpha", "[1, inf)": "gamma check_steps", "(0, 1]": "final_step"}

    distance: DistanceLike = "l2"
    steps: int = 1000
    epsilon: float | str = "paper"
    alpha: float | None = None
    penalty: str = "p2"
    mu: float = 1.0
    rho: float = 1.0
    gamma: float = 1.2
    improvement: float = 0.95
    check_steps: int = 10
    final_step: float = 0.01
    ema: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        registry.get("penalties", self.penalty)
        if isinstance(self.epsilon, str) and self.epsilon not in ("paper", "scripts"):
            raise BadInput(f"epsilon={self.epsilon!r}: give a positive number, 'paper' or 'scripts'.")

    @property
    def smoothing(self) -> float:
        """alpha: as given, else 0.5 at 100 steps or fewer, 0.9 at 1000 or more, linear in log(steps) between (appendix
        of the paper)."""
        if self.alpha is not None:
            return self.alpha
        return 0.5 + 0.4 * min(max(math.log10(self.steps / 100), 0.0), 1.0)

    def run(self, problem: Problem) -> None:
        x, box, goal = problem.x, problem.box, problem.goal
        penalty, alpha = registry.get("penalties", self.penalty)(), self.smoothing
        size = len(x)
        delta = torch.zeros_like(x)
        square_average, momentum = torch.ones_like(x), torch.zeros_like(x)
        mu, rho = x.new_full((size,), self.mu), x.new_full((size,), self.rho)
        first_success = x.new_full((size,), float(self.steps))
        last_checked = rate = x.new_zeros(size)
        one = x.new_ones(())
        # Results are written into preallocated memory: on a CPU, allocating memory costs more than the arithmetic done
        # in it.
        point, gradient, work = x.clone(), torch.empty_like(x), torch.empty_like(x)
        query = problem.start()
        for step in range(self.steps - 1):
            d, d_slope = goal.constraint_and_slope(query.values, query.margin, query.tolerance, query.largest)
            d = d if query.all_valid else torch.where(query.valid, d, one)
            first_success = torch.where(query.success, first_success.clamp(max=step), first_success)

            if step == 0:
                last_checked = d
            elif (step + 1) % self.check_steps == 0:
                stalled = ~problem.found & (d >= self.improvement * last_checked)
                rho = torch.where(stalled, rho * self.gamma, rho)
                last_checked = d
            if step:
                proposed = penalty.derivative(d, rho, mu)
                mu = (torch.lerp(mu, proposed, 1 - alpha) if self.ema else proposed).clamp(MU_MIN, MU_MAX)

            slope = problem.replace_zero_gradients(query.pull_back(d_slope), query.success)
            torch.mul(slope, per_image(penalty.derivative(d, rho, mu), x), out=gradient)
            if step:
                gradient += query.distance_gradient
            if step == 0:
                rate = self._first_rate(problem, gradient, work)
            eta = rate * exponential_decay(step, first_success, self.steps, self.final_step)
            problem.record(step, mu=mu, rho=rho, constraint=d, distance=query.distance, rate=eta, success=query.success)
            square_average.mul_(alpha).addcmul_(gradient, gradient, value=1 - alpha)
            momentum.mul_(alpha).addcdiv_(gradient, torch.sqrt(square_average, out=work).add_(1e-8))
            torch.addcmul(point, momentum, per_image(eta, x), value=-1, out=work)
            torch.sub(problem.step_or_backtrack(query, box.project_continuous(work, x, out=work), point), x, out=delta)
            more = step < self.steps - 2  # no gradients after the last query
            query = problem.query(torch.add(x, delta, out=point), grad=more, distance_grad=more)

    def _first_rate(self, problem: Problem, gradient: torch.Tensor, work: torch.Tensor) -> torch.Tensor:
        """(B,) the step sizes that take the clean images a distance epsilon against ``gradient`` (B, ...); overwrites
        ``work`` (B, ...)."""
        x, box = problem.x, problem.box

        def distance_after(eta: torch.Tensor) -> torch.Tensor:
            torch.sub(x, torch.mul(gradient, per_image(eta, x), out=work), out=work)
            return problem.bound(box.project_continuous(work, x, out=work))

        with torch.no_grad():
            return first_step(distance_after, gradient, self._epsilon(problem), box.width)

    def _epsilon(self, problem: Problem) -> torch.Tensor | float:
        if not isinstance(self.epsilon, str):
            return self.epsilon
        published = problem.bound.distance.first_step
        if published:
            return published[self.epsilon]
        # For an unknown distance: its value for a random step of l2 length 0.1, the paper's first step for l2.
        noise = problem.random.normal()
        return problem.bound(
            problem.box.project_continuous(problem.x + per_image(0.1 / length(noise, 2), noise) * noise, problem.x)
        ).clamp_min(SMALL)
