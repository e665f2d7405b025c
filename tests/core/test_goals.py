"""Goals: the sign of the margin is the argmax decision, and the paper's constraints have their range and their
fallbacks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from almakit.core import ClassGoal
from almakit.goals.classes import TopK

logit_rows = st.integers(2, 7).flatmap(
    lambda classes: st.lists(
        st.lists(st.floats(-1e4, 1e4, width=32), min_size=classes, max_size=classes), min_size=1, max_size=4
    )
)


def rows(values: list[list[float]]) -> tuple[Tensor, Tensor]:
    """Logits (B, K) and classes (B,) that differ from row to row."""
    logits = torch.tensor(values)
    return logits, torch.arange(len(logits)) % logits.shape[1]


@given(logit_rows)
@settings(max_examples=200, deadline=None)
def test_sign_of_the_margin_is_the_decision(values: list[list[float]]) -> None:
    logits, classes = rows(values)
    top = logits.amax(1)
    own = logits.gather(1, classes[:, None])[:, 0]
    alone = (logits == top[:, None]).sum(1) == 1
    untargeted = ClassGoal(classes).margin(logits)
    assert torch.equal(untargeted < 0, own < top)
    assert bool((logits.argmax(1) != classes)[untargeted < 0].all())
    targeted = ClassGoal((classes + 1) % logits.shape[1], classes).margin(logits)
    assert torch.equal(targeted < 0, (own == top) & alone)
    assert bool((logits.argmax(1) == classes)[targeted < 0].all())


@given(logit_rows, st.floats(0.001, 10))
@settings(max_examples=100, deadline=None)
def test_confidence_is_the_lead_demanded(values: list[list[float]], confidence: float) -> None:
    logits, classes = (rows(values)[0].double(), rows(values)[1])
    plain, sure = ClassGoal(classes).margin(logits), ClassGoal(classes, confidence=confidence).margin(logits)
    assert torch.allclose(sure - plain, torch.full_like(plain, confidence), atol=1e-9)
    targets = (classes + 1) % logits.shape[1]
    plain, sure = (
        ClassGoal(classes, targets).margin(logits),
        ClassGoal(classes, targets, confidence=confidence).margin(logits),
    )
    assert torch.allclose(sure - plain, torch.full_like(plain, confidence), atol=1e-9)


@given(st.lists(st.lists(st.floats(-100, 100, allow_subnormal=False), min_size=5, max_size=5), min_size=1, max_size=4))
@settings(max_examples=200, deadline=None)
def test_dlr_plus_lies_between_minus_one_and_one_for_ranks_in_the_top_three(values: list[list[float]]) -> None:
    logits = torch.tensor(values, dtype=torch.float64)
    order = logits.argsort(1, descending=True)
    spread = logits.sort(1, descending=True).values
    for rank in (0, 1, 2):
        usable = spread[:, 0] - spread[:, 2] > 1e-9
        value = ClassGoal(order[:, rank]).constraint(logits)[usable]
        assert bool(((value >= -1) & (value <= 1)).all())
        assert torch.equal(
            value <= 0,
            (spread[usable, rank] - torch.where(torch.tensor(rank == 0), spread[usable, 1], spread[usable, 0])) <= 0,
        )


def test_dlr_plus_is_the_papers_formula() -> None:
    logits = torch.tensor([[5.0, 3.0, 1.0, -2.0], [0.0, 4.0, 1.0, 2.0]])
    # Row 0, label 0: (5 - 3)/(5 - 1); row 1, label 0: (0 - 4)/(4 - 1).
    assert torch.allclose(ClassGoal(torch.tensor([0, 0])).constraint(logits), torch.tensor([0.5, -4 / 3]))
    # tDLR+: row 0, target 1: (5 - 3)/(5 - (1 - 2)/2); row 1, target 1: (2 - 4)/(4 - (1 + 0)/2).
    goal = ClassGoal(torch.tensor([0, 0]), torch.tensor([1, 1]))
    assert torch.allclose(goal.constraint(logits), torch.tensor([2 / 5.5, -2 / 3.5]))
    # A shift and a positive factor change nothing: that is what the denominator is for.
    assert torch.allclose(goal.constraint(7 * logits + 3), goal.constraint(logits))


@pytest.mark.parametrize(("classes", "targeted"), [(2, False), (2, True), (3, True)])
def test_too_few_classes_fall_back_to_the_margin_over_a_safe_scale(classes: int, targeted: bool) -> None:
    clean = torch.randn(6, classes, generator=torch.Generator().manual_seed(0))
    labels = clean.argmax(1)
    targets = (labels + 1) % classes if targeted else None
    reference = ClassGoal(labels, targets).margin(clean).abs()
    goal = ClassGoal(labels, targets, reference=reference)
    assert torch.allclose(goal.constraint(clean), torch.full((6,), 0.5))
    moved = torch.randn(6, classes, generator=torch.Generator().manual_seed(1)).requires_grad_(True)
    value = goal.constraint(moved)
    assert torch.equal(value < 0, goal.margin(moved) < 0)
    (slope,) = torch.autograd.grad(value.sum(), moved)
    assert bool(torch.isfinite(slope).all()) and bool((slope != 0).any(1).all())
    # A tie on the clean image has no scale of its own: the logits give one, and where they are zero it is 1.
    tied = ClassGoal(labels, targets, reference=torch.zeros(6))
    assert bool((tied.scale(moved) >= 1e-4 * moved.detach().abs().amax(1)).all())
    assert torch.equal(tied.scale(torch.zeros(6, classes)), torch.ones(6))


def test_three_classes_need_no_fallback_untargeted() -> None:
    assert torch.allclose(ClassGoal(torch.tensor([0])).constraint(torch.tensor([[3.0, 2.0, 1.0]])), torch.tensor([0.5]))


def test_tolerance_follows_the_precision_and_the_logits() -> None:
    goal, logits = ClassGoal(torch.tensor([0])), torch.tensor([[10.0, -10.0, 0.0]])
    sizes = [
        float(goal.tolerance(logits, dtype)) for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    ]
    assert sizes == sorted(sizes) and sizes[0] > 0
    assert float(goal.tolerance(10 * logits, torch.float32)) == pytest.approx(10 * sizes[1])
    assert sizes[1] < 1e-3 * 20


def test_constraint_counts_the_tolerance_in_both_kinds_of_goal() -> None:
    logits = torch.tensor([[1.0, 1.0, 0.0, 0.0]])
    for goal in (ClassGoal(torch.tensor([0])), ClassGoal(torch.tensor([1]), torch.tensor([0]))):
        assert float(goal.constraint(logits)) == 0
        assert float(goal.constraint(logits, torch.tensor([0.1]))) > 0


def test_soft_margin_tends_to_the_margin() -> None:
    logits = torch.randn(5, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 3, 4])
    for goal in (ClassGoal(labels, confidence=0.3), ClassGoal(labels, labels + 1)):
        gaps = [
            (goal.soft_margin(logits, torch.full((5,), t, dtype=torch.float64)) - goal.margin(logits)).abs().max()
            for t in (1, 0.1, 0.001)
        ]
        assert gaps[0] > gaps[1] > gaps[2] and gaps[2] < 1e-3


def test_take_keeps_rows_together() -> None:
    goal = ClassGoal(torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0]), 0.5, torch.tensor([1.0, 2.0, 3.0]))
    part = goal.take(torch.tensor([2, 0, 2]))
    assert part.labels.tolist() == [2, 0, 2] and part.targets is not None and part.targets.tolist() == [0, 1, 0]
    assert part.reference is not None and part.reference.tolist() == [3.0, 1.0, 3.0] and part.confidence == 0.5
    assert part.classes.tolist() == [0, 1, 0] and part.targeted


@pytest.mark.parametrize("targeted", [False, True], ids=["untargeted", "targeted"])
@pytest.mark.parametrize("count", [2, 3, 4, 10])
def test_the_closed_form_slope_of_the_constraint_is_autograds(count: int, targeted: bool) -> None:
    generator = torch.Generator().manual_seed(count)
    logits, labels = torch.randn(60, count, generator=generator), torch.randint(0, count, (60,), generator=generator)
    logits[0] *= 1e-6
    logits[1] = 5.0 + 2e-6 * torch.randperm(count, generator=generator)  # a scale that is raised to its floor, no ties
    goal = ClassGoal(
        labels, (labels + 1) % count if targeted else None, reference=torch.rand(60, generator=generator) + 0.1
    )
    leaf, tolerance = logits.clone().requires_grad_(True), goal.tolerance(logits, torch.float32)
    expected = goal.constraint(leaf, tolerance)
    (slope,) = torch.autograd.grad(expected.sum(), leaf)
    d, ours = goal.constraint_and_slope(logits, goal.margin(logits), tolerance)
    assert torch.equal(d, expected.detach()) and torch.equal(ours, slope)


@pytest.mark.parametrize("targeted", [False, True], ids=["untargeted", "targeted"])
@pytest.mark.parametrize("soft", [False, True], ids=["margin", "soft margin"])
def test_the_closed_form_slope_of_the_margin_is_autograds(soft: bool, targeted: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(60, 5, generator=generator), torch.randint(0, 5, (60,), generator=generator)
    logits[0] += 1e4  # what all have in common changes nothing
    goal = ClassGoal(labels, (labels + 1) % 5 if targeted else None)
    temperature = torch.rand(60, generator=generator) + 0.1 if soft else None
    leaf = logits.clone().requires_grad_(True)
    value = goal.margin(leaf) if temperature is None else goal.soft_margin(leaf, temperature)
    (expected,) = torch.autograd.grad(value.sum(), leaf)
    ours = goal.margin_slope(logits, temperature)
    assert ours is not None and torch.allclose(ours, expected, atol=1e-6)


def test_a_subclass_with_a_margin_of_its_own_has_no_closed_form() -> None:
    assert TopK(torch.tensor([0]), k=2).margin_slope(torch.randn(1, 5)) is None
