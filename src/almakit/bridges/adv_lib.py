"""Attacks of adv-lib in almakit, e.g. ``adv-lib:pdpgd(norm=1, num_steps=100)``. For almakit's attacks with adv-lib's
interface, see ``attackbench.py``."""

from __future__ import annotations

import inspect
import types
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from .foreign import CountedModel, Foreign, library

INSTALL = "pip install adv-lib"
attacks = library("adv_lib.attacks", INSTALL)

GREEK = {"alpha": "α", "gamma": "γ", "epsilon": "ε", "mu": "μ", "rho": "ρ", "tau": "τ", "delta": "δ", "lambda": "λ"}


@dataclass(frozen=True)
class AdvLibForeign(Foreign):
    """``adv-lib:<function of adv_lib.attacks>(settings)``; Greek settings are written in letters: ``alpha`` for α,
    ``mu_init`` for μ_init."""

    library = "adv-lib"
    package = "adv-lib"
    module = attacks
    kind = types.FunctionType
    minimises = {
        "l0": "sigma_zero fga vfga",
        "l2": "carlini_wagner_l2 ddn df sdf pdgd str_attack",
        "linf": "carlini_wagner_linf pgd_linf",
        "ciede2000": "perc_al",
    }

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        found = inspect.signature(self.target).parameters
        return {_in_letters(name): each for name, each in found.items() if name not in self.not_settings.split()}

    def perturb(self, model: CountedModel, x: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
        theirs = {_in_letters(name): name for name in inspect.signature(self.target).parameters}
        settings = {theirs[name]: value for name, value in self.settings}
        if isinstance(settings.get("penalty"), str):
            penalties = library("adv_lib.utils.lagrangian_penalties", INSTALL).all_penalties
            settings["penalty"] = penalties[settings["penalty"]]
        if targets is not None:
            settings["targeted"] = True
        found: Tensor = self.target(model.eval(), x, labels if targets is None else targets, **settings)
        return found


def _in_letters(name: str) -> str:
    for letters, sign in GREEK.items():
        name = name.replace(sign, letters)
    return name
