"""Linear and integer programs for the solver HiGHS, which need not be installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import optional

Row = tuple[np.ndarray, np.ndarray, float, float]
"""A constraint: the columns it has, their factors, and the least and the most their sum may be."""


def minimise(
    cost: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    rows: Sequence[Row],
    integer: Sequence[bool] | None = None,
    **options: Any,
) -> tuple[str, np.ndarray]:
    """min cost . v over low <= v <= high, all (N,), and the constraints ``rows``; entries marked in ``integer`` are
    whole numbers. How it ended, as HiGHS calls it, and v, empty where there is none."""
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
