"""What the settings of attacks mean, in a line each: what ``almakit ls attacks <name>`` prints. The class has the whole
story."""

from __future__ import annotations

from typing import Any

GENERAL = {
    "distance": "what is minimised: a name, a norm, in Python also a function f(x, y) -> (B,)",
    "steps": "iterations, each a forward and mostly a backward of every image",
    "epsilon": "the radius of the ball, such as 8/255; must be given",
    "loss": "what is climbed: ce, dlr or margin",
    "restarts": "how many runs, each from another random point",
    "searches": "how many values of the weight on the model's loss are tried",
    "weight": "the first weight on the model's loss",
    "rate": "the step size",
    "final_rate": "what part of itself the step size falls to",
    "final_step": "what part of itself the step size falls to",
    "gamma": "the relative change of the radius in a step",
    "mu": "the multiplier at the start",
    "rho": "the penalty parameter at the start",
    "penalty": "the penalty function: phr, p1, p2 or p3",
    "improvement": "rho grows unless the constraint falls below this part of its last value",
    "check_steps": "iterations between two looks at rho",
    "alpha": "smoothing of the running averages",
    "overshoot": "how far past the linearised boundary a step goes",
    "candidates": "how many of the likeliest classes are considered",
    "levels": "grey levels every iterate is rounded to: 256 for 8 bits, none for no rounding",
    "abort_early": "whether an image stops once it no longer improves",
    "adaptive": "whether radius and step follow the linearised margin; false is the original",
    "pull_back": "forwards spent on the segment to the clean image at the end",
    "damping": "what part of a long linearised step is taken",
    "share": "the part of the values, or of the pixels, that takes part",
}
"""Settings that mean the same in most attacks."""

OWN: dict[str, dict[str, str]] = {
    "alma": {
        "epsilon": "the distance of the first step: a number, paper or scripts for the published or the authors' value",
        "alpha": "smoothing of the multipliers; 0.5 at 100 steps to 0.9 from 1000 on unless given",
        "gamma": "the factor rho grows by",
        "ema": "whether the multipliers are running averages",
    },
    "alma-prox": {
        "share": "the part of the pixels that must be wrong",
        "growth": "how much the step may grow until the goal is first reached",
        "gamma": "the factor rho grows by",
        "smallest_scale": "the smallest common scale of the constraints",
        "scale_rate": "how fast that scale changes in a step",
    },
    "dag": {"rate": "the largest change of a value in a step, in parts of the box"},
    "asma": {"tau": "the smallest factor of a step", "beta": "how much that factor grows with the pixels won"},
    "sea": {
        "loss": "one loss alone, where losses has it",
        "losses": "what is climbed, one run after the other: mask-ce, balanced-ce, js, mask-sphere",
        "rivals": "not used here",
        "rho": "the part of the steps that must pay for the step size to stay",
        "widen": "not used here: the first steps always use 2 and 1.5 epsilon",
        "stop": "whether an image leaves as soon as a point is found",
    },
    "alm": {
        "outer": "updates of the multiplier",
        "inner": "iterations between two of them",
        "epsilon": "the distance of the first step; none takes the distance's published value for ALMA",
        "gamma": "the factor rho grows by",
    },
    "ddn": {"initial_norm": "the first radius; none for the linearised distance"},
    "fmn": {
        "overshoot": "the smallest relative change of the radius",
        "gamma": "the largest relative change of the radius",
    },
    "ead": {
        "beta": "the weight of the l1 norm",
        "rule": "which point is returned: the nearest in l1, or en for the elastic net",
        "accelerated": "FISTA; false is ISTA, one forward a step",
    },
    "cw": {"squared": "whether the squared distance is minimised; none: for l2 only"},
    "apgd": {
        "loss": "what is climbed: margin, ce, dlr or targeted-dlr (APGD-T)",
        "rivals": "the classes APGD-T makes a run towards",
        "rho": "the part of the steps that must pay for the step size to stay",
        "widen": "l1: whether the first steps use 3 and 2 epsilon",
        "stop": "whether an image leaves as soon as a point is found",
    },
    "pgd": {
        "rate": "the step as a part of epsilon; none for 2.5 / steps",
        "random": "whether it starts from a random point in the ball",
        "share": "l1: the part of the values a step moves",
    },
    "search": {
        "attack": "an attack at a fixed radius, such as apgd(distance=l2, steps=50)",
        "largest": "the first radius; none for half the way to the farthest corner of the box",
        "halvings": "how many radii are tried",
    },
    "perc-al": {
        "class_rate": "the step up the cross-entropy",
        "colour_rate": "the step down the colour difference",
        "scaled": "whether both steps are a fifth and shrink with the perturbation; none: without levels",
    },
    "lpa": {
        "searches": "rounds, with a ten times larger weight on the distance in each",
        "weight": "the first weight on the distance",
        "confidence_cap": "the margin beyond which the loss is flat",
    },
    "bb": {
        "radius": "the first trust radius, as a part of the l2 distance of the starting point",
        "halvings": "how often the trust radius is halved over the steps; none for 5 per tenfold above 10 steps",
        "overshoot": "how far past the boundary a step from outside aims",
        "momentum": "smoothing of the boundary's normal",
        "start_steps": "signed gradient steps to find a starting point",
        "start_tries": "random images tried after them",
        "bisections": "halvings of the segment to the clean image at the start",
    },
    "strattack": {
        "rho": "the ADMM penalty",
        "alpha": "the step of z, times the root of the iteration",
        "tau": "the weight of the groups' lengths",
        "gamma": "the weight of the squared l2 norm",
        "group": "the side of a group, in pixels",
        "refine": "further iterations inside the groups found",
    },
    "deepfool": {"boxed": "whether the linearised step stays in the box; false is the original"},
    "superdeepfool": {
        "gain": "the relative gain a crossing must bring; none stops as published",
        "patience": "crossings without it before an image stops",
    },
    "fab": {
        "alpha_max": "the largest weight of the clean image's projection",
        "eta": "how far past the boundary a step goes",
        "beta": "how far back towards the image a success is drawn",
        "targeted_classes": "FAB-T: a run towards each of so many classes; none for FAB",
        "search": "forwards of the final search on the segment to the clean image",
    },
    "pdgd": {
        "ratio": "the multipliers' ratio at the start",
        "dual_rate": "how fast the multipliers move",
        "smoothing": "of the multipliers' running averages",
        "scaled": "whether margin and steps are in units of the linearised distance; false is the original",
    },
    "sigma-zero": {
        "sigma": "the width of the smooth l0",
        "threshold": "values below it are set to zero, in parts of the box's width",
        "threshold_rate": "how fast the threshold moves",
        "trim": "forwards that take needless changes back at the end",
    },
    "square": {
        "steps": "queries of each image, a forward each",
        "share": "the part of the pixels in the first squares",
    },
    "hopskipjump": {
        "steps": "queries of each image, a forward each",
        "evaluations": "random directions of the first estimate of the boundary's normal",
        "start_tries": "random images tried until one reaches the goal",
    },
    "ensemble": {"attacks": "the attacks, such as [soft-walk, fmn(steps=50)]"},
}
OWN["pdpgd"] = OWN["pdgd"]


def meaning(attack: str, kind: Any, setting: str) -> str:
    """The meaning of a setting of the attack ``attack`` of class ``kind``: its own, that of a plug-in's ``meanings``,
    or the general one."""
    own = OWN.get(attack) or getattr(kind, "meanings", {})
    return own.get(setting) or GENERAL.get(setting, "")
