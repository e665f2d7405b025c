"""Describes inputs other than images: names, ranges and steps of the features, and which are fixed. No torch here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import BadInput, require_text

Numbers = NDArray[np.float64]
MOST_STEPS = 2**17
"""Largest number of steps in [0, 1] that float32 distinguishes safely."""


@dataclass(frozen=True, eq=False)
class Features:
    """Inputs of shape ``lo.shape`` with values from ``lo`` to ``hi`` in their own units, in steps of ``step`` where it
    is not 0; values marked in ``fixed`` do not change.

    Runs work in [0, 1]: a value is (own - lo) / (hi - lo), so distances are in widths of these ranges.
    """

    lo: Numbers
    hi: Numbers
    step: Numbers
    fixed: NDArray[np.bool_]
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        ends = np.stack([self.lo, self.hi, self.step])
        if not ends.size or not np.isfinite(ends).all() or (self.lo > self.hi).any() or (self.step < 0).any():
            raise BadInput("features need finite lo <= hi, and steps that are 0 or more.")
        if self.names is not None and (len(self.names) != self.lo.size or len(set(self.names)) != len(self.names)):
            raise BadInput(f"{self.lo.size} features need as many names, all different, not {len(self.names)}.")
        for name in self.names or ():
            require_text(name, "the name of a feature")
        with np.errstate(divide="ignore", invalid="ignore"):
            many = np.flatnonzero((self.step > 0) & ((self.hi - self.lo) / self.step > MOST_STEPS))
        if len(many):
            name = self.name(int(many[0]))
            raise BadInput(f"{name} has more than {MOST_STEPS} steps, too many for float32; leave its grid out.")

    @classmethod
    def of(
        cls,
        shape: Sequence[int],
        lo: Any = 0.0,
        hi: Any = 1.0,
        step: Any = 0.0,
        fixed: Any = False,
        names: Sequence[str] | None = None,
    ) -> Features:
        """Features of inputs of this shape; a number applies to all values."""
        try:
            low, high, apart = (np.broadcast_to(np.asarray(part, np.float64), shape).copy() for part in (lo, hi, step))
            held = np.broadcast_to(np.asarray(fixed, bool), shape).copy()
        except (TypeError, ValueError) as error:
            raise BadInput(f"lo, hi, step and fixed do not fit inputs of shape {tuple(shape)} ({error}).") from error
        return cls(low, high, apart, held, None if names is None else tuple(names))

    def name(self, place: int) -> str:
        """The name of the value at this flat index."""
        if self.names is not None:
            return self.names[place]
        where = np.unravel_index(place, self.lo.shape)
        return f"value {', '.join(str(int(index)) for index in where)}"

    @property
    def sides(self) -> Numbers:
        """hi - lo; 1 where lo equals hi."""
        return np.where(self.hi > self.lo, self.hi - self.lo, 1.0)

    @property
    def moves(self) -> NDArray[np.bool_]:
        """Which values may change."""
        return ~self.fixed & (self.hi > self.lo)

    @property
    def scaled_step(self) -> Numbers:
        """The steps in [0, 1]."""
        return self.step / self.sides

    def scaled(self, own: NDArray[Any]) -> NDArray[np.float32]:
        """Values (N, ...) in their own units as float32 in [0, 1]; those with a step must lie on it."""
        values = np.asarray(own, dtype=np.float64) - self.lo
        number = np.rint(values / np.where(self.step > 0, self.step, 1.0))
        off = (self.step > 0) & (np.abs(values - number * self.step) > 1e-3 * self.step)
        outside = ~((values >= 0) & (values <= self.hi - self.lo))
        for bad, what in ((outside, "outside its range"), (off, "not on its grid")):
            if bad.any():
                row, place = np.argwhere(bad.reshape(len(bad), -1))[0]
                lo, hi, step = (part.flat[place] for part in (self.lo, self.hi, self.step))
                where = f"{self.name(int(place))} of row {row} is {np.asarray(own)[row].flat[place]:g}, {what}"
                raise BadInput(f"{where} [{lo:g}, {hi:g}]" + (f" in steps of {step:g}." if step else "."))
        return np.where(self.step > 0, number * self.scaled_step, values / self.sides).astype(np.float32)

    def own(self, x: NDArray[Any]) -> Numbers:
        """Values (N, ...) in [0, 1] in their own units."""
        values = np.asarray(x, dtype=np.float64) * self.sides
        steps = np.where(self.step > 0, self.step, 1.0)
        return self.lo + np.where(self.step > 0, np.rint(values / steps) * steps, values)

    def kept(self, point: NDArray[Any], x: NDArray[Any]) -> NDArray[np.bool_]:
        """(N,) whether each ``point`` (N, ...) lies in [0, 1] and on its grid, and has the fixed values of ``x`` (N,
        ...); both in [0, 1]."""
        points, count = np.asarray(point, dtype=np.float64), len(point)
        number = points * self.sides / np.where(self.step > 0, self.step, 1.0)
        good = (points >= 0) & (points <= 1)
        good &= (self.step == 0) | (np.abs(number - np.rint(number)) <= 1e-2)
        good &= self.moves | (points == np.asarray(x, dtype=np.float64))
        return np.asarray(good.reshape(count, -1).all(1))

    def to_json(self) -> str:
        """Text that ``from_json`` reads; a number that is equal for all values is written once."""
        parts = {"lo": self.lo, "hi": self.hi, "step": self.step, "fixed": self.fixed}
        packed = {
            name: values.flat[0].item() if (values == values.flat[0]).all() else values.ravel().tolist()
            for name, values in parts.items()
        }
        return json.dumps({"shape": list(self.lo.shape), **packed, "names": self.names and list(self.names)})

    @classmethod
    def from_json(cls, text: str) -> Features:
        """The features in a text that ``to_json`` wrote; BadInput for other texts."""
        try:
            found = json.loads(text)
            shape = tuple(int(side) for side in found["shape"])
            if not shape or min(shape) < 1 or int(np.prod(shape, dtype=np.float64)) > 10**8:
                raise ValueError(f"{shape} is no shape")
            parts = {
                name: np.reshape(value, shape) if isinstance(value := found[name], list) else value
                for name in ("lo", "hi", "step", "fixed")
            }
            names = found["names"]
            if names is not None and not all(isinstance(name, str) for name in names):
                raise ValueError("names are no texts")
            return cls.of(shape, **parts, names=names)
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise BadInput(f"the recorded features cannot be read ({error}).") from error
