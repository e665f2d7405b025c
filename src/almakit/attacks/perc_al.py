"""PerC-AL: alternates between leaving the class and coming back in colour difference."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..core import Attack, DistanceLike, Problem
from ..optim import length, to_levels
from ..optim.steps import cosine_decay
from ..tensors import per_image, unit
from .fixed_epsilon import ascent_loss

# Factor of scaled steps, in units of the perturbation's length.
PART = 0.2


@dataclass(frozen=True)
class PerCAL(Attack):
    """Where x + delta does not fool the model, delta += a_l g/|g| up the cross-entropy; where it does, delta -= a_c
    h/|h|, h the gradient of CIEDE2000.

    Both step lengths fall along a cosine, a_l from ``class_rate`` to a hundredth, a_c from ``colour_rate`` to a tenth
    of it. Zhao, Liu and Larson, *Towards Large yet Imperceptible Adversarial Image Perturbations with Perceptual Color
    Distance*, CVPR 2020, Algorithm 2; its untargeted runs used colour_rate 0.1, the ALMA paper's comparison 0.5.

    Differences from the original: CIEDE2000 is the correct one (the published code's is wrong in values and gradients,
    ALMA paper, section 6), or with ``distance="ciede2000-paper"`` has the ALMA paper's constants. Without ``levels``
    every iterate is judged where its gradient is taken, and one forward a step is enough; with them the clean pass
    serves the first step too, so there are 2 N forwards and not 2 N + 1. The distance is the returned image's own, not
    that before its last step and rounding.

    Args:
        class_rate: the step up the cross-entropy.
        colour_rate: the step down the colour difference.
        levels: grey levels of the points that are judged, by a second forward in each step; 256 as published.
        scaled: whether both steps are a fifth, and shorter by the perturbation's own length while that is below 1, for
            networks that are fooled by small changes; none: true without levels.
    """

    title = "PerC-AL"
    does = ("ciede2000", "ciede2000-paper")
    cost = "steps + 1 forwards, steps backwards; 2 steps forwards with levels"
    paper = "Zhao, Liu and Larson, CVPR 2020"
    presets = {"paper": {"distance": "ciede2000-paper", "levels": 256}}
    ranges = {"(0, inf)": "class_rate colour_rate", "[2, inf)": "levels"}

    distance: DistanceLike = "ciede2000"
    steps: int = 100
    class_rate: float = 1.0
    colour_rate: float = 0.5
    levels: int | None = None
    scaled: bool | None = None

    def needs_classes(self) -> bool:
        return True

    def run(self, problem: Problem) -> None:
        x, box = problem.x, problem.box
        query = problem.start(distance_grad=True)
        point, fools = x, query.success
        scaled = self.levels is None if self.scaled is None else self.scaled
        for step in range(self.steps):
            out = cosine_decay(step, self.steps, self.class_rate, self.class_rate / 100)
            back = cosine_decay(step, self.steps, self.colour_rate, self.colour_rate / 10)
            push = problem.replace_zero_gradients(query.gradient(ascent_loss("ce", problem.goal, query.logits)), fools)
            problem.record(step, distance=query.distance, success=fools)
            move = torch.where(per_image(fools, x), -back * unit(query.distance_gradient), out * unit(push))
            if scaled:
                gone = length(point - x, 2)
                move = per_image(PART * torch.where(gone > 0, gone.clamp_max(1), 1.0), x) * move
            moved = box.project_continuous(point + move, x)
            point = problem.step_or_backtrack(query, moved, point)
            final = step == self.steps - 1
            if self.levels is not None:
                fools = problem.query(to_levels(box, point, self.levels), grad=False).success
                query = query if final else problem.query(point, distance_grad=True, aside=True)
            else:
                query = problem.query(point, grad=not final, distance_grad=not final)
                fools = query.success
