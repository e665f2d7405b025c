"""The only list of names. Everything that users write is looked up here and imported when it is first used.

``BUILT_IN`` maps kind and name to an object. The classes of its attacks, with ``PUBLIC`` and ``SUBPACKAGES``, are the
public names of the package: ``almakit.X``, ``__all__``, ``dir(almakit)``, the stub ``__init__.pyi``, ``almakit ls``,
the tables of the documentation and shell completion are derived from them.

Other packages add names through entry points in the groups ``almakit.attacks``, ``almakit.distances``,
``almakit.goals``, ``almakit.bridges`` and ``almakit.trackers``. They cannot replace built-in names.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import Any

from .errors import Unavailable, UnknownName, suggestion

BUILT_IN: dict[str, dict[str, str]] = {
    "attacks": {
        "alma": "almakit.attacks.alma:ALMA",
        "soft-walk": "almakit.attacks.soft_walk:SoftWalk",
        "ddn": "almakit.attacks.ddn:DDN",
        "fmn": "almakit.attacks.fmn:FMN",
        "ead": "almakit.attacks.ead:EAD",
        "cw": "almakit.attacks.cw:CW",
        "apgd": "almakit.attacks.apgd:APGD",
        "pgd": "almakit.attacks.pgd:PGD",
        "search": "almakit.attacks.search:Search",
        "perc-al": "almakit.attacks.perc_al:PerCAL",
        "lpa": "almakit.attacks.lpa:LPA",
        "bb": "almakit.attacks.bb:BB",
        "strattack": "almakit.attacks.strattack:StrAttack",
        "alm": "almakit.attacks.alm:ALM",
        "alma-prox": "almakit.attacks.alma_prox:ALMAProx",
        "dag": "almakit.attacks.dag:DAG",
        "asma": "almakit.attacks.asma:ASMA",
        "sea": "almakit.attacks.sea:SEA",
        "deepfool": "almakit.attacks.deepfool:DeepFool",
        "superdeepfool": "almakit.attacks.superdeepfool:SuperDeepFool",
        "fab": "almakit.attacks.fab:FAB",
        "pdgd": "almakit.attacks.pdgd:PDGD",
        "pdpgd": "almakit.attacks.pdgd:PDPGD",
        "sigma-zero": "almakit.attacks.sigma_zero:SigmaZero",
        "square": "almakit.attacks.square:Square",
        "hopskipjump": "almakit.attacks.hopskipjump:HopSkipJump",
        "tr": "almakit.attacks.tr:TR",
        "vfga": "almakit.attacks.vfga:VFGA",
        "ensemble": "almakit.attacks.ensemble:Ensemble",
    },
    "distances": {
        "l0": "almakit.distances.lp:L0",
        "l1": "almakit.distances.lp:L1",
        "l2": "almakit.distances.lp:L2",
        "linf": "almakit.distances.lp:Linf",
        "ciede2000": "almakit.distances.ciede2000:CIEDE2000",
        "ciede2000-paper": "almakit.distances.ciede2000:CIEDE2000Paper",
        "ssim": "almakit.distances.ssim:SSIM",
        "ms-ssim": "almakit.distances.ssim:MSSSIM",
        "lpips": "almakit.distances.lpips:LPIPS",
        "lpips-learned": "almakit.distances.lpips:LPIPSLearned",
    },
    "goals": {
        "untargeted": "almakit.goals.classes:ClassGoal",
        "targeted": "almakit.goals.classes:Targeted",
        "top-k": "almakit.goals.classes:TopK",
        "multilabel": "almakit.goals.scores:Multilabel",
        "threshold": "almakit.goals.scores:Threshold",
        "regression": "almakit.goals.scores:Regression",
        "reject": "almakit.goals.classes:Reject",
        "embedding": "almakit.goals.scores:Embedding",
        "pixels": "almakit.goals.pixels:PixelGoal",
        "detection": "almakit.goals.scores:Detection",
        "any-of": "almakit.goals.base:AnyOf",
        "all-of": "almakit.goals.base:AllOf",
    },
    "penalties": {
        "phr": "almakit.optim.penalties:PHR",
        "p1": "almakit.optim.penalties:P1",
        "p2": "almakit.optim.penalties:P2",
        "p3": "almakit.optim.penalties:P3",
    },
    "bridges": {
        "foolbox": "almakit.bridges.libraries:Foolbox",
        "torchattacks": "almakit.bridges.libraries:Torchattacks",
        "adv-lib": "almakit.bridges.libraries:AdvLib",
        "art": "almakit.bridges.libraries:ART",
        "autoattack": "almakit.bridges.libraries:AutoAttack",
        "file": "almakit.bridges.user_file:UserAttack",
        "almakit": "almakit.attacks.standard:Standard",
    },
    "trackers": {"tensorboard": "almakit.trackers:TensorBoard"},
}

# Deprecated names that are still accepted and not listed.
ALIASES: dict[str, dict[str, str]] = {"attacks": {"alma-plus": "soft-walk"}}
DEPRECATED = {"ALMAPlus": "SoftWalk"}

SUBPACKAGES = ("attacks", "certify", "data", "distances", "goals", "models", "trackers")

PUBLIC: dict[str, str] = {
    "AlmakitError": "almakit.errors:AlmakitError",
    "Attack": "almakit.core.attack:Attack",
    "Box": "almakit.core.box:Box",
    "EOT": "almakit.core.oracle:EOT",
    "ImageResult": "almakit.core.result:ImageResult",
    "Result": "almakit.core.result:Result",
    "Run": "almakit.report.run:Run",
    "StandardEvaluation": "almakit.attacks.standard:StandardEvaluation",
    "Status": "almakit.core.result:Status",
    "attack": "almakit.api:attack",
    "best_of": "almakit.core.result:best_of",
    "check_distance": "almakit.distances:check_distance",
    "check_goal": "almakit.goals:check_goal",
    "evaluate": "almakit.api:evaluate",
    "standard_evaluation": "almakit.api:standard_evaluation",
    "transfer": "almakit.api:transfer",
}
"""The names of the package besides its attacks and subpackages: name -> module:attribute."""

SINGULAR = {
    "attacks": "attack",
    "distances": "distance",
    "goals": "goal",
    "penalties": "penalty",
    "bridges": "library of attacks",
    "trackers": "tracker",
}


# An attack of each library that people name as if it were one.
LIBRARY_ATTACKS = {
    "autoattack": "autoattack:standard(norm=Linf, eps=8/255)",
    "foolbox": "foolbox:LinfFMNAttack(steps=100)",
    "adv-lib": "adv-lib:ddn(steps=100)",
}


def public_names() -> dict[str, str]:
    """Every object of the package ``almakit``: name -> module:attribute."""
    return {place.partition(":")[2]: place for place in BUILT_IN["attacks"].values()} | PUBLIC


def load(place: str) -> Any:
    """The object at ``module:attribute``."""
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


@cache
def _plugins(kind: str) -> dict[str, Any]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=f"almakit.{kind}")}


def names(kind: str) -> list[str]:
    """All names of a kind: built-in ones in their order, then plug-ins by name."""
    built_in = BUILT_IN[kind]
    return [*built_in, *sorted(set(_plugins(kind)) - set(built_in))]


def canonical(kind: str, name: str | float) -> str:
    """The known name that ``name`` stands for: ``Linf``, ``l_2``, ``2`` and ``inf``, ``DDN``, ``alma_plus``.

    Unknown names are returned as they are.
    """
    text = f"l{name:g}" if not isinstance(name, str) else name.strip()
    if text in BUILT_IN[kind] or text in _plugins(kind):
        return text
    plain = re.sub(r"[-_ ]", "", text.lower()).replace("∞", "inf").replace("infinity", "inf")
    if kind == "distances" and re.fullmatch(r"l?(\d+|inf)(\.0)?", plain):
        plain = "l" + plain.removeprefix("l").removesuffix(".0")
    meanings = {known: known for known in names(kind)} | ALIASES.get(kind, {})
    return next((meaning for known, meaning in meanings.items() if re.sub(r"[-_ ]", "", known.lower()) == plain), text)


def get(kind: str, name: str | float) -> Any:
    """The object that ``name`` stands for; the error for an unknown name suggests the nearest known ones."""
    name = canonical(kind, name)
    if name in BUILT_IN[kind]:
        return load(BUILT_IN[kind][name])
    if name in _plugins(kind):
        point = _plugins(kind)[name]
        try:
            return point.load()
        except Exception as error:
            package = point.dist.name if point.dist else point.value
            raise Unavailable(
                f"the {SINGULAR[kind]} {name!r} comes from the package {package}, which cannot be loaded "
                f"({type(error).__name__}: {error}); update or uninstall that package."
            ) from error
    if kind == "attacks" and (library := canonical("bridges", name)) in names("bridges"):
        example = LIBRARY_ATTACKS.get(library, f"{library}:<attack>(...)")
        raise UnknownName(f"{library} is a library of attacks: write one of its attacks, such as {example}.")
    raise UnknownName(
        f"there is no {SINGULAR[kind]} called {name!r}; {suggestion(name, names(kind), ALIASES.get(kind, ()))}"
    )
