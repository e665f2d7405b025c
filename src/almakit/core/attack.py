"""The base class of attacks: a frozen dataclass of settings with a method ``run(problem)`` and a common
``__call__``."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import torch
from torch import Tensor

from .. import registry
from ..distances.base import Distance, DistanceLike
from ..distances.base import resolve as resolve_distance
from ..errors import BadInput, BadModel, wrong_setting
from ..goals.base import Goal, GoalLike
from ..goals.resolve import goal_of
from ..radius import number
from .box import Box, grid_of
from .oracle import EOT, Model, Oracle, borrowed
from .problem import Problem, Trace
from .result import Result
from .solve import Options, solve

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Attack", "DistanceLike"]


@dataclass(frozen=True)
class Attack:
    """Base class of all attacks: a frozen dataclass of settings with a method ``run(problem)``.

    A subclass adds its settings as fields and implements ``run``. Class attributes describe it: ``does`` names the
    distances it can minimise (None: any), ``can_target`` says whether it can be targeted, ``minimal`` whether it
    searches the smallest perturbation (otherwise a point within a fixed ``epsilon``). ``ranges`` gives the interval of
    each numeric setting: ``{"(0, 1]": "share", "[1, inf)": "outer inner"}``. ``almakit ls attacks`` prints these
    attributes.
    """

    title: ClassVar[str] = ""
    does: ClassVar[tuple[str, ...] | None] = None
    can_target: ClassVar[bool] = True
    minimal: ClassVar[bool] = True
    cost: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    presets: ClassVar[dict[str, dict[str, object]]] = {}
    ranges: ClassVar[dict[str, str]] = {}

    def __new__(cls, *given: Any, **settings: Any) -> Self:
        """Raise an error that suggests the right name for an unknown setting; ``__init__`` does the rest."""
        if not settings.keys() <= cls.__dataclass_fields__.keys():
            known = [name for name in inspect.signature(cls.__init__).parameters if name != "self"]
            for name in settings:
                if name not in known:
                    raise wrong_setting(
                        cls.title if isinstance(cls.title, str) and cls.title else cls.__name__, name, known
                    )
        return super().__new__(cls)

    def run(self, problem: Problem) -> None:
        """Run the attack by querying the problem, which remembers the best point of each image."""
        raise NotImplementedError

    @property
    def measure(self) -> Distance:
        """The distance this attack minimises and reports."""
        return resolve_distance(getattr(self, "distance", "l2"))

    @property
    def radii(self) -> tuple[float, ...]:
        """The radii of an attack at a fixed epsilon; empty for an attack that minimises the distance."""
        return ()

    @property
    def ranking(self) -> Distance | None:
        """The distance that decides which point of an image is kept, if it is not ``measure``."""
        return None

    def __post_init__(self) -> None:
        settings = {field.name: getattr(self, field.name) for field in fields(self)}
        for setting in fields(self):
            check_setting(type(self).__name__, setting.name, settings[setting.name], setting.type)
        for interval, names in self.ranges.items():
            for name in names.split():
                check_range(name, settings[name], interval)
        if "distance" in settings:
            distance = resolve_distance(settings["distance"])
            if isinstance(settings["distance"], (str, int, float)):
                # The same attack has the same text.
                object.__setattr__(self, "distance", registry.canonical("distances", settings["distance"]))
            if self.does is not None and repr(distance) not in self.does:
                raise BadInput(
                    f"{type(self).__name__} does {', '.join(self.does)}, not {distance!r}; attacks for any distance: "
                    "alma, soft-walk, cw."
                )

    def needs_classes(self) -> bool:
        """Whether the attack needs class logits and a label or target, and so supports no other goals."""
        return False

    def needs_gradients(self) -> bool:
        """Whether the attack needs gradients of the model. If not, the model can be any callable."""
        return True

    @property
    def pixel_share(self) -> float:
        """The share of pixels that must be wrong if labels are maps."""
        return 0.99

    def __call__(
        self,
        model: Model,
        x: Tensor,
        labels: Tensor | Sequence[int] | None = None,
        targets: Tensor | Sequence[int] | None = None,
        goal: GoalLike | None = None,
        *,
        box: Box | None = None,
        batch_size: int | None = None,
        seed: int = 0,
        budget: int | None = None,
        autocast: torch.dtype | None = None,
        check: bool = True,
        trace: Trace | None = None,
        stop_within: float | str | None = None,
        eot: int | EOT | None = None,
        surrogate: Model | None = None,
        **unknown: NoReturn,
    ) -> Result:
        """Attacks the images ``x`` (B, ...).

        Args:
            model: function from images (B, ...) to logits (B, K), or to the outputs that the goal reads.
            x: clean images (B, ...).
            labels: true classes (B,), or label maps (B, H, W) for segmentation. Pixels whose label is not a class of
                the model, such as -1 or 255, are ignored.
            targets: classes (B,), or maps, to reach.
            goal: one of ``almakit.goals``, its text, or a function of the model's outputs that returns one margin per
                image, negative if the goal is reached. A goal without labels or targets of its own uses those of the
                call.
            box: value range, grid and mask of the inputs.
            batch_size: images per batch.
            seed: seed of all random numbers; each image has its own generator.
            budget: largest number of forwards, and of backwards, of each image.
            autocast: precision in which the model runs; success is decided in full precision.
            check: checks the model on three single images before the attack, and queries every success again after it,
                in batches of another composition. ``result.probes`` counts these forwards.
            trace: receives a dict of tensors per step.
            stop_within: a radius, such as 0.5 or "8/255". An image makes no further queries once a success within it is
                known; the result then answers for this radius and larger ones only.
            eot: number of passes to average over if the model is random, or ``almakit.EOT(16, votes=100, share=0.5)``.
                Each pass is counted, and fresh passes vote on every success.
            surrogate: model that gives the gradients, while ``model`` gives outputs and decides success (transfer
                attacks, BPDA).

        Returns:
            One row per image: the best verified point, its distance, its status and its counts.
        """
        if unknown:
            raise wrong_setting(f"a call of {type(self).__name__}", next(iter(unknown)), OPTIONS)
        x, box = check_images(x, box or Box())
        check_call(model, surrogate, batch_size, budget)
        radius = None if stop_within is None else number(stop_within, "stop_within")
        eot = eot if eot is None or isinstance(eot, EOT) else EOT(eot)
        aim = goal_of(len(x), labels, targets, goal, self.pixel_share)
        self.check_goal(aim)
        name, radii = repr(self.measure), self.radii
        self.measure.check(x)
        if not len(x):
            return Result.empty(x)
        oracle = Oracle(model, x.dtype, autocast, aim.read, eot, surrogate, seed)
        device = oracle.device or x.device
        x, aim, box = x.to(device), aim.to(device), box.to(device)
        grid = grid_of(name, box, x)
        options = Options(
            batch_size or default_batch_size(x),
            seed,
            budget,
            check,
            trace,
            None if radius is None else grid.limit(radius),
        )
        # Attacks need gradients even if the caller is inside torch.no_grad() or torch.inference_mode().
        with borrowed(model, surrogate), torch.inference_mode(False), torch.enable_grad():
            result = solve(self, oracle, x, aim, box, options)
        return replace(
            result,
            originals=x,
            labels=aim.labels,
            distance=name,
            step=grid.step,
            radii=() if self.minimal else radii,
            stop_within=radius if self.minimal else None,
        )

    def check_goal(self, goal: Goal) -> None:
        """Raise an error if this attack does not support the goal."""
        if goal.targeted and not self.can_target:
            raise BadInput(
                f"{type(self).__name__} has no targeted form; alma, soft-walk, cw, ddn, fmn and apgd have one."
            )
        if self.needs_classes() and not goal.by_class:
            raise BadInput(
                f"{type(self).__name__} as it is set needs the logits of classes and serves the goals untargeted and "
                f"targeted; for {goal.title} take soft-walk, alma, ddn or fmn, or loss=margin if the attack has a loss."
            )

    def describe(self) -> dict[str, Any]:
        """The settings by name, distances as their names."""
        return {f.name: repr(v) if isinstance(v := getattr(self, f.name), Distance) else v for f in fields(self)}


def expected_forwards(attack: Any) -> int | None:
    """The approximate number of forwards that an attack makes per image, from its settings; None if unknown."""
    parts, inner = getattr(attack, "attacks", None), getattr(attack, "attack", None)
    if parts:
        counts = [expected_forwards(part) for part in parts]
        return None if None in counts else sum(count for count in counts if count is not None)
    if inner is not None:
        each = expected_forwards(inner)
        return None if each is None else each * int(getattr(attack, "halvings", 1))
    if isinstance(outer := getattr(attack, "outer", None), int):
        return outer * int(attack.inner)
    # Few images continue after a trial.
    steps = getattr(attack, "trial", None) or getattr(attack, "steps", None)
    return (
        steps * int(getattr(attack, "searches", 1)) * int(getattr(attack, "restarts", 1))
        if isinstance(steps, int)
        else None
    )


def default_batch_size(x: Tensor) -> int:
    """The default batch size for images ``x`` (B, ...): 128 small ones, fewer large ones.

    On a CPU, a layer output above 32 MB doubles the cost of a pass, because its memory is requested from the system
    every time.
    """
    return max(1, min(128, (1_250_000 if x.device.type == "cpu" else 2_400_000) // x[0].numel()))


OPTIONS = tuple(name for name in inspect.signature(Attack.__call__).parameters if name not in ("self", "unknown"))
"""The arguments of every attack's call."""


