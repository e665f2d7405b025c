"""Radii: how people write them, and the one rule for which distances lie within one. No torch here; the rule works on
floats, arrays and tensors alike."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from .errors import BadInput
from .expression import parse_number

Radius = TypeVar("Radius")
TOLERANCE = 1e-5
"""Relative: how far a distance may exceed a radius by float rounding, and how far two texts of one radius differ."""
ROUNDING = 2.0**-23
"""Absolute: what the rounding of two float32 values in [0, 1] can add to their difference."""
OFF_LEVEL = 0.05
"""What rounding may move a distance away from a whole number of levels by."""


def number(value: float | str, name: str = "epsilon") -> float:
    """A radius: 0.5, "0.5" or "8/255"; anything else is an error that names the argument ``name``."""
    try:
        found = parse_number(value) if isinstance(value, str) else math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not 0 <= found < math.inf:
        raise BadInput(f"{name} {value!r} is no radius; write a finite number, 0 or more, such as 0.5 or 8/255.")
    return found


def readable(epsilon: float, distance: str) -> str:
    """A radius as text: 8/255 for l-infinity, otherwise a short number."""
    whole = round(255 * epsilon)
    return (
        f"{whole}/255"
        if distance == "linf" and whole and abs(255 * epsilon - whole) < 1e-4 and whole % 51
        else f"{epsilon:.6g}"
    )


def same(one: float, other: float) -> bool:
    """Whether two numbers are the same radius."""
    return math.isclose(one, other, rel_tol=TOLERANCE)


@dataclass(frozen=True)
class Grid:
    """Which distances lie within a radius: ``distance <= grid.limit(radius)``.

    ``step`` is the spacing of the levels that all changes lie on, 0 without such a grid. (distance/step)^``power`` is
    then a whole number, and the limit lies between the last whole number within the radius and the next one. Without
    a grid the radius is widened by float rounding: 1e-5 of itself and the absolute ``rounding`` of a difference.
    """

    step: float = 0.0
    power: int = 1
    rounding: float = ROUNDING

    @classmethod
    def of(cls, distance: str, step: float = 0.0, found: Iterable[float] = (), rounding: float = ROUNDING) -> Grid:
        """The grid of a distance by its name, on inputs whose levels are ``step`` apart.

        Args:
            distance: name, such as "linf"; only l0, l1, l2 and linf count levels.
            step: spacing of the input's levels, 0 for none.
            found: distances that must lie on the grid; where one does not, the originals were off it, and there is
                none.
            rounding: absolute rounding of the difference of two inputs.
        """
        step = 1.0 if distance == "l0" else step if distance in ("l1", "l2", "linf") else 0.0
        power = 2 if distance == "l2" else 1
        levels = [(value / step) ** power for value in found if math.isfinite(value)] if step else []
        if any(abs(level - round(level)) > OFF_LEVEL for level in levels):
            step = 0.0
        return cls(step, power, rounding)

    def limit(self, radius: Radius) -> Radius:
        """The largest distance that counts as within ``radius``, a float, an array or a tensor of radii."""
        values: Any = radius
        limit: Radius
        if not self.step:
            limit = values * (1 + TOLERANCE) + self.rounding * (values > 0)
            return limit
        levels = (values / self.step) ** self.power
        # The radius itself is rounded: 1e-5 relative, and never more than a hundredth of a level.
        whole = (levels + levels / (100 * (1000 + levels))) // 1
        limit = self.step * ((levels + whole + 1) / 2) ** (1 / self.power)
        return limit


def grid_step(bits: int | None, steps: Iterable[float] = ()) -> float:
    """Spacing of the levels of inputs in [0, 1]: 1 / (2^bits - 1), or without ``bits`` the common value of ``steps``; 0
    if they have none."""
    if bits is not None:
        return 1 / float(2**bits - 1)
    found = set(steps)
    return found.pop() if len(found) == 1 else 0.0
