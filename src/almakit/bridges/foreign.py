"""What all foreign attacks share: settings checked before the model is called, one way to run them, and a text that
builds them again."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ..core import Attack, Exhausted, Problem
from ..core.model import out_of_memory, seeded
from ..distances.base import DistanceLike
from ..errors import AlmakitError, BadInput, Unavailable
from ..tensors import per_image
from .gate import Gate

OURS = ("distance", "epsilon", "at_once")
# What one looks for in a table is always in the text, as it is for our own attacks.
ALWAYS = ("steps", "num_steps", "n_iter", "max_iter", "norm", "eps")
NORMS = {0.0: "l0", 1.0: "l1", 2.0: "l2", float("inf"): "linf"}


@dataclass(frozen=True)
class Foreign(Attack):
    """An attack of another library, or a user's function, run behind the ``Problem`` like our own: counted, capped,
    verified, remembered.

    ``name`` is ``library:attack`` and ``settings`` are the library's own. Three more belong to almakit: ``distance``,
    what is measured (by default what the attack minimises), ``epsilon``, the radius of an attack that takes one when it
    is called, and ``at_once``, how many images it gets at a time (by default as many as the engine's batch holds; with
    1 no image can depend on another, and no count on a guess).

    A result is the best verified point among all the attack asked about and what it returned. A returned point that was
    not asked about costs one more forward. Successes of an attack at a fixed radius lie within it, up to a relative
    1e-5.
    """

    library: ClassVar[str] = ""
    cost: ClassVar[str] = "counted while it runs"
    forwards_alone: ClassVar[tuple[str, ...]] = ()  # how names of attacks end that ask for no gradient

    name: str = ""
    settings: tuple[tuple[str, Any], ...] = ()
    distance: DistanceLike | None = None
    epsilon: float | None = None
    at_once: int | None = None

    @classmethod
    def build(cls, name: str, settings: Mapping[str, Any]) -> Foreign:
        """The attack ``name`` (``library:attack``) with all its settings, the library's and ours, by name."""
        own = {key: value for key, value in settings.items() if key in OURS}
        return cls(name=name, settings=tuple((key, value) for key, value in settings.items() if key not in OURS), **own)

    # What a library's file says.

    @cached_property
    def target(self) -> Callable[..., Any]:
        """The library's class or function."""
        raise NotImplementedError

    def hidden(self) -> tuple[str, ...]:
        """Parameters of the target that are not settings."""
        return ("self", "model", "inputs", "labels", "x", "y", "images", "targeted", "targets", "callback")

    def guess_distance(self) -> str | None:
        """What the attack minimises, or the norm of its ball; None where the library does not say."""
        return None

    def radius(self) -> float | None:
        """The radius of an attack at a fixed one; None for an attack that looks for the smallest change."""
        given = {"eps": None, **self.defaults, **dict(self.settings)}["eps"] if self.epsilon is None else self.epsilon
        return float(given) if isinstance(given, (int, float)) else None

    def targets_too(self) -> bool:
        """Whether the attack has a targeted form."""
        return "targeted" in inspect.signature(self.target).parameters

    def version(self) -> str:
        """The library with its version, or whatever else tells one state of the code from another."""
        return self.library

    def perturb(self, model: Gate, x: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
        """What the library makes of the images ``x`` (G, ...) with ``labels`` (G,) and, where given, ``targets``
        (G,)."""
        raise NotImplementedError

    # What follows from it.

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The settings the library's class or function takes."""
        found = inspect.signature(self.target).parameters
        return {
            name: each
            for name, each in found.items()
            if name not in self.hidden() and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        }

    @cached_property
    def defaults(self) -> dict[str, Any]:
        return {name: each.default for name, each in self.parameters.items() if each.default is not each.empty}

    @property
    def values(self) -> dict[str, Any]:
        """All settings by name: the library's defaults and what was given."""
        return {**self.defaults, **dict(self.settings)}

    def __post_init__(self) -> None:
        given = dict(self.settings)
        # A setting of ours that the library also has (adv-lib's ALMA takes a distance) is both.
        for name in OURS:
            value = getattr(self, name)
            if name in self.parameters and value is not None:
                given[name] = value
        for name in given:
            if name not in self.parameters:
                known = ", ".join(dict.fromkeys([*self.parameters, *OURS]))
                raise BadInput(f"{self.name} has no setting {name!r}; its settings are {known}.")
        for name, each in self.parameters.items():
            if each.default is each.empty and name not in given:
                raise BadInput(f"{self.name} needs {name}=...; its settings are {', '.join(self.parameters)}.")
        ordered = tuple((name, given[name]) for name in self.parameters if name in given)
        object.__setattr__(self, "settings", ordered)
        if self.distance is None:
            object.__setattr__(self, "distance", self.guess_distance())
        if self.distance is None:
            raise BadInput(
                f"{self.library or 'the function'} does not say what {self.name} minimises; add distance=l2, or "
                "whatever is to be measured."
            )
        if self.at_once is not None and not (isinstance(self.at_once, int) and self.at_once > 0):
            raise BadInput(f"at_once={self.at_once!r}: how many images at a time, a whole number, at least 1.")
        if self.epsilon is not None and not (
            isinstance(self.epsilon, (int, float)) and 0 < self.epsilon < float("inf")
        ):
            raise BadInput(f"epsilon={self.epsilon!r}: the radius must be a positive number.")
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
    def can_target(self) -> bool:  # type: ignore[override]
        return self.targets_too()

    @property
    def written(self) -> tuple[str, dict[str, Any]]:
        """Name and settings of the text that builds this attack again; the library's defaults are left out, but not its
        steps."""
        values = self.values
        settings = {
            name: values[name]
            for name in self.parameters
            if name in values
            if name in ALWAYS or name not in self.defaults or not _same(values[name], self.defaults[name])
        }
        ours = {name: getattr(self, name) for name in OURS}
        if ours["distance"] == self.guess_distance() or "distance" in settings:
            ours.pop("distance")
        return self.name, {
            **settings,
            **{name: value for name, value in ours.items() if value is not None and name not in settings},
        }

    def describe(self) -> dict[str, Any]:
        """All settings by name, with the version of the code behind them."""
        settings = {
            name: value
            for name, value in self.values.items()
            if value is None or isinstance(value, (bool, int, float, str, tuple))
        }
        return {
            **settings,
            "distance": repr(self.measure),
            "epsilon": self.radius(),
            "at_once": self.at_once,
            "version": self.version(),
        }

    def needs_classes(self) -> bool:
        """Other libraries' attacks are given logits and labels."""
        return True

    def needs_gradients(self) -> bool:
        return not self.name.endswith(self.forwards_alone)

    def run(self, problem: Problem) -> None:
        size, radius = self.at_once or len(problem), self.radius()
        limit = problem.x.new_full((len(problem),), float("inf") if radius is None else problem.grid.limit(radius))
        with problem.limited_to(limit):
            for begin in range(0, len(problem), size):
                self._run_on(problem, torch.arange(begin, min(begin + size, len(problem)), device=problem.x.device))

    def _run_on(self, problem: Problem, rows: Tensor) -> None:
        gate, goal = Gate(problem, rows), problem.goal.take(rows)
        assert goal.labels is not None
        returned = None
        try:
            with _own_randomness(problem, rows), redirect_stdout(sys.stderr), torch.enable_grad():
                returned = self.perturb(
                    gate, gate.x.clone(), goal.labels.clone(), None if goal.targets is None else goal.targets.clone()
                )
        except (AlmakitError, Exhausted, MemoryError):
            if gate.failure is None:
                raise
        except Exception as error:
            if gate.failure is None and out_of_memory(error):
                raise
            if gate.failure is None and isinstance(error, ModuleNotFoundError):
                raise Unavailable(
                    f"{self.name} needs {error.name}, which is not installed: pip install {error.name}."
                ) from error
            if gate.failure is None and not gate.refused:  # some break on answers past the budget: that is their end
                raise BadInput(
                    f"{self.name} failed with {type(error).__name__}: {error}. The error comes from "
                    f"{self.library or 'the function'}; its settings or the kind of images may not suit it."
                ) from error
        if gate.failure is not None and not isinstance(gate.failure, Exhausted):
            raise gate.failure
        if returned is not None:
            self._look_at(problem, gate, rows, returned)

    def _look_at(self, problem: Problem, gate: Gate, rows: Tensor, returned: object) -> None:
        """Judges what the attack returned where it is nearer than the best point the problem has seen."""
        if isinstance(returned, np.ndarray):
            returned = torch.from_numpy(returned)
        if not isinstance(returned, Tensor) or returned.shape != gate.x.shape:
            got = f"shape {tuple(returned.shape)}" if isinstance(returned, Tensor) else f"a {type(returned).__name__}"
            raise BadInput(
                f"{self.name} returned {got}; it must return the adversarial images, a tensor of shape "
                f"{tuple(gate.x.shape)}."
            )
        point = problem.box.take(rows, gate.x.shape[1:]).project(returned.detach().to(gate.x), gate.x)
        changed = (point != gate.x).flatten(1).any(1) & torch.isfinite(point).flatten(1).all(1)
        with torch.no_grad():
            nearer = (
                problem.bound.take(rows)(torch.where(per_image(changed, point), point, gate.x))
                < problem.best_distance[rows]
            )
        known = (point == gate.last).flatten(1).all(1)
        new = (changed & nearer & ~known).nonzero().flatten()
        if len(new):
            with suppress(Exhausted):
                problem.query(point[new], grad=False, images=rows[new])


def _own_randomness(problem: Problem, rows: Tensor) -> AbstractContextManager[None]:
    """Seeds a library that draws from the global generators, from the problem's seed and images."""
    return seeded(int(problem.random.take(rows[:1]).generators[0].initial_seed() % 2**32), problem.x.device)


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and bool(one == other)


def norm_name(norm: object) -> str | None:
    """``l2`` for 2, ``"L2"``, ``"2"`` and so on; None for what is no norm we know."""
    if isinstance(norm, str):
        text = norm.lower().removeprefix("l").removeprefix("_")
        try:
            norm = float(text)
        except ValueError:
            return None
    return NORMS.get(float(norm)) if isinstance(norm, (int, float)) else None
