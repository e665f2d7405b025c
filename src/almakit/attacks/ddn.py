"""DDN: decoupled direction and norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from ..core import Attack, Problem
from ..core.projections import clip, length, room
from ..core.steps import cosine_decay, per_image
from ..errors import BadInput


@dataclass(frozen=True)
class DDN(Attack):
    steps: int = 100
    gamma: float = 0.05
    final_gamma: float = 0.05
    initial_norm: float | None = 1.0
    levels: int | None = None
    over: float = 1.0
    first_rate: float = 1.0
    newton: bool = False
    least: float = 0.1
    hot: float|None = 0.2
    cold: float = 0.1

    def run(self, problem: Problem) -> None:
        x, goal, box = problem.x, problem.goal, problem.box
        low, high = room(box, x)
        largest = length(torch.maximum(high, -low), 2)
        radius = x.new_full((len(x),), self.initial_norm or 1.0).minimum(largest)
        delta = torch.zeros_like(x)
        for step in range(self.steps):
            final = step == self.steps - 1
            query = problem.query(x + delta, grad=not final) if step else problem.start()
            if final:
                break
            T=torch.ones_like(query.margin) if self.hot is None else (query.logits.detach().std(1)*self.hot*self.cold**(step/self.steps)).clamp_min(1e-20)
            soft = goal.soft_margin(query.logits, T)
            slope = query.gradient(soft)
            slope = problem.escape(slope, ~query.success)
            steep = length(slope, 2).clamp_min(1e-30)
            gamma = cosine_decay(step, self.steps, self.gamma, self.final_gamma)
            rate = cosine_decay(step, self.steps, self.first_rate)
            if step == 0 and self.initial_norm is None:
                radius = (self.over * query.margin / steep).clamp(max=largest)
            else:
                if self.newton:
                    along = -(slope*delta).flatten(1).sum(1)
                    s = torch.where(along>0, query.margin/along.clamp_min(1e-30), torch.full_like(along,float('inf')))
                    s = torch.where(query.success, -s.abs().clamp(self.least*gamma,gamma), s.abs().clamp(self.least*gamma,gamma))
                    radius = ((1+s)*length(delta,2) if self.newton=='d' else (1+s)*radius).minimum(largest)
                else:
                    radius = torch.where(query.success, (1 - gamma) * radius, (1 + gamma) * radius).minimum(largest)
            moved = delta - slope * per_image(rate / steep, x)
            moved = moved * per_image(radius / length(moved, 2).clamp_min(1e-30), x)
            delta = clip(moved, low, high)
            if self.levels is not None:
                delta = self._quantise(x + delta, problem) - x

    def _quantise(self, point, problem):
        box, count = problem.box, self.levels - 1
        return box.lo + box.width * ((point - box.lo) * (count / box.width)).round() / count
