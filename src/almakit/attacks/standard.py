"""The standard evaluation: named, versioned stages without settings, so that its number can be compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from .. import registry
from ..core import Attack, Result
from ..core.oracle import Model
from ..core.problem import Problem
from ..core.result import OTHER_COUNTS, Status
from ..errors import BadInput, UnknownName
from ..radius import number
from ..tensors import per_image
from . import get
from .ensemble import Ensemble

# A composition published under a name never changes; another composition is another version. A test checks the texts.
STAGES = {
    "apgd": "apgd(distance=NORM, epsilon={}, steps=100)",
    "soft-walk": "soft-walk(distance=NORM, steps=100)",
    "apgd-t": "apgd(distance=NORM, epsilon={}, steps=100, loss=targeted-dlr, rivals=9, finalists=3)",
    "soft-walk-300": "soft-walk(distance=NORM, steps=300)",
    "fab-t": "fab(distance=NORM, steps=50, targeted_classes=9)",
    "square": "square(distance=NORM, epsilon={}, steps=5000, trial=100)",
}
AT_RADIUS: dict[str, dict[str, dict[str, str]]] = {
    "almakit-standard-v1": {
        norm: {stage: STAGES[stage].replace("NORM", norm) for stage in stages.split()}
        for norm, stages in {
            "linf": "apgd soft-walk apgd-t soft-walk-300 square",
            "l2": "apgd soft-walk apgd-t soft-walk-300 square",
            "l1": "soft-walk apgd apgd-t soft-walk-300 fab-t square",
        }.items()
    }
}
"""At one radius, which replaces ``{}``: each stage attacks the images that the stages before it did not break."""
MEMBERS = {
    "soft-walk": "soft-walk(distance=NORM, steps=500)",
    "fmn": "fmn(distance=NORM, steps=500)",
    "fab": "fab(distance=NORM, steps=50, targeted_classes=9)",
    "search": "search(attack=apgd(distance=NORM, steps=50, loss=targeted-dlr, rivals=4), halvings=7)",
    "sigma-zero": "sigma-zero(steps=500)",
}
SMALLEST: dict[str, dict[str, tuple[str, ...]]] = {
    "almakit-standard-v1": {
        norm: tuple(MEMBERS[member].replace("NORM", norm) for member in members.split())
        for norm, members in {
            "linf": "soft-walk fmn search",
            "l2": "soft-walk fmn search",
            "l1": "soft-walk fmn fab search",
            "l0": "soft-walk sigma-zero fmn",
        }.items()
    }
}
"""Without a radius: the smallest change of each image over these attacks."""
CURRENT = "almakit-standard-v1"
FLAT = "the gradient was zero"
"""Beginning of the reason for images whose gradient was zero at every query."""
BY_SCORES = "square"
"""The stage that needs no gradients. What it alone breaks shows that gradients are masked."""
BY_SCORES_ALONE = "only square, which uses no gradients, broke it"
"""The reason for images that no gradient stage broke."""


@dataclass(frozen=True)
class Standard(Ensemble):
    """The standard evaluation as an attack: ``almakit:standard-v1(distance=linf, epsilon=8/255)`` in a text.

    With an ``epsilon``, its attacks are stages: each attacks the images that are not broken within the radius yet.
    Without one, it is an ensemble of attacks that minimise the distance.
    """

    title: ClassVar[str] = "standard"

    version: str = CURRENT
    norm: str = "linf"
    epsilon: float | None = None
    stages: tuple[str, ...] = ()

    @classmethod
    def of(cls, norm: str | float, version: str = CURRENT, epsilon: float | str | None = None) -> Standard:
        """The standard evaluation in a norm, at the radius ``epsilon`` or, without one, for the smallest change."""
        if version not in SMALLEST:
            raise UnknownName(f"there is no standard evaluation called {version!r}; known: {', '.join(SMALLEST)}.")
        distance = registry.canonical("distances", norm)
        known = SMALLEST[version] if epsilon is None else AT_RADIUS[version]
        if distance not in known:
            hint = " Leave out the radius for l0." if distance == "l0" else " For other distances take soft-walk."
            at = "" if epsilon is None else " at one radius"
            raise BadInput(f"{version}{at} is defined for {', '.join(known)}, not for {norm!r}.{hint}")
        if epsilon is None:
            members = SMALLEST[version][distance]
            return cls(attacks=tuple(get(text) for text in members), version=version, norm=distance)
        radius = number(epsilon)
        if not radius:
            raise BadInput("epsilon=0: robust accuracy at radius 0 is the clean accuracy.")
        stages = AT_RADIUS[version][distance]
        return cls(
            attacks=tuple(get(text.format(repr(radius))) for text in stages.values()),
            version=version,
            norm=distance,
            epsilon=radius,
            stages=tuple(stages),
        )

    @classmethod
    def build(cls, name: str, settings: Mapping[str, Any]) -> Standard:
        """From ``almakit:standard-v1(distance=linf, epsilon=8/255)``."""
        for key in settings:
            if key not in ("distance", "epsilon"):
                raise BadInput(f"{name} has no setting {key!r}; it has distance and epsilon.")
        return cls.of(settings.get("distance", "linf"), f"almakit-{name.partition(':')[2]}", settings.get("epsilon"))

    @property
    def written(self) -> tuple[str, dict[str, Any]]:
        """Name and settings of the text that builds it again."""
        settings = {"distance": self.norm} | ({} if self.epsilon is None else {"epsilon": self.epsilon})
        return f"almakit:{self.version.removeprefix('almakit-')}", settings

    @property
    def minimal(self) -> bool:  # type: ignore[override]
        return self.epsilon is None

    @property
    def radii(self) -> tuple[float, ...]:
        return () if self.epsilon is None else (self.epsilon,)

    def __call__(self, *arguments: Any, **options: Any) -> Result:
        """Run the evaluation like any attack. At a radius, an image makes no further queries once it is broken."""
        if self.epsilon is not None:
            options["stop_within"] = self.epsilon
        return super().__call__(*arguments, **options)

    def run(self, problem: Problem) -> None:
        if self.epsilon is None:
            super().run(problem)
            return
        limit = problem.x.new_ones(len(problem)) * problem.grid.limit(self.epsilon)
        with problem.limited_to(limit):
            for name, member in zip(self.stages, self.attacks):
                before = problem.best_distance <= limit
                try:
                    with problem.round(), problem.isolated():
                        member.run(problem)
                finally:  # a stage that breaks the last image ends the attack
                    if name == BY_SCORES:
                        alone = (problem.best_distance <= limit) & ~before
                        problem.notes |= dict.fromkeys(alone.nonzero().flatten().tolist(), BY_SCORES_ALONE)


@dataclass(frozen=True)
class Stage:
    """Outcome of one stage: the images it attacked and broke, and the share of all images that is robust after it."""

    name: str
    attack: str
    images: int
    broken: int
    robust: float
    forwards: int
    backwards: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.name}: {self.robust:.1%} robust, {self.seconds:.1f} s"


@dataclass(frozen=True, eq=False, repr=False)
class StandardEvaluation(Result):
    """The result of the standard evaluation in a ``norm``: a ``Result`` with its ``version``.

    At a radius ``epsilon``, ``stages`` has the outcome of each stage and ``broken_by`` (B,) the index of the stage that
    broke each image, -1 for robust images and misclassified clean images. ``signs`` are reasons to doubt the number,
    each with a remedy.
    """

    version: str = CURRENT
    norm: str = "linf"
    epsilon: float | None = None
    stages: tuple[Stage, ...] = ()
    broken_by: Tensor | None = None
    signs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # A loaded result contains lists and mappings.
        stages = tuple(stage if isinstance(stage, Stage) else Stage(**stage) for stage in self.stages)
        object.__setattr__(self, "stages", stages)
        object.__setattr__(self, "signs", tuple(self.signs))

    def __repr__(self) -> str:
        what = (
            f"success {self.success_rate:.2%}, median distance {self.median:.4g}"
            if self.epsilon is None
            else f"robust accuracy {self.robust_accuracy(self.epsilon):.2%} at {self.epsilon:.4g}"
        )
        return (
            f"StandardEvaluation({self.version}, {self.norm}, {len(self)} images: clean accuracy "
            f"{self.clean_accuracy:.2%}, {what})"
        )


def evaluate_in_stages(
    standard: Standard,
    model: Callable[[Attack, Tensor], AbstractContextManager[Model]],
    x: Tensor,
    labels: Tensor | None,
    targets: Tensor | None,
    notify: Callable[[str], None],
    **options: Any,
) -> StandardEvaluation:
    """Robust accuracy at the radius of ``standard``, stage by stage.

    The decisions are those of ``standard(model, x, labels)``. Here each stage gets full batches of the images that the
    stages before it did not break, and is reported when it ends.

    Args:
        standard: the evaluation, at a radius.
        model: for an attack and its images, the model, which may show the progress of this attack.
        x: images, shape (B, ...).
        labels: classes, shape (B,).
        targets: classes to reach, shape (B,); None for untargeted.
        notify: called with a line as each stage ends.
        options: those of every attack's call.
    """
    assert standard.epsilon is not None
    known: Result | None = None
    broken_by = torch.full((len(x),), -1)
    left, stages = torch.arange(len(x)), []
    flat: set[int] = set()
    for number_of_stage, (name, member) in enumerate(zip(standard.stages, standard.attacks)):
        if not len(left) and known is not None:
            break
        began = time.perf_counter()
        with model(member, x[left]) as watched:
            known_labels, wanted = (None if values is None else values[left] for values in (labels, targets))
            part = member(watched, x[left], known_labels, wanted, stop_within=standard.epsilon, **options)
        part = _kept_within(part, standard.epsilon)
        known = part if known is None else _joined(known, part, left)
        flat |= {row for row, reason in zip(left.tolist(), part.reasons) if reason is not None and FLAT in reason}
        won = (part.status == Status.SUCCESS).cpu()
        broken_by[left[won]] = number_of_stage
        stages.append(
            Stage(
                name,
                repr(member),
                len(left),
                int(won.sum()),
                float((known.status == Status.FAILED).double().mean()),
                int(part.forwards.sum()),
                int(part.backwards.sum()),
                time.perf_counter() - began,
            )
        )
        notify(str(stages[-1]))
        left = left[(part.status == Status.FAILED).cpu()]
    assert known is not None
    kept = {field.name: getattr(known, field.name) for field in fields(Result)} | {
        "stop_within": None,
        "radii": standard.radii,
        "course": None,
    }
    return StandardEvaluation(
        **kept,
        version=standard.version,
        norm=standard.norm,
        epsilon=standard.epsilon,
        stages=tuple(stages),
        broken_by=broken_by,
        signs=signs_of(stages, len(flat), len(x)),
    )


def signs_of(stages: list[Stage], flat: int, images: int) -> tuple[str, ...]:
    """Reasons to doubt the robust accuracy, each with a remedy.

    Args:
        stages: the finished stages.
        flat: number of images for which an attack found only zero gradients.
        images: number of all images.
    """
    found = []
    if flat:
        found.append(
            f"{flat} of {images} images have a zero gradient: attacks along the gradient cannot see how to change "
            "them. Give a surrogate= with gradients (for rounding or other flat steps, the same model without them), "
            "or use attacks that need none: square, hopskipjump."
        )
    for stage in stages:
        if stage.name == BY_SCORES and stage.broken:
            found.append(
                f"{stage.broken} images fall to square, which uses no gradients, and to no attack along the gradient: "
                "gradients are masked, and robust accuracy is likely overestimated. Give a surrogate= with "
                "gradients, or run square with more steps."
            )
    return tuple(found)


def _kept_within(part: Result, epsilon: float) -> Result:
    """``part`` with successes beyond the radius as failures."""
    beyond = (part.status == Status.SUCCESS) & (part.distances.double() > part.grid.limit(epsilon))
    if not bool(beyond.any()):
        return part
    assert part.originals is not None
    reasons = [
        "no adversarial point was found within the radius" if bool(out) else reason
        for out, reason in zip(beyond, part.reasons)
    ]
    return replace(
        part,
        adversarials=torch.where(per_image(beyond, part.adversarials), part.originals, part.adversarials),
        distances=part.distances.masked_fill(beyond, float("inf")),
        status=part.status.masked_fill(beyond, int(Status.FAILED)),
        reasons=reasons,
    )


def _joined(known: Result, part: Result, rows: Tensor) -> Result:
    """``known`` with the images ``rows`` (R,) as ``part`` has them and the counts of both."""
    here, changed = rows.to(known.status.device), dict[str, Any]()
    for name in ("adversarials", "distances", "status"):
        changed[name] = getattr(known, name).index_copy(0, here, getattr(part, name))
    for name in ("forwards", "backwards", *OTHER_COUNTS):
        if (before := getattr(known, name)) is not None and (more := getattr(part, name)) is not None:
            changed[name] = before.index_add(0, here, more)
    reasons = list(known.reasons)
    for row, reason in zip(rows.tolist(), part.reasons):
        # That all gradients were zero is known from the first stage; later reasons say less.
        reasons[row] = reasons[row] if reason is not None and reasons[row] is not None else reason
    return replace(known, **changed, reasons=reasons, probes=known.probes + part.probes)
