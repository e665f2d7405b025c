"""Attacks of other libraries and functions of a user, run behind the ``Problem`` like almakit's own.

``Foreign`` is the base class: it checks the settings before the model is called, runs the attack and writes the text
that builds it again. ``CountedModel`` is the model that the attack is given.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .. import registry
from ..core import Attack, Exhausted, Problem, Query
from ..core.oracle import out_of_memory, seeded
from ..distances.base import DistanceLike
from ..errors import AlmakitError, BadInput, Unavailable, UnknownName, optional, suggestion
from ..goals.classes import check_range
from ..goals.resolve import class_indices
from ..tensors import per_image

OURS = ("distance", "epsilon", "at_once")
ALWAYS = ("steps", "num_steps", "n_iter", "max_iter", "norm", "eps")
"""Settings that are always part of the text, as for almakit's own attacks."""
NORMS = ("l0", "l1", "l2", "linf")


@dataclass(frozen=True)
class Foreign(Attack):
    """An attack of another library, or a user's function, run behind the ``Problem``: queries are counted and capped,
    successes verified.

    The result of an image is the best verified point among all queried points and what the attack returned; a returned
    point that was not queried costs one more forward. Successes of an attack at a fixed radius lie within it, up to a
    relative 1e-5.

    Args:
        name: ``library:attack``.
        settings: names and values of the library's own settings.
        distance: the distance to measure; default: the one that the attack minimises.
        epsilon: the radius of an attack that takes one when it is called.
        at_once: number of images per call of the attack; default: the batch. With 1, images cannot depend on each
            other, and queries need not be matched to images.
    """

    library: ClassVar[str] = ""
    package: ClassVar[str] = ""  # the name of the installed distribution
    install: ClassVar[str] = ""  # the command that installs it
    module: ClassVar[str] = ""  # the module that holds the library's attacks
    kind: ClassVar[str] = ""  # module:name of the type of the attacks in it, or of their base class
    minimises: ClassVar[Mapping[str, str]] = {}  # distance -> attacks, if no setting determines it
    gradient_free: ClassVar[str] = ""  # endings of the names of attacks without gradients
    not_settings: ClassVar[str] = "self model inputs labels x y images targeted targets callback"
    cost: ClassVar[str] = "counted while it runs"
    ranges: ClassVar[dict[str, str]] = {"[1, inf)": "at_once", "(0, inf)": "epsilon"}

    name: str = ""
    settings: tuple[tuple[str, Any], ...] = ()
    distance: DistanceLike | None = None
    epsilon: float | None = None
    at_once: int | None = None

    @classmethod
    def build(cls, name: str, settings: Mapping[str, Any]) -> Foreign:
        """The attack ``name`` (``library:attack``) with all settings by name, the library's and almakit's."""
        own = {key: value for key, value in settings.items() if key in OURS}
        return cls(name=name, settings=tuple((key, value) for key, value in settings.items() if key not in OURS), **own)

    # Overridden for each library.

    @cached_property
    def target(self) -> Callable[..., Any]:
        """The library's class or function of this name."""

        module, _, name = self.kind.partition(":")
        kind = getattr(self.load(module), name)

        def is_attack(value: Any) -> bool:
            return isinstance(value, kind) or (inspect.isclass(value) and issubclass(value, kind))

        known = {name: value for name, value in vars(self.load(self.module)).items() if is_attack(value)}
        found: Callable[..., Any] = self.named(known)
        return found

    def load(self, module: str) -> Any:
        """A module of the library, or an ``Unavailable`` with the command that installs it."""
        return optional(module, f"{module.split('.')[0]} is not installed: {self.install}.", self.install)

    def perturb(self, model: CountedModel, x: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
        """The library's adversarial images for ``x`` (G, ...) with ``labels`` (G,) and optionally ``targets`` (G,)."""
        raise NotImplementedError

    def guess_distance(self) -> str | None:
        """The distance that the attack minimises, or the norm of its ball; None if unknown."""
        for name in ("norm", "distance"):
            if name in self.parameters:
                return norm_name(self.values[name]) or str(self.values[name])
        return next((found for found, names in self.minimises.items() if self.short_name in names.split()), None)

    def radius(self) -> float | None:
        """The radius of an attack at a fixed radius; None for an attack that minimises the distance."""
        radius = self.values.get("eps") if self.epsilon is None else self.epsilon
        return float(radius) if isinstance(radius, (int, float)) else None

    @property
    def can_target(self) -> bool:  # type: ignore[override]
        return "targeted" in inspect.signature(self.target).parameters

    def version(self) -> str:
        """The library with its version, or another identifier of its code."""
        try:
            return f"{self.package} {version(self.package)}"
        except PackageNotFoundError:
            return f"{self.package} of unknown version"

    # Derived from those.

    @property
    def short_name(self) -> str:
        """The name without the library."""
        return self.name.partition(":")[2]

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The settings that the library's class or function takes."""
        found = inspect.signature(self.target).parameters
        return {
            name: each
            for name, each in found.items()
            if name not in self.not_settings.split() and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        }

    @cached_property
    def defaults(self) -> dict[str, Any]:
        return {name: each.default for name, each in self.parameters.items() if each.default is not each.empty}

    @property
    def values(self) -> dict[str, Any]:
        """All of the library's settings by name."""
        return {**self.defaults, **dict(self.settings)}

    def named(self, known: Mapping[str, Any]) -> Any:
        """The entry of this name, or an error that offers the nearest names."""
        if self.short_name not in known:
            raise UnknownName(
                f"{self.library} has no attack {self.short_name!r}; {suggestion(self.short_name, sorted(known))}"
            )
        return known[self.short_name]

    def __post_init__(self) -> None:
        settings = dict(self.settings)
        for name in OURS:  # passed to both if the library has it too, as adv-lib's ALMA has a distance
            if name in self.parameters and getattr(self, name) is not None:
                settings[name] = getattr(self, name)
        for name in settings:
            if name not in self.parameters:
                known = ", ".join(dict.fromkeys([*self.parameters, *OURS]))
                raise BadInput(f"{self.name} has no setting {name!r}; its settings are {known}.")
        for name in self.parameters:
            if name not in self.defaults and name not in settings:
                raise BadInput(f"{self.name} needs {name}=...; its settings are {', '.join(self.parameters)}.")
        ordered = tuple((name, settings[name]) for name in self.parameters if name in settings)
        object.__setattr__(self, "settings", ordered)
        if self.distance is None:
            object.__setattr__(self, "distance", self.guess_distance())
        if self.distance is None:
            raise BadInput(
                f"{self.library or 'the function'} does not say what {self.name} minimises; add distance=l2, or "
                "whatever is to be measured."
            )
        super().__post_init__()

    @property
    def title(self) -> str:  # type: ignore[override]
        return self.name

    @property
    def minimal(self) -> bool:  # type: ignore[override]
        return self.radius() is None

    @property
    def radii(self) -> tuple[float, ...]:
        return () if (radius := self.radius()) is None else (radius,)

    @property
    def written(self) -> tuple[str, dict[str, Any]]:
        """Name and settings of the text that builds this attack again; the library's defaults are left out, but not its
        steps."""
        settings = {
            name: value
            for name, value in self.values.items()
            if name in ALWAYS or repr(value) != repr(self.defaults.get(name, inspect.Parameter.empty))
        }
        ordered = {name: settings[name] for name in self.parameters if name in settings}
        ours = {name: getattr(self, name) for name in OURS if name not in settings}
        if ours.get("distance") == self.guess_distance():
            ours.pop("distance", None)
        return self.name, {**ordered, **{name: value for name, value in ours.items() if value is not None}}

    def describe(self) -> dict[str, Any]:
        """All settings by name, with the version of the code behind them."""
        plain = (bool, int, float, str, tuple)
        return {
            **{name: value for name, value in self.values.items() if value is None or isinstance(value, plain)},
            "distance": repr(self.measure),
            "epsilon": self.radius(),
            "at_once": self.at_once,
            "version": self.version(),
        }

    def needs_classes(self) -> bool:
        """True: attacks of other libraries need logits and labels."""
        return True

    def needs_gradients(self) -> bool:
        return not self.name.endswith(tuple(self.gradient_free.split()))

    def run(self, problem: Problem) -> None:
        size, radius = self.at_once or len(problem), self.radius()
        limit = problem.x.new_full((len(problem),), float("inf") if radius is None else problem.grid.limit(radius))
        with problem.limited_to(limit):
            for begin in range(0, len(problem), size):
                self._run_on(problem, torch.arange(begin, min(begin + size, len(problem)), device=problem.x.device))

    def _run_on(self, problem: Problem, rows: Tensor) -> None:
        model, goal = CountedModel(problem, rows), problem.goal.take(rows)
        assert goal.labels is not None
        targets = None if goal.targets is None else goal.targets.clone()
        # Libraries that draw from the global generators are seeded with the problem's seed and images.
        seed = int(problem.random.take(rows[:1]).generators[0].initial_seed() % 2**32)
        returned = None
        try:
            with seeded(seed, problem.x.device), redirect_stdout(sys.stderr), torch.enable_grad():
                returned = self.perturb(model, model.x.clone(), goal.labels.clone(), targets)
        except Exception as error:
            if model.failure is None:
                self._explain(error, model.refused)
        if model.failure is not None and not isinstance(model.failure, Exhausted):
            raise model.failure
        if returned is not None:
            self._query_returned(problem, model, rows, returned)

    def _explain(self, error: Exception, refused: bool) -> None:
        """Raise an error of the attack's code with an explanation; some attacks fail on answers past the budget."""
        if isinstance(error, (AlmakitError, Exhausted)) or out_of_memory(error):
            raise error
        if isinstance(error, ModuleNotFoundError):
            raise Unavailable(
                f"{self.name} needs {error.name}, which is not installed: pip install {error.name}."
            ) from error
        if not refused:
            raise BadInput(
                f"{self.name} failed with {type(error).__name__}: {error}. The error comes from "
                f"{self.library or 'the function'}; its settings or the kind of images may not suit it."
            ) from error

    def _query_returned(self, problem: Problem, model: CountedModel, rows: Tensor, returned: object) -> None:
        """Query the returned points that are nearer than the best known ones."""
        if isinstance(returned, np.ndarray):
            returned = torch.from_numpy(returned)
        if not isinstance(returned, Tensor) or returned.shape != model.x.shape:
            got = f"shape {tuple(returned.shape)}" if isinstance(returned, Tensor) else f"a {type(returned).__name__}"
            raise BadInput(
                f"{self.name} returned {got}; it must return the adversarial images, a tensor of shape "
                f"{tuple(model.x.shape)}."
            )
        point = problem.box.take(rows, model.x.shape[1:]).project(returned.detach().to(model.x), model.x)
        changed = (point != model.x).flatten(1).any(1) & torch.isfinite(point).flatten(1).all(1)
        finite = torch.where(per_image(changed, point), point, model.x)
        with torch.no_grad():
            nearer = problem.bound.take(rows)(finite) < problem.best_distance[rows]
        new = (changed & nearer & (point != model.last).flatten(1).any(1)).nonzero().flatten()
        if len(new):
            with suppress(Exhausted):
                problem.query(point[new], grad=False, images=rows[new])


class CountedModel(nn.Module):
    """The model for the images ``rows`` (G,) of a problem, behind which the ``Problem`` counts, projects and judges.

    A foreign attack may send any number of candidates in any order. If there are as many candidates as images, they
    belong to the images in their order, unless one is less than half as far from another clean image. Otherwise a
    candidate belongs to the nearest clean image. A point is judged with its image's label and distance, so a wrong
    match can change a count but cannot create a false success.

    Candidates are projected into the domain before the query, and gradients pass through the projection unchanged. Past
    its budget, an image is answered with its true label and zero gradients; the attack ends when all images have spent
    their budget. A required confidence is added to the logits that the attack receives.
    """

    def __init__(self, problem: Problem, rows: Tensor):
        super().__init__()
        self.problem, self.rows = problem, rows
        self.x = problem.x[rows]
        self.last = self.x.clone()  # the last queried point of each image, which attacks often return
        self.queries, self.refused = 0, False
        self.failure: BaseException | None = None
        # Attacks read the device from the first parameter.
        self.device_of = nn.Parameter(torch.zeros(1, dtype=self.x.dtype, device=self.x.device), requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (R, K) of ``inputs`` (R, ...)."""
        if inputs.shape[1:] != self.x.shape[1:]:
            shape = ", ".join(map(str, self.x.shape[1:]))
            raise self._keep(
                BadInput(f"the attack sent images of shape {tuple(inputs.shape)}; the model takes (B, {shape}).")
            )
        if not len(inputs):
            return inputs.new_zeros(0, self._clean(self.rows[:1]).shape[1])
        if inputs.requires_grad and torch.is_grad_enabled():
            logits: Tensor = _Differentiable.apply(inputs, self)  # type: ignore[no-untyped-call]
            return logits
        with torch.no_grad():
            return self.query(inputs, grad=False)[0]

    def query(self, inputs: Tensor, grad: bool) -> tuple[Tensor, Query, Tensor | None]:
        """Logits (R, K), the query behind them and which rows (R,) the model answered (None: all)."""
        problem = self.problem
        candidate = inputs.detach().to(self.x.device, self.x.dtype)
        owners = self._owners(candidate)
        images = self.rows if owners is None else self.rows[owners]
        in_order = owners is None and len(self.rows) == len(problem)
        classes = self._clean(self.rows[:1]).shape[1]  # some libraries take the gradient of every class
        try:
            query = problem.query(candidate, grad=grad, images=None if in_order else images, gradients=classes)
        except BaseException as error:
            raise self._keep(error) from None
        logits, sent = query.logits.detach(), None
        if query.sent is not None:
            sent = torch.zeros(len(inputs), dtype=torch.bool, device=logits.device).index_fill(0, query.sent, True)
            logits = torch.where(sent.unsqueeze(1), logits, self._refusal(images))
            self.refused = True
        self.last = query.point if owners is None else self.last.index_copy(0, owners, query.point)
        if in_order:
            problem.record(self.queries, distance=query.distance, margin=query.margin, success=query.success)
        self.queries += 1
        return self._with_confidence(logits, images).to(inputs), query, sent

    def gradient(self, query: Query, sent: Tensor | None, weights: Tensor) -> Tensor | None:
        """The gradient (R, ...) of the sum of ``weights`` (R, K) times the logits; None past the budget."""
        weights = weights.to(query.logits)
        weights = weights if sent is None else weights * sent.unsqueeze(1)
        try:
            with torch.enable_grad():
                return query.gradient((query.logits * weights).sum(1), keep=True)
        except Exhausted:
            return None
        except BaseException as error:
            raise self._keep(error) from None

    def _keep(self, error: BaseException) -> BaseException:
        """Store an error of almakit or of the model, which the attack might catch or wrap."""
        self.failure = error
        return error

    def _clean(self, images: Tensor) -> Tensor:
        assert self.problem.clean_logits is not None
        return self.problem.clean_logits[images]

    def _refusal(self, images: Tensor) -> Tensor:
        """Logits (R, K) of the true label, on the scale of the clean image's."""
        assert self.problem.goal.labels is not None
        clean, labels = self._clean(images), self.problem.goal.labels[images].unsqueeze(1)
        own = torch.maximum(clean.gather(1, labels), clean.scatter(1, labels, float("-inf")).amax(1, keepdim=True) + 1)
        right = clean.argmax(1, keepdim=True) == labels
        return torch.where(right, clean, clean.scatter(1, labels, own))

    def _with_confidence(self, logits: Tensor, images: Tensor) -> Tensor:
        goal = self.problem.goal
        if not goal.confidence:
            return logits
        assert goal.classes is not None
        shift = torch.full_like(logits[:, :1], -goal.confidence if goal.targeted else goal.confidence)
        return logits.scatter_add(1, goal.classes[images].unsqueeze(1), shift)

    def _owners(self, candidate: Tensor) -> Tensor | None:
        """The image (R,) that each candidate (R, ...) belongs to; None: as many as images, in their order."""
        count, points, clean = len(self.rows), candidate.flatten(1).float(), self.x.flatten(1).float()
        squares = (points.square().sum(1, keepdim=True) + clean.square().sum(1) - 2 * points @ clean.T).clamp_min(0)
        smallest, nearest = squares.min(1)
        if len(candidate) != count:
            return nearest
        own = smallest * 4 >= squares.diagonal()
        # Distances that differ by less than the rounding of these products do not change the match.
        own |= squares.diagonal() <= 1e-5 * clean.square().sum(1).clamp_min(1)
        return None if bool(own.all()) else torch.where(own, torch.arange(count, device=own.device), nearest)


class _Differentiable(torch.autograd.Function):
    """A query of a ``CountedModel`` in the attack's own graph."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, model: CountedModel) -> Tensor:
        logits, query, sent = model.query(inputs, grad=True)
        ctx.kept = model, query, sent, inputs.shape
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weights: Tensor) -> tuple[Tensor, None]:
        model, query, sent, shape = ctx.kept
        gradient = model.gradient(query, sent, weights)
        return (weights.new_zeros(shape) if gradient is None else gradient.to(weights)), None


def labels_and_targets(logits: Tensor, targets: object) -> tuple[Tensor, Tensor]:
    """Labels (B,) for targets (B,) without labels: the model's best class other than the target, from ``logits`` (B,
    K)."""
    classes = class_indices(targets, "targets", len(logits)).to(logits.device)
    check_range(classes, "targets", logits.shape[1])
    return logits.scatter(1, classes.unsqueeze(1), float("-inf")).argmax(1), classes


def norm_name(norm: object) -> str | None:
    """``l2`` for 2, ``"L2"``, ``"2"`` and so on; None for other values."""
    name = registry.canonical("distances", norm) if isinstance(norm, (str, int, float)) else ""
    return name if name in NORMS else None
