"""almakit finds the smallest change that makes an image classifier wrong, measures it in any distance, and verifies
what it found.

>>> import almakit
>>> result = almakit.attack(model, x, labels, distance="l2", steps=100)   # the default attack
>>> result = almakit.DDN(steps=100)(model, x, labels)                     # every attack is a class here
>>> run = almakit.evaluate(model, data, attacks=["ddn"], out="runs/a")    # recorded, judged, resumable;
  almakit.open("runs/a") reads it again
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import VERSION as __version__

if TYPE_CHECKING:
    from pathlib import Path

    from . import attacks, certify, data, distances, models, trackers
    from .attacks.alm import ALM
    from .attacks.alma import ALMA
    from .attacks.alma_prox import ALMAProx
    from .attacks.apgd import APGD
    from .attacks.asma import ASMA
    from .attacks.bb import BB
    from .attacks.cw import CW
    from .attacks.dag import DAG
    from .attacks.ddn import DDN
    from .attacks.deepfool import DeepFool
    from .attacks.ead import EAD
    from .attacks.ensemble import Ensemble
    from .attacks.fab import FAB
    from .attacks.fmn import FMN
    from .attacks.hopskipjump import HopSkipJump
    from .attacks.lpa import LPA
    from .attacks.pdgd import PDGD, PDPGD
    from .attacks.perc_al import PerCAL
    from .attacks.pgd import PGD
    from .attacks.sea import SEA
    from .attacks.search import Search
    from .attacks.sigma_zero import SigmaZero
    from .attacks.soft_walk import ALMAPlus, SoftWalk
    from .attacks.square import Square
    from .attacks.standard import StandardEvaluation
    from .attacks.strattack import StrAttack
    from .attacks.superdeepfool import SuperDeepFool
    from .core.attack import Attack
    from .core.box import Box
    from .core.result import ImageResult, Result, Status, best_of
    from .distances import check_distance
    from .errors import AlmakitError
    from .evaluation import evaluate, transfer
    from .front import attack, standard_evaluation
    from .goals import check_goal
    from .report.run import Run

# Loaded when first used, so that importing almakit (and asking the command line for help) costs nothing. A test holds
# it to the registry.
_HOME = {
    "ALM": "almakit.attacks.alm",
    "ALMA": "almakit.attacks.alma",
    "ALMAPlus": "almakit.attacks.soft_walk",
    "ALMAProx": "almakit.attacks.alma_prox",
    "APGD": "almakit.attacks.apgd",
    "ASMA": "almakit.attacks.asma",
    "DAG": "almakit.attacks.dag",
    "SEA": "almakit.attacks.sea",
    "AlmakitError": "almakit.errors",
    "Attack": "almakit.core.attack",
    "BB": "almakit.attacks.bb",
    "Box": "almakit.core.box",
    "CW": "almakit.attacks.cw",
    "DDN": "almakit.attacks.ddn",
    "DeepFool": "almakit.attacks.deepfool",
    "EAD": "almakit.attacks.ead",
    "Ensemble": "almakit.attacks.ensemble",
    "FAB": "almakit.attacks.fab",
    "FMN": "almakit.attacks.fmn",
    "ImageResult": "almakit.core.result",
    "HopSkipJump": "almakit.attacks.hopskipjump",
    "LPA": "almakit.attacks.lpa",
    "PDGD": "almakit.attacks.pdgd",
    "PDPGD": "almakit.attacks.pdgd",
    "PGD": "almakit.attacks.pgd",
    "PerCAL": "almakit.attacks.perc_al",
    "Result": "almakit.core.result",
    "Run": "almakit.report.run",
    "Search": "almakit.attacks.search",
    "SigmaZero": "almakit.attacks.sigma_zero",
    "SoftWalk": "almakit.attacks.soft_walk",
    "Square": "almakit.attacks.square",
    "StandardEvaluation": "almakit.attacks.standard",
    "Status": "almakit.core.result",
    "StrAttack": "almakit.attacks.strattack",
    "SuperDeepFool": "almakit.attacks.superdeepfool",
    "attack": "almakit.front",
    "best_of": "almakit.core.result",
    "check_distance": "almakit.distances",
    "check_goal": "almakit.goals",
    "evaluate": "almakit.evaluation",
    "standard_evaluation": "almakit.front",
    "transfer": "almakit.evaluation",
}
_ROOMS = ("attacks", "certify", "data", "distances", "goals", "models", "trackers")

__all__ = [
    "ALM",
    "ALMA",
    "APGD",
    "ASMA",
    "BB",
    "CW",
    "DAG",
    "DDN",
    "EAD",
    "FAB",
    "FMN",
    "LPA",
    "PDGD",
    "PDPGD",
    "PGD",
    "SEA",
    "ALMAPlus",
    "ALMAProx",
    "AlmakitError",
    "Attack",
    "Box",
    "DeepFool",
    "Ensemble",
    "HopSkipJump",
    "ImageResult",
    "PerCAL",
    "Result",
    "Run",
    "Search",
    "SigmaZero",
    "SoftWalk",
    "Square",
    "StandardEvaluation",
    "Status",
    "StrAttack",
    "SuperDeepFool",
    "__version__",
    "attack",
    "attacks",
    "best_of",
    "certify",
    "check_distance",
    "check_goal",
    "data",
    "distances",
    "evaluate",
    "goals",
    "models",
    "standard_evaluation",
    "trackers",
    "transfer",
]


def open(folder: str | Path) -> Run:
    """The run in a folder, finished or not, to be read: its records, numbers and images. Not in ``__all__``, for it
    would hide Python's own."""
    from .report.run import Run

    return Run(folder)


if not TYPE_CHECKING:  # a type checker knows the names from above, and should miss the others

    def __getattr__(name: str) -> Any:
        if name in _HOME:
            return getattr(import_module(_HOME[name]), name)
        if name in _ROOMS:
            return import_module(f"almakit.{name}")
        if name.startswith("_"):  # what Python and its tools ask every module for
            raise AttributeError(f"module 'almakit' has no attribute {name!r}")
        from .hints import meant

        hint = meant(name, [], [*_HOME, *_ROOMS, "open"])
        raise AttributeError(
            f"there is no almakit.{name}; {hint if hint.startswith('did') else 'dir(almakit) lists what there is.'}"
        )


def __dir__() -> list[str]:
    return sorted([*__all__, "open"])
