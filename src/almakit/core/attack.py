"""What every attack is: a frozen dataclass of settings with ``run(problem)``, and one way to call it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from .. import registry
from ..distances.base import Distance, DistanceLike
from ..distances.base import resolve as resolve_distance
from ..errors import BadInput, check_keywords, wrong_setting
from ..goals.base import Goal, GoalLike
from ..goals.resolve import goal_of
from ..radius import number
from . import validate
from .box import Box, grid_of
from .model import Draws, Model, Oracle, borrowed
from .problem import Problem, Trace
from .result import Result
from .solve import solve

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Attack", "DistanceLike"]


@dataclass(frozen=True)
class Attack:
    """Base of all attacks; a subclass adds its settings and ``run``.

    The class facts are what ``almakit ls attacks`` prints: ``does`` names the distances it can minimise (None: any),
    ``minimal`` tells whether it looks for the smallest perturbation or works at a fixed ``epsilon``. ``ranges`` holds
    the settings, by names, to the intervals that its numbers must lie in: ``{"(0, 1]": "share", "[1, inf)": "outer
    inner"}``.
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
        """Answers a wrong setting with a sentence; the dataclass's own ``__init__`` does the rest."""
        if not settings.keys() <= cls.__dataclass_fields__.keys():
            known = [name for name in inspect.signature(cls.__init__).parameters if name != "self"]
            for name in settings:
                if name not in known:
                    raise wrong_setting(
                        cls.title if isinstance(cls.title, str) and cls.title else cls.__name__, name, known
                    )
        return super().__new__(cls)

    def run(self, problem: Problem) -> None:
        """Queries the problem until done; what was found is in the problem."""
        raise NotImplementedError

    @property
    def measure(self) -> Distance:
        """The distance this attack minimises and reports."""
        return resolve_distance(getattr(self, "distance", "l2"))

    @property
    def radii(self) -> tuple[float, ...]:
        """The radii of an attack at a fixed epsilon; empty where it looks for the smallest perturbation."""
        return ()

    @property
    def ranking(self) -> Distance | None:
        """What decides which point of an image is kept, where that is not the distance."""
        return None

    def __post_init__(self) -> None:
        settings = {field.name: getattr(self, field.name) for field in fields(self)}
        for setting in fields(self):
            validate.setting(type(self).__name__, setting.name, settings[setting.name], setting.type)
        for interval, names in self.ranges.items():
            for name in names.split():
                validate.within(name, settings[name], interval)
        if "steps" in settings:
            validate.steps(settings["steps"])
        if "distance" in settings:
            distance = resolve_distance(settings["distance"])
            if isinstance(settings["distance"], (str, int, float)):
                object.__setattr__(
                    self, "distance", registry.canonical("distances", settings["distance"])
                )  # the same attack has the same text
            if self.does is not None and repr(distance) not in self.does:
                raise BadInput(
                    f"{type(self).__name__} does {', '.join(self.does)}, not {distance!r}; attacks for any distance: "
                    "alma, soft-walk, cw."
                )

    def needs_classes(self) -> bool:
        """Whether it needs logits of classes and a label or target, so that it serves no other goals than untargeted
        and targeted ones."""
        return False

    def needs_gradients(self) -> bool:
        """Whether it needs the model's gradients; where not, the model may be anything that gives outputs."""
        return True

    @property
    def pixel_share(self) -> float:
        """The part of the pixels that must be wrong where labels are maps."""
        return 0.99

    @check_keywords
    def __call__(
        self,
        model: Model,
        x: Tensor,
        labels: Tensor | Sequence[int] | None = None,
        targets: Tensor | Sequence[int] | None = None,
        goal: GoalLike | None = None,
        *,
        mask: Tensor | None = None,
        box: Box | None = None,
        confidence: float = 0.0,
        batch_size: int | None = None,
        seed: int = 0,
        budget: int | None = None,
        autocast: torch.dtype | None = None,
        check: bool = True,
        trace: Trace | None = None,
        tolerance: float | None = None,
        stop_within: float | str | None = None,
        eot: int | None = None,
        votes: int = 100,
        vote_share: float = 0.5,
        surrogate: Model | None = None,
    ) -> Result:
        """Attacks the images ``x`` (B, ...) in the box: away from ``labels`` (B,), towards ``targets`` (B,) where
        given, or to any ``goal``.

        With ``labels`` (B, H, W) nearly all pixels of a segmentation model's map must leave theirs, those in ``mask``
        (B, H, W). A goal is one of ``almakit.goals`` or a function of the model's outputs; it takes the labels and
        targets where it has none of its own. ``batch_size`` images go through the model at a time. ``budget`` caps the
        forwards and the backwards of each image. ``autocast`` runs the model in that precision, the final decision in
        full precision. ``trace`` receives a dict of tensors per step. ``check`` asks about the first, a middle and the
        last image of the first batch alone, to see whether the model is deterministic and judges each image by itself,
        and about every success again at the end, in batches of another composition; ``result.probes`` counts these
        forwards. ``tolerance``: an image whose best distance falls by less than this share over a quarter of its budget
        (of the attack's own plan, where there is none) stops there. ``stop_within``: a radius, such as 0.5 or "8/255";
        an image makes no further queries once a success within it is known, so that its distance is not the smallest
        and the result answers for this radius and larger ones. ``eot``: the model is random; what the attack sees
        are means over so many passes (each counted, forward and backward), and a point is a success where the goal is
        reached in at least ``vote_share`` of ``votes`` fresh passes. ``surrogate``: a model whose gradients stand in
        for those of ``model``, which gives outputs, decisions and the verdict (transfer, BPDA).
        """
        x, box = validate.images(x, box or Box())
        validate.call(model, confidence, batch_size, budget, tolerance, surrogate)
        radius = None if stop_within is None else number(stop_within, "stop_within")
        wanted = self._goal(len(x), labels, targets, goal, confidence, mask)
        self.measure.check(x)
        if not len(x):
            return Result.empty(x)
        draws = None if eot is None else Draws(eot, votes, vote_share, seed)
        oracle = Oracle(model, x.dtype, autocast, wanted.read, draws, surrogate)
        x, wanted, box = oracle.place(x), wanted.to(oracle.device or x.device), box.to(oracle.device or x.device)
        size = batch_size or default_batch_size(x)
        name = repr(self.measure)
        grid = grid_of(name, box, x)
        # Callers may sit under torch.no_grad() or torch.inference_mode(); an attack needs gradients all the same.
        with borrowed(model), borrowed(surrogate), torch.inference_mode(False), torch.enable_grad():
            result = solve(
                self,
                oracle,
                x,
                wanted,
                box,
                size=size,
                seed=seed,
                budget=budget,
                trace=trace,
                check=check,
                tolerance=tolerance,
                stop_distance=None if radius is None else grid.limit(radius),
            )
        return replace(
            result,
            originals=x,
            labels=wanted.labels,
            distance=name,
            step=grid.step,
            stop_within=radius if self.minimal else None,
            radii=() if self.minimal else self.radii,
        )

    def _goal(
        self, count: int, labels: object, targets: object, goal: object, confidence: float, mask: Tensor | None
    ) -> Goal:
        """What ``count`` images are to reach; a sentence where this attack cannot serve it."""
        wanted = goal_of(count, labels, targets, goal, confidence, mask, self.pixel_share)
        if wanted.targeted and not self.can_target:
            raise BadInput(
                f"{type(self).__name__} has no targeted form; alma, soft-walk, cw, ddn, fmn and apgd have one."
            )
        if self.needs_classes() and not wanted.by_class:
            raise BadInput(
                f"{type(self).__name__} as it is set needs the logits of classes and serves the goals untargeted and "
                f"targeted; for {wanted.title} take "
                f"{', '.join(serving_any_goal())}, or loss=margin where the attack has a loss."
            )
        return wanted

    def describe(self) -> dict[str, Any]:
        """The settings by name, distances as their names."""
        return {f.name: repr(v) if isinstance(v := getattr(self, f.name), Distance) else v for f in fields(self)}


def default_batch_size(x: Tensor) -> int:
    """How many of the images ``x`` (B, ...) go through the model at a time where nobody says: 128 small ones, fewer
    large ones.

    On a CPU few large ones: where a layer's output passes 32 MB, fetching fresh memory for it in every pass doubles the
    cost of the pass.
    """
    return max(1, min(128, (1_250_000 if x.device.type == "cpu" else 2_400_000) // x[0].numel()))


def serving_any_goal() -> list[str]:
    """The names of attacks that need nothing but a margin, as they are by default."""
    found = []
    for name in registry.names("attacks"):
        with suppress(BadInput):
            if not registry.get("attacks", name)().needs_classes():
                found.append(name)
    return found
