"""The standard: a named, versioned ensemble without knobs, so that its number can be compared between papers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .. import registry
from ..core import Result
from ..errors import BadInput, UnknownName
from . import get
from .ensemble import Ensemble

# An ensemble that was published under a name is never changed: another composition is another version. A test holds
# these lines. fmt: off
ENSEMBLES: dict[str, dict[str, tuple[str, ...]]] = {
    "almakit-standard-v1": {
        "linf": (
            "alma-plus(distance=linf, steps=500)",
            "fmn(distance=linf, steps=500)",
            "search(attack=apgd(distance=linf, steps=50, loss=targeted-dlr, rivals=4), halvings=7)",
        ),
        "l2": (
            "alma-plus(distance=l2, steps=500)",
            "fmn(distance=l2, steps=500)",
            "search(attack=apgd(distance=l2, steps=50, loss=targeted-dlr, rivals=4), halvings=7)",
        ),
        "l1": (
            "alma-plus(distance=l1, steps=500)",
            "fmn(distance=l1, steps=500)",
            "search(attack=apgd(distance=l1, steps=50, loss=targeted-dlr, rivals=4), halvings=7)",
        ),
        "l0": ("alma-plus(distance=l0, steps=500)", "sigma-zero(steps=500)", "fmn(distance=l0, steps=500)"),
    }
}

CURRENT = "almakit-standard-v1"


@dataclass(frozen=True)
class Standard(Ensemble):
    """A standard ensemble as an attack: ``almakit:standard-v1(distance=linf)`` in a text."""

    title: ClassVar[str] = "standard"

    version: str = CURRENT
    norm: str = "linf"

    @classmethod
    def of(cls, norm: str | float, version: str = CURRENT) -> Standard:
        """The ensemble of a norm."""
        if version not in ENSEMBLES:
            raise UnknownName(f"there is no standard ensemble called {version!r}; known: {', '.join(ENSEMBLES)}.")
        members = ENSEMBLES[version].get(distance := registry.canonical("distances", norm))
        if members is None:
            raise BadInput(
                f"{version} is defined for {', '.join(ENSEMBLES[version])}, not for {norm!r}; for other distances "
                "take soft-walk."
            )
        return cls(attacks=tuple(get(member) for member in members), version=version, norm=distance)

    @classmethod
    def build(cls, name: str, settings: Mapping[str, Any]) -> Standard:
        """From ``almakit:standard-v1(distance=linf)``."""
        for key in settings:
            if key != "distance":
                raise BadInput(f"{name} has no setting {key!r}: a standard has no knobs but distance.")
        return cls.of(settings.get("distance", "linf"), f"almakit-{name.partition(':')[2]}")

    @property
    def written(self) -> tuple[str, dict[str, Any]]:
        """Name and settings of the text that builds it again."""
        return f"almakit:{self.version.removeprefix('almakit-')}", {"distance": self.norm}


@dataclass(frozen=True, eq=False, repr=False)
class StandardEvaluation(Result):
    """What the standard ensemble of a ``norm`` found: a ``Result`` that says which ``version`` it is of."""

    version: str = CURRENT
    norm: str = "linf"

    def __repr__(self) -> str:
        return (
            f"StandardEvaluation({self.version}, {self.norm}, {len(self)} images: clean accuracy "
            f"{self.clean_accuracy:.2%}, success {self.success_rate:.2%}, median distance {self.median:.4g})"
        )
