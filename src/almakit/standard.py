"""``almakit.standard_evaluation``: a named, versioned ensemble without knobs, so that its number can be compared between papers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from .attacks import get
from .attacks.ensemble import Ensemble
from .core import Result
from .core.oracle import Model
from .errors import BadInput, UnknownName

# An ensemble that was published under a name is never changed: another composition is another version. A test holds these lines.
# fmt: off
ENSEMBLES: dict[str, dict[str, tuple[str, ...]]] = {
    "almakit-standard-v1": {
        "linf": (
            "alma-plus(distance=linf, steps=500)", "fmn(distance=linf, steps=500)",
            "search(attack=apgd(distance=linf, steps=50, loss=targeted-dlr, rivals=4), halvings=7)",
        ),
        "l2": (
            "alma-plus(distance=l2, steps=500)", "fmn(distance=l2, steps=500)",
            "search(attack=apgd(distance=l2, steps=50, loss=targeted-dlr, rivals=4), halvings=7)",
        ),
        "l1": (
            "alma-plus(distance=l1, steps=500)", "fmn(distance=l1, steps=500)",
            "search(attack=apgd(distance=l1, steps=50, loss=targeted-dlr, rivals=4), halvings=7)",
        ),
        "l0": ("alma-plus(distance=l0, steps=500)", "sigma-zero(steps=500)", "fmn(distance=l0, steps=500)"),
    },
}
# fmt: on
CURRENT = "almakit-standard-v1"


def distance_of(norm: str | float) -> str:
    """``linf`` for ``"Linf"``, ``"linf"``, ``float("inf")`` and so on."""
    text = str(norm).lower()
    return text if text.startswith("l") else f"l{text.removesuffix('.0')}"


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
        members = ENSEMBLES[version].get(distance := distance_of(norm))
        if members is None:
            raise BadInput(f"{version} is defined for {', '.join(ENSEMBLES[version])}, not for {norm!r}; for other distances take soft-walk.")
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


@dataclass(frozen=True, eq=False)
class StandardEvaluation:
    """What the standard ensemble found: ``result`` with one row per image, and robust accuracy at any radius."""

    version: str
    norm: str
    result: Result

    @property
    def adversarials(self) -> Tensor:
        """(B, ...) the nearest verified adversarial image of each, the image itself where there is none."""
        return self.result.adversarials

    @property
    def distances(self) -> Tensor:
        """(B,) 0 where the model is wrong from the start, infinite where nothing was found."""
        return self.result.distances

    @property
    def clean_accuracy(self) -> float:
        """The share of images classified as their label."""
        return self.robust_accuracy(0.0)

    def robust_accuracy(self, eps: float) -> float:
        """The share of images with no verified adversarial image within ``eps``: 1/B #{i: d_i > eps}."""
        if not eps >= 0:
            raise BadInput(f"eps={eps!r}: a radius is 0 or more.")
        return float((self.distances.double() > eps).double().mean()) if len(self.result) else float("nan")

    def curve(self, epsilons: Sequence[float]) -> list[tuple[float, float]]:
        """(eps, robust accuracy) for each radius."""
        return [(float(eps), self.robust_accuracy(eps)) for eps in epsilons]

    def __repr__(self) -> str:
        return (
            f"StandardEvaluation({self.version}, {self.norm}, {len(self.result)} images: clean accuracy {self.clean_accuracy:.2%}, "
            f"success {self.result.success_rate:.2%}, median distance {self.result.median:.4g})"
        )


def standard_evaluation(model: Model, x: Tensor, y: Tensor | Sequence[int], norm: str | float = "Linf", bs: int = 250, *, version: str = CURRENT,
                        **options: Any) -> StandardEvaluation:  # fmt: skip
    """Attacks the images ``x`` (B, ...) in [0, 1] with labels ``y`` (B,) by the standard ensemble of ``norm``; robust accuracy is read off at any radius.

    ``model`` maps images to logits; ``bs`` images go through it at a time. The ensemble takes the smallest verified change of each image over its
    attacks; there is no epsilon to choose beforehand. Say the version with the number: "almakit-standard-v1, Linf, eps = 8/255: 52.3 %".
    ``options`` are those of every attack's call (``seed``, ``trace``, ``check``); the number is comparable with their defaults.
    """
    attack = Standard.of(norm, version)
    return StandardEvaluation(version, attack.norm, attack(model, x, y, batch_size=bs, **options))
