"""The exact smallest distance to another class of a small ReLU network, by mixed-integer programming over CROWN bounds.

Tjeng, Xiao, Tedrake, *Evaluating Robustness of Neural Networks with Mixed Integer Programming*, ICLR 2019. A radius is
decided by one program for each class CROWN leaves open. A point counts where the margin is at most the model's own
rounding, a thousand times what the solver's tolerance of 1e-9 leaves open, so that "there is none" holds beyond the
solver's rounding.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import BadInput, BadModel, optional
from .affine import Affine
from .backward import Known, bounds, differences, margins, propagate_backward
from .graph import Graph, count
from .intervals import NORMS, Ball
from .nonlinear import Relu
from .radius import Certifier, _check, certifier

CLOSED = 1e-3
"""A bracket is closed if the relative distance of its ends is below this."""
UNITS = 5000
"""Largest number of ReLU units of a supported network."""
TOLERANCES: dict[str, Any] = dict.fromkeys(
    ("primal_feasibility_tolerance", "dual_feasibility_tolerance", "mip_feasibility_tolerance"), 1e-9
)
Row = tuple[np.ndarray, np.ndarray, float, float]
"""A constraint: its columns, their factors, and the lower and upper bound of their sum."""


@dataclass(frozen=True)
class Bracket:
    """No point of another class is nearer than ``lower``; one is at ``upper``, found or solved (infinite where none is
    known).

    A verified success is used as an upper end, unless CROWN proves a larger radius; ``lower`` then exceeds it, which is
    a contradiction.
    """

    lower: float
    upper: float
    seconds: float

    @property
    def closed(self) -> bool:
        return _closed(self.lower, self.upper)


def _closed(lower: float, upper: float) -> bool:
    return math.isinf(lower) if math.isinf(upper) else upper - lower <= CLOSED * upper


def exact_radius(
    model: nn.Module | Callable[[Tensor], Tensor],
    x: Tensor,
    labels: Tensor,
    norm: str = "linf",
    *,
    found: Tensor | None = None,
    seconds: float = 60.0,
) -> list[Bracket]:
    """The smallest distance to another class of each image, from both sides.

    Args:
        model: a network of linear layers, convolutions, sums and ReLU.
        x: images in [0, 1], shape (N, C, H, W).
        labels: their classes, shape (N,).
        norm: linf or l1.
        found: distances that an attack found, shape (N,): the search starts there and goes past them.
        seconds: time limit per image; after it, the bracket stays open.

    Returns:
        A bracket for each image.
    """
    if norm not in ("linf", "l1"):
        raise BadInput(
            f"exact distances are solved in linf and l1, not in {norm}, whose program is not linear; take --certify "
            "crown or alpha-crown."
        )
    made = certifier(model, x, norm, "crown")
    _check(x, labels, made.graph.classes, found)
    for step in made.graph.steps:
        if step.layer is not None and not isinstance(step.layer, (Affine, Relu)):
            raise BadModel(
                f"{made.graph.name} has a {type(step.layer).__name__} layer; exact distances need networks of ReLU "
                "and affine layers alone."
            )
    units = sum(count(step.shape) for step in made.graph.steps if isinstance(step.layer, Relu))
    if units > UNITS:
        raise BadModel(
            f"{made.graph.name} has {units} ReLU units; exact distances are out of reach beyond {UNITS}. Take "
            "--certify crown."
        )
    return [
        _solve_image(
            made, x[row : row + 1], labels[row : row + 1], None if found is None else float(found[row]), seconds
        )
        for row in range(len(x))
    ]


def _solve_image(made: Certifier, x: Tensor, labels: Tensor, found: float | None, seconds: float) -> Bracket:
    """Radii just below the nearest point that is known, each decided by programs, until one holds no other; every point
    a program has is moved to the nearest of its cell."""
    started = time.monotonic()
    with torch.no_grad():
        lower, most = (
            float(made.radii(x, labels, None if found is None else torch.tensor([found]))),
            _most(made.norm, x),
        )
        if lower in (0.0, math.inf):
            wrong = lower == 0.0 and int(made.graph.values(x.double())[-1].argmax()) != int(labels)
            return Bracket(lower, 0.0 if wrong else math.inf, time.monotonic() - started)
        # A distance below CROWN's radius cannot be a success: it is ignored here and contradicted by the lower end.
        upper = found if found is not None and found > lower else math.inf
        radius = upper * (1 - CLOSED / 2) if math.isfinite(upper) else 2 * lower
        passed: dict[int, float] = {}
        while (left := seconds - (time.monotonic() - started)) > 0 and not _closed(lower, upper) and lower < most:
            verdict = _decided(made, x, labels, min(radius, most), left, passed)
            if verdict is None:
                break
            if verdict == math.inf:
                lower = min(radius, most)
            else:
                upper = min(upper, verdict)
            radius = upper * (1 - CLOSED / 2) if math.isfinite(upper) else 2 * lower
        return Bracket(math.inf if lower >= most else lower, upper, time.monotonic() - started)


def _most(norm: str, x: Tensor) -> float:
    """The radius at which a ball holds the whole box."""
    moves = torch.maximum(x, 1 - x).double()
    return float(moves.max() if norm == "linf" else moves.sum())


def _decided(
    made: Certifier, x: Tensor, labels: Tensor, radius: float, seconds: float, passed: dict[int, float]
) -> float | None:
    """The distance of a point of another class within ``radius``, infinite where there is none; None where the time did
    not suffice.

    ``passed``: by class, the largest radius within which it is known not to occur; kept from radius to radius.
    """
    started, graph = time.monotonic(), made.graph
    ball = Ball(x.double(), torch.tensor([radius * (1 + 1e-9)], dtype=torch.float64), made.norm)
    known = bounds(graph, ball, True, optimise=True)
    worst = margins(graph, known, labels, "alpha-crown")[0]
    own = float(made.own_rounding(x))
    program = _Program(graph, known)
    for rival in worst.argsort().tolist():
        if rival == int(labels) or float(worst[rival]) > own or passed.get(rival, 0.0) >= radius:
            continue
        left = seconds - (time.monotonic() - started)
        row, constant = program.row(differences(graph, labels, torch.tensor([0]), torch.tensor([rival]), ball.x))
        answer = program.solve(row, own - constant, left) if left > 0 else None
        if isinstance(answer, np.ndarray):
            near = program.nearest(row, own - constant, answer)
            return _distance(made, ball.x, [answer] if near is None else [answer, near], labels, rival, own)
        if answer is None:
            return None
        passed[rival] = radius
    return math.inf


def _distance(
    made: Certifier, x: Tensor, points: Sequence[np.ndarray], labels: Tensor, rival: int, own: float
) -> float | None:
    """The distance of the nearest of the solver's ``points``; None where none is a point of another class after all.

    Decided by the network itself, so that the solver's tolerances do not affect an upper end.
    """
    best = None
    for point in (torch.from_numpy(found).reshape(x.shape) for found in points):
        logits = made.graph.values(point)[-1][0]
        away = float(torch.linalg.vector_norm((point - x).flatten(), NORMS[made.norm]))
        if float(logits[labels] - logits[rival]) <= 2 * own + 1e-7 and (best is None or away < best):
            best = away
    return best


class _Program:
    """Variables: the pixels, every ReLU's outputs, a switch for each unstable one, in l1 each pixel's move; rows low <=
    A v <= high.

    y = max(z, 0) with l <= z <= u: y >= z, y <= z - l (1 - s), y <= u s, s in {0, 1}.
    """

    def __init__(self, graph: Graph, known: Known):
        self.graph, self.known = graph, known
        self.image = known.ball.x.flatten().numpy()
        self.pixels = len(self.image)
        pixels = known.intervals[0]
        self.low, self.high = [pixels.lower.flatten().numpy()], [pixels.upper.flatten().numpy()]
        self.integer: list[np.ndarray] = [np.zeros(self.pixels, dtype=bool)]
        self.starts, self.columns = {0: 0}, self.pixels
        self.rows: list[Row] = []
        self.switches: list[tuple[int, int, np.ndarray]] = []  # first column, the step before the ReLU, its units
        for index, step in enumerate(graph.steps):
            if isinstance(step.layer, Relu):
                self._units(index, step.sources[0])
        self._distance()

    def _new(self, low: np.ndarray, high: np.ndarray, integer: bool = False) -> int:
        start = self.columns
        self.low.append(low)
        self.high.append(high)
        self.integer.append(np.full(len(low), integer))
        self.columns += len(low)
        return start

    def row(self, rows: dict[int, Tensor]) -> tuple[np.ndarray, float]:
        """One row of steps' values as a row of the variables there are, and its constant."""
        (coefficients,), (constant,) = self._rows(rows)
        return coefficients, constant

    def _rows(self, rows: dict[int, Tensor]) -> tuple[np.ndarray, np.ndarray]:
        ended, constant = propagate_backward(self.graph, rows, None, {}, stop=True)
        made = np.zeros((len(constant), self.columns))
        for index, part in ended.items():
            flat = part.flatten(1).numpy()
            made[:, self.starts[index] : self.starts[index] + flat.shape[1]] += flat
        return made, constant.numpy()

    def _units(self, index: int, source: int) -> None:
        before, shape = self.known.intervals[source], self.graph.steps[source].shape
        low, high = before.lower.flatten().numpy(), before.upper.flatten().numpy()
        inputs, offsets = self._rows({source: torch.eye(len(low), dtype=torch.float64).reshape(-1, *shape)})
        self.starts[index] = out = self._new(low.clip(min=0), high.clip(min=0))
        unstable = np.flatnonzero((low < 0) & (high > 0))
        switch = self._new(np.zeros(len(unstable)), np.ones(len(unstable)), integer=True)
        self.switches.append((switch, source, unstable))
        for unit in np.flatnonzero(high > 0):
            places = np.flatnonzero(inputs[unit])
            coefficients, offset = -inputs[unit][places], offsets[unit]
            if low[unit] >= 0:
                self._add([*places, out + unit], [*coefficients, 1.0], offset, offset)
                continue
            chosen = switch + int(np.searchsorted(unstable, unit))
            self._add([*places, out + unit], [*coefficients, 1.0], offset, math.inf)
            self._add([*places, out + unit, chosen], [*coefficients, 1.0, -low[unit]], -math.inf, offset - low[unit])
            self._add([out + unit, chosen], [1.0, -high[unit]], -math.inf, 0.0)

    def _distance(self) -> None:
        """In linf the pixels' intervals are the ball; in l1 the sum of their moves is bounded."""
        if self.known.ball.norm == "linf":
            return
        moving = np.flatnonzero(self.high[0] > self.low[0])
        first = self.moves = self._new(np.zeros(len(moving)), np.full(len(moving), math.inf))
        for number, pixel in enumerate(moving):
            self._add([pixel, first + number], [-1.0, 1.0], -self.image[pixel], math.inf)
            self._add([pixel, first + number], [1.0, 1.0], self.image[pixel], math.inf)
        self._add(np.arange(first, self.columns), np.ones(len(moving)), 0.0, float(self.known.ball.radius))

    def _add(self, columns: Any, values: Any, low: float, high: float) -> None:
        self.rows.append((np.asarray(columns, dtype=np.int32), np.asarray(values, dtype=np.float64), low, high))

    def solve(self, goal: np.ndarray, most: float, seconds: float) -> np.ndarray | float | None:
        """The solver's point (pixels,) of the ball where goal . v <= most; infinite where there is none, None where it
        has no answer in time."""
        cost = np.zeros(self.columns)
        cost[: len(goal)] = goal
        ended, values = minimise(
            cost,
            np.concatenate(self.low),
            np.concatenate(self.high),
            [*self.rows, _at_most(goal, most)],
            np.concatenate(self.integer).tolist(),
            time_limit=max(0.1, seconds),
            objective_target=most,
            mip_rel_gap=0.0,
            small_matrix_value=1e-12,
            **TOLERANCES,
        )
        if ended == "kInfeasible":
            return math.inf
        return values[: self.pixels].clip(self.low[0], self.high[0]) if len(values) else None

    def nearest(self, goal: np.ndarray, most: float, point: np.ndarray) -> np.ndarray | None:
        """The point (pixels,) of the ball with goal . v <= most that is nearest to the image among those where every
        unit is on or off as at ``point``: a linear program. None where the solver has none."""
        low, high, rows = np.concatenate(self.low), np.concatenate(self.high), [*self.rows, _at_most(goal, most)]
        values = self.graph.values(torch.from_numpy(point).reshape(self.known.ball.x.shape))
        for first, source, units in self.switches:
            on = values[source].flatten().numpy()[units] > 0
            low[first : first + len(units)] = high[first : first + len(units)] = on
        cost = np.zeros(self.columns)
        if self.known.ball.norm == "linf":  # one more column: the largest move
            low, high, cost = np.append(low, 0.0), np.append(high, math.inf), np.append(cost, 1.0)
            columns = [np.array([pixel, self.columns], dtype=np.int32) for pixel in range(self.pixels)]
            for sign in (1.0, -1.0):
                factors = np.array([sign, 1.0])
                rows += [(pair, factors, sign * at, math.inf) for pair, at in zip(columns, self.image, strict=True)]
        else:
            cost[self.moves :] = 1.0
        ended, found = minimise(cost, low, high, rows, **TOLERANCES)
        return found[: self.pixels].clip(self.low[0], self.high[0]) if ended == "kOptimal" else None