# Checks of arguments; the code behind them trusts its arguments.

PLAIN: dict[str, type | tuple[type, ...]] = {
    "int": int,
    "float": (int, float),
    "bool": bool,
    "str": str,
    "None": type(None),
}


def check_setting(owner: str, name: str, value: object, annotation: object) -> None:
    """Raise an error if a setting's value does not have its annotated type, e.g. ``"float | None"``. Other annotations
    are not checked."""
    kinds = [kind.strip() for kind in str(annotation).split("|")]
    if not all(kind in PLAIN for kind in kinds):
        return
    if name == "steps":
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise BadInput(f"steps={value!r}: an attack needs a whole number of steps, at least 1.")
        return
    fits = any(isinstance(value, PLAIN[kind]) and (kind == "bool" or not isinstance(value, bool)) for kind in kinds)
    if not fits:
        raise BadInput(f"{owner} cannot take {name}={value!r}; it must be {' or '.join(kinds)}.")
    if isinstance(value, float) and not math.isfinite(value):
        raise BadInput(f"{owner} cannot take {name}={value!r}; it must be a finite number.")


def check_range(name: str, value: object, interval: str) -> None:
    """Raise an error if a number lies outside ``interval``, such as ``(0, 1]`` or ``[1, inf)``."""
    if not isinstance(value, (int, float)):
        return
    low, high = (float(end) for end in interval[1:-1].split(","))
    closed, shut = interval[0] == "[", interval[-1] == "]"
    if (low < value or (closed and low == value)) and (value < high or (shut and value == high)):
        return
    words = f"at least {low:g}" if closed else "positive" if low == 0 else f"above {low:g}"
    raise BadInput(f"{name}={value}: it must be {words if math.isinf(high) else f'in {interval}'}.")


