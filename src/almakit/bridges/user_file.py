"""A user's own attack, ``file.py:function(model, x, y) -> x_adv``, run and judged like almakit's attacks."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from ..data import user_file
from ..data.user_file import imports_sha256
from ..errors import BadInput
from .foreign import OURS, CountedModel, Foreign


@dataclass(frozen=True)
class UserAttack(Foreign):
    """``function(model, x, y)`` from a file, ``my.py:attack(steps=50)``, or from Python, ``UserAttack.of(function)``.

    ``x`` (B, ...) is in [0, 1], ``y`` (B,) are labels, ``model`` is a torch module from images to logits. Further
    parameters of the function are settings. With a parameter ``targets`` the attack can be targeted; it receives
    classes (B,), or None. ``distance=...`` in the text, or an attribute ``distance`` of the function, sets the distance
    to measure; the default is l2. A parameter ``eps`` or ``epsilon`` is the radius of a ball.
    """

    library = ""
    function: Callable[..., Any] | None = None

    @classmethod
    def of(cls, function: Callable[..., Any], **settings: Any) -> UserAttack:
        """A Python function as an attack; ``settings`` are its own further parameters and ``distance``, ``epsilon``,
        ``at_once``."""
        own = {key: settings.pop(key) for key in OURS if key in settings}
        name = f"python:{getattr(function, '__name__', type(function).__name__)}"
        return cls(name=name, settings=tuple(settings.items()), function=function, **own)

    @cached_property
    def target(self) -> Callable[..., Any]:
        function = user_file.function(self.name) if self.function is None else self.function
        if not callable(function) or len(_positional(function)) < 3:
            raise BadInput(
                f"{self.name} must be a function of (model, x, y) that returns the adversarial images; further "
                "parameters are settings."
            )
        return function

    @property
    def not_settings(self) -> str:  # type: ignore[override]
        return " ".join([*_positional(self.target)[:3], "targets"])

    def guess_distance(self) -> str:
        return str(self.defaults.get("distance") or getattr(self.target, "distance", "l2"))

    def radius(self) -> float | None:
        given = self.values.get("epsilon", super().radius())
        return float(given) if isinstance(given, (int, float)) else None

    @property
    def can_target(self) -> bool:  # type: ignore[override]
        return "targets" in inspect.signature(self.target).parameters

    def version(self) -> str:
        if self.function is not None:
            code = getattr(self.function, "__code__", None)
            if code is None:
                return "unknown"
            plain = [each for each in code.co_consts if each is None or isinstance(each, (bool, int, float, str))]
            return f"code {hashlib.sha256(code.co_code + repr((code.co_names, plain)).encode()).hexdigest()[:16]}"
        file = Path(user_file.split(self.name)[0]).expanduser()
        imported = imports_sha256(file)
        return f"sha256 {hashlib.sha256(file.read_bytes()).hexdigest()[:16]}" + (
            f", of its imports {imported[:16]}" if imported else ""
        )

    def perturb(self, model: CountedModel, x: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
        more = {"targets": targets} if self.can_target else {}
        with nullcontext() if self.function is not None else user_file.importable(self.name):
            found: Tensor = self.target(model, x, labels, **dict(self.settings), **more)
        return found


def _positional(function: Callable[..., Any]) -> list[str]:
    return [
        name
        for name, each in inspect.signature(function).parameters.items()
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
