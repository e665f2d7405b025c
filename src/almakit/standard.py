"""``almakit.standard_evaluation``: a named, versioned ensemble without knobs, so that its number can be compared
between papers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from torch import Tensor

from . import registry
from .attacks import get
from .attacks.ensemble import Ensemble
from .core import Result
from .core.model import Model
from .data.given import Data, tensors_of
from .errors import BadInput, UnknownName
from .front import CALL, counted
from .hints import wrong_setting
from .models.load import opened
from .runs.progress import Silent, shown

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
            f"{self.clean_accuracy:.2%}, "
            f"success {self.success_rate:.2%}, median distance {self.median:.4g})"
        )


def standard_evaluation(
    model: str | Model,
    x: Data,
    y: Tensor | Sequence[int] | None = None,
    norm: str | float = "Linf",
    bs: int = 250,
    *,
    version: str = CURRENT,
    progress: bool | Silent = False,
    **options: Any,
) -> StandardEvaluation:
    """Attacks the images ``x`` (B, ...) in [0, 1] with labels ``y`` (B,) by the standard ensemble of ``norm``; robust
    accuracy is read off at any radius.

    ``model`` and ``x`` may have all the forms ``almakit.attack`` takes;
    ``bs`` images go through it at a time. The ensemble takes the smallest verified change of each image over its
    attacks; there is no epsilon to choose beforehand. Say the version with the number: "almakit-standard-v1, Linf, eps
    = 8/255: 52.3 %". ``progress=True`` shows how it goes and how long it will take.
    ``options`` are those of every attack's call (``seed``, ``trace``, ``check``); the number is comparable with their
    defaults.
    """
    if "eps" in options or "epsilon" in options:
        given = options.get("eps", options.get("epsilon"))
        raise BadInput(
            "standard_evaluation takes no radius, it answers for all of them: "
            f"standard_evaluation(...).robust_accuracy({given!r})."
        )
    for name in options:
        if name not in CALL:
            raise wrong_setting("almakit.standard_evaluation", name, ["norm", "bs", "version", "progress", *CALL])
    attack = Standard.of(norm, version)
    images, labels = tensors_of(x, y)
    size = options.pop("batch_size", bs)
    with counted(opened(model), attack, images, shown(progress)) as asked:
        found = attack(asked, images, labels, batch_size=size, **options)
    return StandardEvaluation(
        **{f.name: getattr(found, f.name) for f in fields(found)}, version=version, norm=attack.norm
    )
