"""The four axioms of penalty-Lagrangian functions (section 3.1 of the paper), for every registered penalty."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from almakit import registry
from almakit.errors import UnknownName
from almakit.optim.penalties import Penalty

each_penalty = pytest.mark.parametrize(
    "penalty", [registry.get("penalties", name)() for name in registry.names("penalties")], ids=lambda p: p.name
)

constraints = st.floats(-50, 50, allow_nan=False)
off_zero = st.floats(0.01, 50)
weights = st.floats(1e-3, 1e3)
multipliers = st.floats(1e-6, 1e4)


def column(value: float) -> Tensor:
    return torch.tensor([value], dtype=torch.float64)


@each_penalty
@given(y=constraints, rho=weights, mu=multipliers)
@settings(max_examples=60, deadline=None)
def test_axiom_1_never_decreasing(penalty: Penalty, y: float, rho: float, mu: float) -> None:
    assert float(penalty.derivative(column(y), column(rho), column(mu))) >= 0


@each_penalty
@given(rho=weights, mu=multipliers)
@settings(max_examples=60, deadline=None)
def test_axiom_2_slope_at_zero_is_the_multiplier(penalty: Penalty, rho: float, mu: float) -> None:
    assert float(penalty.derivative(column(0.0), column(rho), column(mu))) == mu
    assert float(penalty.value(column(0.0), column(rho), column(mu))) == 0


@each_penalty
@given(y=off_zero, mu=multipliers)
@settings(max_examples=60, deadline=None)
def test_axiom_3_violation_costs_without_bound_as_rho_grows(penalty: Penalty, y: float, mu: float) -> None:
    slopes = [float(penalty.derivative(column(y), column(10.0**power), column(mu))) for power in range(-2, 15)]
    assert all(later > earlier for earlier, later in pairwise(slopes))
    # Without bound: beyond any level we name, here a thousand times the multiplier, and again a thousand times that.
    assert slopes[-1] > 1e6 * mu


@each_penalty
@given(y=off_zero, mu=multipliers)
@settings(max_examples=60, deadline=None)
def test_axiom_4_satisfied_constraints_cost_nothing_as_rho_grows(penalty: Penalty, y: float, mu: float) -> None:
    slopes = [float(penalty.derivative(column(-y), column(10.0**power), column(mu))) for power in range(-2, 15)]
    assert all(later <= earlier for earlier, later in pairwise(slopes))
    assert slopes[-1] < 1e-6 * mu


@each_penalty
@given(y=constraints, rho=weights, mu=multipliers)
@settings(max_examples=60, deadline=None)
def test_derivative_is_the_values(penalty: Penalty, y: float, rho: float, mu: float) -> None:
    leaf = column(y).requires_grad_(True)
    (slope,) = torch.autograd.grad(penalty.value(leaf, column(rho), column(mu)).sum(), leaf)
    # At zero and at -mu/rho two pieces meet; both slopes agree there.
    assert torch.allclose(slope, penalty.derivative(column(y), column(rho), column(mu)), rtol=1e-9, atol=1e-12)


@each_penalty
@given(rho=weights, mu=multipliers)
@settings(max_examples=30, deadline=None)
def test_value_is_continuous_where_pieces_meet(penalty: Penalty, rho: float, mu: float) -> None:
    for joint in (0.0, -mu / rho):
        step = 1e-9 * max(1.0, abs(joint))
        below = penalty.value(column(joint - step), column(rho), column(mu))
        above = penalty.value(column(joint + step), column(rho), column(mu))
        # No jump: not more than the slope can climb over that step.
        top = penalty.derivative(column(joint + step), column(rho), column(mu))
        assert float((above - below).abs()) <= float(top) * 2.1 * step + 1e-9 * float(above.abs() + below.abs())


def test_an_unknown_penalty_names_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="there is no penalty called 'p4'; did you mean p3"):
        registry.get("penalties", "p4")
