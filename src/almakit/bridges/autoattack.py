"""AutoAttack in almakit: ``autoattack:standard(norm=Linf, eps=0.3)``, from the authors' package or from
``pyautoattack``."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from ..errors import Unavailable
from .foreign import CountedModel, Foreign, library

VERSIONS = ("standard", "plus", "rand")
SINGLE = ("apgd-ce", "apgd-dlr", "apgd-t", "fab", "fab-t", "square")
THEIR_NORM = {"linf": "Linf", "l2": "L2", "l1": "L1"}


def _package() -> tuple[str, Any]:
    """The authors' package if it is installed, else the package on PyPI with the same attacks."""
    install = "pip install pyautoattack, or pip install git+https://github.com/fra31/auto-attack"
    try:
        return "autoattack", library("autoattack", install)
    except Unavailable:
        return "pyautoattack", library("pyautoattack", install)


PACKAGE, theirs = _package()


@dataclass(frozen=True)
class AutoAttackForeign(Foreign):
    """``autoattack:<version or attack>(norm=..., eps=...)``: versions standard, plus, rand; attacks apgd-ce, apgd-dlr,
    apgd-t, fab, fab-t, square.

    ``distance=linf`` may be written instead of ``norm=Linf``. Successes are points within ``eps``; FAB's points beyond
    it do not count.
    """

    library = "autoattack"
    package = PACKAGE
    can_target = False
    gradient_free = "square"
    not_settings = "self model attacks attacks_to_run device version verbose is_tf_model log_path logger"

    @cached_property
    def target(self) -> Callable[..., Any]:
        found: Callable[..., Any] = self.named(dict.fromkeys((*VERSIONS, *SINGLE), theirs.AutoAttack))
        return found

    def __post_init__(self) -> None:
        if isinstance(self.distance, str) and "norm" not in dict(self.settings):
            norm = THEIR_NORM.get(self.distance, self.distance)
            object.__setattr__(self, "settings", (*self.settings, ("norm", norm)))
        super().__post_init__()

    def perturb(self, model: CountedModel, x: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
        takes = inspect.signature(self.target).parameters
        # Seeded by the image, like all random numbers of foreign attacks, unless the user sets a seed.
        settings = {"seed": model.problem.random.seed, **dict(self.settings), "device": x.device}
        settings |= {"verbose": False} if "verbose" in takes else {}
        if self.short_name in SINGLE:
            attacks = "attacks" if "attacks" in takes else "attacks_to_run"
            settings |= {"version": "custom", attacks: [self.short_name]}
        else:
            settings["version"] = self.short_name
        run = self.target(model.eval(), **settings).run_standard_evaluation
        logging.getLogger("auto-attack").setLevel(logging.ERROR)
        size = "bs" if "bs" in inspect.signature(run).parameters else "batch_size"
        found = run(x, labels, **{size: len(x)})
        adversarials: Tensor = found[0] if isinstance(found, tuple) else found
        return adversarials