def check_call(model: object, surrogate: object, batch_size: int | None, budget: int | None) -> None:
    """Raise an error if the model or an option of an attack's call is invalid."""
    for what, given in (("model", model), ("surrogate", surrogate)):
        if not callable(given) and not (what == "surrogate" and given is None):
            raise BadModel(
                f"the {what} is a {type(given).__name__}; give a torch module or a function from images to logits."
            )
    for name, value in (("batch_size", batch_size), ("budget", budget)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise BadInput(f"{name}={value!r}: give a whole number, at least 1, or None.")


def check_images(x: object, box: Box) -> tuple[Tensor, Box]:
    """``x`` as a float32 or float64 tensor (B, ...) inside the box, and the box in the shape of its images."""
    if not isinstance(x, Tensor):
        try:
            x = (
                torch.stack(list(x))
                if isinstance(x, (list, tuple)) and x and isinstance(x[0], Tensor)
                else torch.as_tensor(x)
            )
        except (TypeError, ValueError, RuntimeError):
            raise BadInput(
                f"images must be a tensor or an array of shape (batch, ...), not a {type(x).__name__}; loaders, data "
                "sets and image files are for almakit.attack(model, data) and almakit.evaluate."
            ) from None
    if not x.is_floating_point():
        raise BadInput(
            f"images are {x.dtype}; convert to floats in [{box.ends[0]:g}, {box.ends[1]:g}], e.g. x.float() / 255 for "
            "8-bit images."
        )
    if x.ndim < 2:
        raise BadInput(
            f"images must have a batch dimension: shape (batch, ...), not {tuple(x.shape)}; use x.unsqueeze(0) for "
            "one image."
        )
    if x.device.type == "meta":
        raise BadInput(
            "the images are on the device meta, which holds shapes and no values; give them on the CPU or a GPU."
        )
    x = x.detach()
    x = x if x.dtype in (torch.float32, torch.float64) else x.float()
    if not math.prod(x.shape[1:]):
        raise BadInput(f"images of shape {tuple(x.shape)} have no pixels.")
    bad = ~torch.isfinite(x.flatten(1)).all(1)
    if bool(bad.any()):
        raise BadInput(f"image {int(bad.nonzero()[0])} contains NaN or infinite values; remove or repair it.")
    if box.mask is not None and box.mask.shape not in (x.shape, x.shape[1:]):
        raise BadInput(
            f"the mask has shape {tuple(box.mask.shape)}; it must be {tuple(x.shape)} or {tuple(x.shape[1:])}."
        )
    box = box.around(x)
    box.check(x)
    return x, box