def _at_most(goal: np.ndarray, most: float) -> Row:
    """goal . v <= most."""
    places = np.flatnonzero(goal)
    return places.astype(np.int32), goal[places], -math.inf, most


# The solver HiGHS, an optional dependency.


def minimise(
    cost: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    rows: Sequence[Row],
    integer: Sequence[bool] | None = None,
    **options: Any,
) -> tuple[str, np.ndarray]:
    """Minimise cost . v over low <= v <= high, all (N,), and the constraints ``rows``; entries marked in ``integer``
    are integers. Returns the status of HiGHS and v, empty without a solution."""
    highspy = optional("highspy", "exact distances need the solver HiGHS: pip install 'almakit[exact]'.")
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = len(cost), len(rows)
    program.col_cost_, program.col_lower_, program.col_upper_ = cost, low, high
    program.row_lower_, program.row_upper_ = np.array([row[2] for row in rows]), np.array([row[3] for row in rows])
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.concatenate([[0], np.cumsum([len(row[0]) for row in rows])]).astype(np.int32)
    program.a_matrix_.index_ = np.concatenate([row[0] for row in rows]).astype(np.int32)
    program.a_matrix_.value_ = np.concatenate([row[1] for row in rows])
    if integer is not None:
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        program.integrality_ = [kinds[int(whole)] for whole in integer]
    solver = highspy.Highs()
    for option, value in {"output_flag": False, "threads": 1, **options}.items():
        solver.setOptionValue(option, value)
    solver.passModel(program)
    solver.run()
    return str(solver.getModelStatus().name), np.array(solver.getSolution().col_value)
