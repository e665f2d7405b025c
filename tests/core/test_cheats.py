"""Attacks that try to cheat: each fails while it tries, or is caught by the check that ends every call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from laws.models import RowWise
from torch import Tensor, nn

from almakit import registry
from almakit.core import Attack, Box, Problem, Result, Status
from almakit.errors import AlmakitError

SHAPE = (2, 3)
X = torch.rand(4, *SHAPE, generator=torch.Generator().manual_seed(0))
Cheat = Callable[[Problem], Any]


@dataclass(frozen=True)
class Cheater(Attack):
    """Takes five honest steps down the margin, then does what ``cheat`` does, then asks about the clean image once
    more."""

    cheat: Any = None

    def run(self, problem: Problem) -> None:
        point = problem.x
        for _ in range(5):
            query = problem.query(point)
            point = query.point - 0.3 * query.gradient(problem.goal.margin(query.logits)).sign()
        self.cheat(problem)
        problem.query(problem.x, grad=False)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cheater may be registered like any other attack."""
    monkeypatch.setitem(registry.BUILT_IN["attacks"], "cheater", f"{__name__}:Cheater")


def call(cheat: Cheat, model: nn.Module | None = None, **options: Any) -> tuple[nn.Module, Result]:
    model = RowWise(SHAPE).eval() if model is None else model
    with torch.no_grad():
        labels = model(X).argmax(1)
    return model, registry.get("attacks", "cheater")(cheat=cheat)(model, X, labels, **options)


def honest() -> Result:
    return call(lambda problem: None)[1]


def test_the_honest_part_finds_something() -> None:
    """Otherwise nothing is tested below."""
    assert bool((honest().status == Status.SUCCESS).all())


@pytest.mark.parametrize("name", ["best_point", "found"])
def test_writes_into_what_is_read_change_nothing(name: str) -> None:
    result, expected = call(lambda problem: getattr(problem, name).zero_())[1], honest()
    for field in ("adversarials", "distances", "forwards", "backwards", "status"):
        assert torch.equal(getattr(result, field), getattr(expected, field)), field


def test_what_a_query_returned_is_not_what_is_remembered() -> None:
    def scribble(problem: Problem) -> None:
        query = problem.query(problem.best_point)
        for values in (query.point, query.distance, query.margin, query.success, query.logits.detach(), query.values):
            values.zero_()

    plain, result = call(lambda problem: problem.query(problem.best_point))[1], call(scribble)[1]
    assert torch.equal(result.adversarials, plain.adversarials) and torch.equal(result.distances, plain.distances)


def all_lost(result: Result, reason: str) -> None:
    assert (
        bool((result.status == Status.FAILED).all())
        and torch.equal(result.adversarials, X)
        and bool(torch.isinf(result.distances).all())
    )
    assert all(reason in str(each) for each in result.reasons)


def test_moving_the_clean_images_shortens_no_distance() -> None:
    """The images an attack is given are its own copies: it can spoil its distances, and the check measures from the
    caller's."""

    def nearer(problem: Problem) -> None:
        far = problem.best_point
        problem.x.copy_(far)
        problem.query(far, grad=False)

    all_lost(call(nearer)[1], "another distance")


def test_another_goal_is_not_the_callers() -> None:
    def easier(problem: Problem) -> None:
        problem.goal.labels.add_(1).remainder_(5)
        problem.query((problem.x + 1e-3).clamp(0, 1), grad=False)

    all_lost(call(easier)[1], "does not reach the goal")


def test_distances_are_measured_again() -> None:
    all_lost(call(lambda problem: problem.best_distance.mul_(0.5))[1], "another distance")


def test_points_are_queried_again() -> None:
    def outside(problem: Problem) -> None:
        problem._point.copy_(problem.x)
        problem._distance.zero_()

    all_lost(call(outside)[1], "does not reach the goal")


def test_a_replaced_query_is_not_believed() -> None:
    """An attack that puts its own query in the place of the problem's says what it likes; the check does not."""

    def replaced(problem: Problem) -> None:
        def liar(candidate: Tensor, **options: Any) -> Any:
            query = original(candidate, **options)
            query.success = torch.ones_like(query.success)
            problem._remember(query, False)
            return query

        original = problem.query
        problem.query = liar  # type: ignore[method-assign]
        problem.query((problem.x + 1e-3).clamp(0, 1), grad=False)

    all_lost(call(replaced)[1], "does not reach the goal")


def test_a_point_outside_the_box_is_brought_in_or_caught() -> None:
    def beyond(problem: Problem) -> None:
        seen = problem.query(problem.x + 7 * (problem.best_point - problem.x)).point
        assert bool(problem.box.contains(seen, problem.x).all())
        problem._point.add_(7 * (problem.best_point - problem.x))
        problem._distance.copy_((problem._point - problem.x).flatten(1).norm(dim=1))

    result = call(beyond)[1]
    assert bool((result.status == Status.FAILED).any()) and bool(Box().contains(result.adversarials, X).all())
    assert all(reason is None or "box" in reason or "does not reach" in reason for reason in result.reasons)


def test_zeroed_counts_do_not_agree_with_the_model() -> None:
    def forget(problem: Problem) -> None:
        problem.counts.forwards = 0

    with pytest.raises(AlmakitError, match="not counted"):
        call(forget)


def test_another_goal_in_the_place_of_the_callers_is_not_judged_by() -> None:
    def easier(problem: Problem) -> None:
        problem.goal = type(problem.goal)((problem.goal.classes + 1) % 5, reference=torch.ones(len(problem)))
        problem.query((problem.x + 1e-3).clamp(0, 1), grad=False)

    all_lost(call(easier)[1], "does not reach the goal")


def test_asking_the_oracle_is_noticed() -> None:
    with pytest.raises(AlmakitError, match="asked the model about 3 images past the problem"):
        call(lambda problem: problem.oracle(problem.x[:3]))


def test_a_spent_budget_stays_spent() -> None:
    def more(problem: Problem) -> None:
        for _ in range(50):
            problem.recall(torch.ones(len(problem), dtype=torch.bool))
            problem.recheck_full_precision((1.0, 1.1))
            problem.query(problem.x, grad=False)

    result = call(more, budget=9)[1]
    assert int(result.forwards.max()) <= 9


def test_a_success_that_depends_on_the_batch_is_none() -> None:
    """A model that answers differently in another batch: what it said during the attack does not hold in the fresh
    pass."""

    class Moody(RowWise):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            logits: Tensor = super().forward(x)
            return logits if self.calls <= 4 or len(x) < len(X) else logits.flip(1)

    result = call(lambda problem: None, Moody(SHAPE).eval())[1]
    assert bool((result.status == Status.FAILED).any()) and any(
        "fresh pass" in str(reason) for reason in result.reasons
    )
