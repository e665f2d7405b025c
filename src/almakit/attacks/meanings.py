"""One-line descriptions of attack settings for ``almakit ls attacks NAME``."""

from __future__ import annotations

import inspect
import re

GENERAL = {
    "distance": "the distance to minimise: a name, a norm, in Python also a function f(x, y) -> (B,)",
    "steps": "number of iterations; each makes a forward and usually a backward per image",
    "epsilon": "the radius of the ball, such as 8/255; required",
    "restarts": "number of runs, each from another random point",
    "searches": "number of values that are tried for the weight of the model's loss",
    "weight": "the first weight on the model's loss",
    "rate": "the step size",
    "final_rate": "what part of itself the step size falls to",
    "final_step": "what part of itself the step size falls to",
    "gamma": "the relative change of the radius in a step",
    "mu": "the multiplier at the start",
    "rho": "the penalty parameter at the start",
    "penalty": "the penalty function: phr, p1, p2 or p3",
    "improvement": "rho grows unless the constraint falls below this share of its last value",
    "check_steps": "iterations between two checks of rho",
    "alpha": "smoothing of the running averages",
    "overshoot": "factor by which a step passes the linearised boundary",
    "candidates": "number of likeliest classes that are considered",
    "abort_early": "whether an image stops when it no longer improves",
    "adaptive": "whether radius and step follow the linearised margin; false is the original",
    "pull_back": "forwards spent on the segment to the clean image at the end",
    "damping": "factor of a long linearised step",
}
"""Settings that mean the same in most attacks."""


def meaning(kind: type, setting: str) -> str:
    """The description of a setting of the attack class ``kind``: from the Args of its docstring, else the common
    one."""
    return documented(kind).get(setting) or GENERAL.get(setting, "")


def documented(kind: type) -> dict[str, str]:
    """The Args of the docstrings of ``kind`` and its bases: name -> text, without line breaks and final full stop."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        arguments = inspect.cleandoc(base.__doc__ or "").partition("\nArgs:\n")[2]
        for name, text in re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", arguments, re.MULTILINE):
            found[name] = " ".join(text.split()).removesuffix(".")
    return found
