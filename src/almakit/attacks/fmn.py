from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from ..core import Attack, Problem
from ..core.attack import DistanceLike
from ..core.projections import clip, dual_length, length, onto_ball, room, to_halfspace
from ..core.steps import cosine_decay, per_image


@dataclass(frozen=True)
class FMN(Attack):
    does = ("l0", "l1", "l2", "linf")
    distance: DistanceLike = "l2"
    steps: int = 100
    rate: float = 1.0
    final_rate: float = 0.01
    gamma: float = 0.05
    final_gamma: float = 0.001
    overshoot: float = 0.02
    exact: bool = True
    stretch: str = 'no'
    grow: float = 0.0
    cap: float = 0.0
    newton: bool = False
    ddn: bool = False
    usebest: bool = True
    sign: bool = False
    least: float = .1
    hot: float | None = 0.2
    cold: float = 0.1

    def run(self, problem: Problem) -> None:
        x, goal, box, norm = problem.x, problem.goal, problem.box, problem.bound.distance.norm
        low, high = room(box, x)
        largest = length(torch.maximum(high, -low), norm)
        radius = torch.ones_like(largest) if norm == 0 else torch.full_like(largest, float("inf"))
        delta = torch.zeros_like(x)
        for step in range(self.steps):
            final = step == self.steps - 1
            query = problem.query(x + delta, grad=not final) if step else problem.start()
            if final:
                break
            if self.hot is None:
                value = goal.margin(query.logits)
            else:
                T=(query.logits.detach().std(1)*self.hot*self.cold**(step/self.steps)).clamp_min(1e-20)
                value = goal.soft_margin(query.logits, T)
            slope = problem.escape(query.gradient(value), ~query.success)
            gamma = cosine_decay(step, self.steps, self.gamma, self.final_gamma)
            rate = cosine_decay(step, self.steps, self.rate, self.final_rate)
            won, found = query.success, problem.found
            if norm == 0:
                less = torch.minimum(torch.minimum(radius - 1, (radius * (1 - gamma)).floor()), problem.best_distance)
                more = torch.maximum(radius + 1, (radius * (1 + gamma)).floor())
                radius = torch.where(won, less, more).clamp_min(0 if not self.exact else 1)
            else:
                m = torch.where(query.valid, query.margin, torch.zeros_like(query.margin))
                if self.exact:
                    need = m + query.tolerance - (slope * delta).flatten(1).sum(1)
                    reach = length(to_halfspace(-slope, need, low, high, norm), norm)
                    reach = torch.maximum(reach, length(delta, norm)*(1+self.grow)) * (1 + self.overshoot)
                else:
                    reach = (length(delta, norm) + (m+query.tolerance) / dual_length(slope, norm).clamp_min(1e-12))*(1+self.overshoot)
                if self.cap and step: reach = torch.minimum(reach, radius*(1+self.cap))
                if self.newton:
                    along = -(slope*delta).flatten(1).sum(1)
                    s = torch.where(along>0, (m+query.tolerance).abs()/along.clamp_min(1e-30), 1.0).clamp(self.least*gamma, gamma)
                    radius = torch.where(won, torch.minimum(radius * (1 - s), problem.best_distance if self.usebest else radius), torch.where(found if step==0 or not self.ddn else torch.ones_like(found), radius * (1 + s), reach))
                else: radius = torch.where(won, torch.minimum(radius * (1 - gamma), problem.best_distance), torch.where(found, radius * (1 + gamma), reach))
            radius = torch.minimum(radius, largest)
            moved = delta - slope * per_image(rate / length(slope, 2).clamp_min(1e-30), x)
            if self.sign: moved = delta - slope.sign() * per_image(rate * radius, x)
            if self.stretch != 'no' and norm:
                r = radius
                size = length(moved, norm).clamp_min(1e-30)
                s = (r/size).clamp_min(1.0)
                if self.stretch == 'search': s = torch.where(found, 1.0, s)
                moved = moved*per_image(s,x)
            if self.exact:
                delta = onto_ball(moved, radius, low, high, norm)
            else:
                inf = torch.full_like(x, float("inf"))
                delta = clip(onto_ball(moved, radius, -inf, inf, norm), low, high)
