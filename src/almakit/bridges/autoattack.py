"""AutoAttack in our engine: ``autoattack:standard(norm=Linf, eps=0.3)``, from the authors' package or from
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
from .foreign import Foreign, norm_name
from .gate import Gate
from .library import distribution, library, unknown

VERSIONS = ("standard", "plus", "rand")
SINGLE = ("apgd-ce", "apgd-dlr", "apgd-t", "fab", "fab-t", "square")
THEIR_NORM = {"linf": "Linf", "l2": "L2", "l1": "L1"}


def _package() -> tuple[str, Any]:
    """The authors' package where it is installed, else the one on PyPI with the same attacks."""
    install = "pip install pyautoattack, or pip install git+https://github.com/fra31/auto-attack"
    try:
        return "autoattack", library("autoattack", install)
    except Unavailable:
        return "pyautoattack", library("pyautoattack", install)


PACKAGE, module = _package()


@dataclass(frozen=True)
class AutoAttackForeign(Foreign):
    """``autoattack:<version or attack>(norm=..., eps=...)``: versions standard, plus, rand; attacks apgd-ce, apgd-dlr,
    apgd-t, fab, fab-t, square.

    ``distance=linf`` may be written instead of ``norm=Linf``. Successes are points within ``eps``; FAB's points beyond
    it do not count.
    """

    library = "autoattack"
    forwards_alone = ("square",)

    @cached_property
    def target(self) -> Callable[..., Any]:
        name = self.name.partition(":")[2]
        if name not in (*VERSIONS, *SINGLE):
            raise unknown("autoattack", name, (*VERSIONS, *SINGLE))
        found: Callable[..., Any] = module.AutoAttack
        return found

    def hidden(self) -> tuple[str, ...]:
        return (
            "self",
            "model",
            "attacks",
            "attacks_to_run",
            "device",
            "version",
            "verbose",
            "is_tf_model",
            "log_path",
            "logger",
        )

    def __post_init__(self) -> None:
        given = dict(self.settings)
        if isinstance(self.distance, str) and "norm" not in given:
            object.__setattr__(
                self, "settings", (*self.settings, ("norm", THEIR_NORM.get(self.distance, self.distance)))
            )
        super().__post_init__()

    def guess_distance(self) -> str | None:
        return norm_name(self.values["norm"])

    def targets_too(self) -> bool:
        return False

    def version(self) -> str:
        return distribution(PACKAGE)

    def perturb(self, model: Gate, x: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
        name, takes = self.name.partition(":")[2], inspect.signature(self.target).parameters
        # The seed is drawn from the image's own, as all randomness of foreign attacks is; given, the library's own
        # wins.
        given = {"seed": model.problem.random.seed, **dict(self.settings), "device": x.device}
        given |= {"verbose": False} if "verbose" in takes else {}
        if name in SINGLE:
            given |= {"version": "custom", "attacks" if "attacks" in takes else "attacks_to_run": [name]}
        else:
            given["version"] = name
        attack = self.target(model.eval(), **given)
        logging.getLogger("auto-attack").setLevel(logging.ERROR)
        run = attack.run_standard_evaluation
        size = {"bs" if "bs" in inspect.signature(run).parameters else "batch_size": len(x)}
        found = run(x, labels, **size)
        adversarials: Tensor = found[0] if isinstance(found, tuple) else found
        return adversarials
