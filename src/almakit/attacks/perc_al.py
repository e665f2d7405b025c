"""PerC-AL: alternates between leaving the class and coming back in colour difference."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..core import Attack, DistanceLike, Problem
from ..optim import length, to_levels
from ..optim.steps import cosine_decay
from ..tensors import per_image, unit
from .fixed_epsilon import ascent_loss

# What scaled steps are of the lengths given, in units of the perturbation's own.
PART = 0.2


@dataclass(frozen=True)
class PerCAL(Attack):
    """Where x + delta does not fool the model, delta += a_l g/|g| up the cross-entropy; where it does, delta -= a_c
    h/|h|, h the gradient of CIEDE2000.

    Both step lengths fall along a cosine, a_l from ``class_rate`` to a hundredth, a_c from ``colour_rate`` to a tenth
    of it. Zhao, Liu and Larson, *Towards Large yet Imperceptible Adversarial Image Perturbations with Perceptual Color
    Distance*, CVPR 2020, Algorithm 2; its untargeted runs used colour_rate 0.1, the ALMA paper's comparison 0.5.

    ``scaled`` shortens both steps to a fifth, and further by the perturbation's own length while that is below 1: on a
    network that small changes fool, steps of a fixed length jump back and forth across image and boundary until the
    end. Unless given, it is so without ``levels``, and not with them: there it is the original.

    The published code's CIEDE2000 is wrong in values and gradients (ALMA paper, section 6); here it is the correct one,
    or with ``distance="ciede2000-paper"`` the ALMA paper's constants. ``levels=256`` judges only points rounded to 8
    bits, by a second forward in each step, as the original does; left out, every iterate is judged where its gradient
    is taken and one forward a step is enough. (To want only 8-bit images of any attack, give it a box with bits=8.)
    With levels there are 2 N forwards where the paper's tables have 2 N + 1: the clean pass serves the first step too.
    The original keeps the point whose colour difference was smallest before its last step and rounding, here it is the
    returned image's own.

    Args:
        class_rate: the step up the cross-entropy.
        colour_rate: the step down the colour difference.
        scaled: whether both steps are a fifth and shrink with the perturbation; none: without levels.
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
            push = problem.replace_zero_gradients(query.gradient(ascent_loss("ce", problem.goal, query.logits)), ~fools)
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
