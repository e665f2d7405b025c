"""The problem: what it counts, what it sends, what it remembers, when it stops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from laws.models import Counted, RowWise
from torch import Tensor

from almakit.core import Box, ClassGoal, Exhausted, Problem
from almakit.core.oracle import Oracle
from almakit.core.problem import Limits
from almakit.core.random import ImageRandom
from almakit.distances.base import resolve
from almakit.errors import BadModel

SHAPE = (2, 3)


def make(
    batch: int = 4,
    budget: int | None = None,
    model: Callable[[Tensor], Tensor] | None = None,
    box: Box | None = None,
    labels: Tensor | None = None,
    trace: Callable[[dict[str, Any]], None] | None = None,
) -> Problem:
    """A problem on a fixed small network, past its clean pass."""
    network = RowWise(SHAPE).eval() if model is None else model
    x = torch.rand(batch, *SHAPE, generator=torch.Generator().manual_seed(0))
    oracle = Oracle(network, x.dtype)
    leaf = x.clone().requires_grad_(True)
    logits = oracle(leaf)
    labels = logits.detach().argmax(1) if labels is None else labels
    goal = ClassGoal(labels, reference=torch.ones(batch))
    problem = Problem(
        oracle, x, goal, resolve("l2").bind(x), box or Box(), ImageRandom(0, x, labels), Limits(budget), trace
    )
    problem.begin(leaf, logits, torch.arange(batch))
    return problem


def rising(x: Tensor) -> Tensor:
    """Two classes; class 1 wins where the mean of the image is above one half."""
    mean = x.flatten(1).mean(1)
    return torch.stack([torch.full_like(mean, 0.5) + 0 * mean, mean], 1)


class Recorder:
    """A model that notes the sizes of the batches it gets."""

    def __init__(self, inner: Callable[[Tensor], Tensor]):
        self.inner, self.sizes = inner, []  # type: Callable[[Tensor], Tensor], list[int]

    def __call__(self, x: Tensor) -> Tensor:
        self.sizes.append(len(x))
        return self.inner(x)


def test_counts_with_repeated_images() -> None:
    problem = make()
    images = torch.tensor([2, 0, 2, 2])
    query = problem.query(problem.x[images] + 0.01, images=images)
    assert problem.forwards.tolist() == [2, 1, 4, 1]
    query.gradient(problem.goal.take(images).margin(query.logits))
    assert problem.backwards.tolist() == [1, 0, 3, 0]
    problem.query(problem.x, grad=False)
    assert problem.forwards.tolist() == [3, 2, 5, 2] and problem.backwards.tolist() == [1, 0, 3, 0]


def test_each_backward_of_a_kept_graph_counts() -> None:
    problem = make()
    query = problem.query(problem.x)
    for column in range(3):
        query.gradient(query.logits[:, column], keep=True)
    assert problem.backwards.tolist() == [3] * 4


def test_the_clean_pass_is_counted_once_and_its_gradient_is_at_hand() -> None:
    model = RowWise(SHAPE).eval()
    problem = make(model=model)
    counted = Counted(model)
    query = problem.start(distance_grad=True)
    slope = query.gradient(problem.goal.margin(query.logits))
    assert problem.forwards.tolist() == [1] * 4 and problem.backwards.tolist() == [1] * 4 and counted.forwards == 0
    assert bool((slope != 0).any()) and query.distance_gradient is not None and not bool(query.distance_gradient.any())
    again = problem.start()
    assert problem.forwards.tolist() == [2] * 4 and counted.forwards == 4
    assert torch.equal(again.gradient(problem.goal.margin(again.logits)), slope)


def test_candidates_are_seen_inside_the_domain() -> None:
    seen: list[Tensor] = []

    def watch(x: Tensor) -> Tensor:
        seen.append(x.detach().clone())
        return rising(x)

    mask = torch.zeros(2, 3, dtype=torch.bool)
    mask[0, 1] = True
    problem = make(model=watch, box=Box(bits=8, mask=mask), labels=torch.zeros(4, dtype=torch.long))
    query = problem.query(problem.x + 3)
    assert torch.equal(seen[-1], query.point) and bool(problem.box.contains(query.point, problem.x).all())
    assert bool((query.point[:, 0, 1] == 1).all()) and torch.equal(query.point[:, 1], problem.x[:, 1])
    gradient = query.gradient(problem.goal.margin(query.logits))
    assert bool((gradient[:, 0, 1] != 0).all()) and not bool(gradient[:, 1].any())


@pytest.mark.parametrize("budget", [1, 2, 3, 5])
def test_a_budget_holds_with_repeats(budget: int) -> None:
    problem = make(budget=budget)
    images = torch.tensor([0, 0, 0, 1])
    with pytest.raises(Exhausted):
        for _ in range(20):
            query = problem.query(problem.x[images] + 0.01, images=images)
            query.gradient(problem.goal.take(images).margin(query.logits), keep=True)
            query.gradient(problem.goal.take(images).margin(query.logits), keep=True)
            problem.query(problem.x)
    assert int(problem.forwards.max()) == budget and int(problem.backwards.max()) <= budget


def test_one_images_spent_budget_does_not_end_the_others_work() -> None:
    problem = make(batch=2, budget=4)
    first, second = torch.tensor([0]), torch.tensor([1])
    for _ in range(5):
        query = problem.query(problem.x[first], images=first)
        query.gradient(problem.goal.take(first).margin(query.logits))
    assert problem.forwards.tolist() == [4, 1]
    query = problem.query(problem.x[second] + 0.1, images=second)
    assert bool(query.gradient(problem.goal.take(second).margin(query.logits)).any())
    assert problem.forwards.tolist() == [4, 2] and problem.backwards.tolist() == [3, 1]
    for _ in range(2):
        problem.query(problem.x)
    assert problem.forwards.tolist() == [4, 4]
    with pytest.raises(Exhausted):
        problem.query(problem.x)


def test_an_image_that_may_learn_no_gradient_is_finished() -> None:
    problem = make(batch=2, budget=3)
    query = problem.query(problem.x)
    one = torch.tensor([0])
    for _ in range(3):
        alone = problem.query(problem.x[one], images=one)
        alone.gradient(alone.logits[:, 0])
    both = query.gradient(problem.goal.margin(query.logits), keep=True)
    assert problem.backwards.tolist()[1] == 1 and problem.backwards.tolist()[0] <= 3
    assert bool(both[1].any())


def test_an_empty_question_is_no_pass() -> None:
    recorder = Recorder(rising)
    problem = make(model=recorder, labels=torch.zeros(4, dtype=torch.long))
    none = torch.zeros(0, dtype=torch.long)
    query = problem.query(problem.x[none], images=none)
    assert query.gradient(query.logits[:, 0]).shape == (0, *SHAPE) and recorder.sizes == [4]


def test_finished_images_are_not_sent_again() -> None:
    recorder = Recorder(rising)
    problem = make(model=recorder, labels=torch.zeros(4, dtype=torch.long))
    problem.release(torch.tensor([False, True, False, True]))
    query = problem.query(problem.x + 0.3)
    slope = query.gradient(problem.goal.margin(query.logits))
    assert (
        recorder.sizes == [4, 2]
        and problem.forwards.tolist() == [2, 1, 2, 1]
        and problem.backwards.tolist() == [1, 0, 1, 0]
    )
    assert not bool(slope[[1, 3]].any()) and bool(slope[0].any()) and bool(slope[2].any())
    assert problem.active.tolist() == [True, False, True, False] and not bool(query.success[[1, 3]].any())
    images = torch.tensor([1, 2, 1, 0])
    problem.query(problem.x[images], images=images)
    assert recorder.sizes == [4, 2, 2] and problem.forwards.tolist() == [3, 1, 3, 1]
    problem.release(torch.ones(4, dtype=torch.bool))
    with pytest.raises(Exhausted):
        problem.query(problem.x)
    problem.recall(torch.tensor([False, True, False, False]))
    problem.query(problem.x)
    assert problem.forwards.tolist() == [3, 2, 3, 1]


def test_rounds_begin_with_everyone_again() -> None:
    problem = make(model=rising, labels=torch.zeros(4, dtype=torch.long), budget=6)
    rounds = 0
    with pytest.raises(Exhausted):
        for _ in range(10):
            rounds += 1
            with problem.round():
                problem.query(problem.x)
                problem.release(torch.tensor([False, True, True, True]))
                for _ in range(rounds):
                    problem.query(problem.x)
                    if rounds == 1:
                        problem.release(torch.ones(4, dtype=torch.bool))
    # The clean pass, then each round one pass for all and further ones for the first image, until its budget is spent.
    assert problem.forwards.tolist() == [6, 6, 6, 6] and rounds > 3


def test_the_nearest_verified_point_is_kept() -> None:
    problem = make(batch=3, model=rising, labels=torch.zeros(3, dtype=torch.long))
    x = problem.x
    far, near, wrong = torch.full_like(x, 0.9), torch.full_like(x, 0.6), torch.full_like(x, 0.4)
    for candidate in (far, wrong, near, far):
        problem.query(candidate, grad=False)
    assert torch.equal(problem.best_point, near) and bool(problem.found.all())
    assert torch.allclose(problem.best_distance, (near - x).flatten(1).norm(dim=1))


def test_the_nearest_of_repeated_candidates_is_kept_and_the_first_of_equals() -> None:
    problem = make(batch=3, model=rising, labels=torch.zeros(3, dtype=torch.long))
    x = problem.x
    images = torch.tensor([1, 0, 1, 1, 0])
    candidates = torch.stack([torch.full(SHAPE, value) for value in (0.9, 0.3, 0.6, 0.7, 0.8)])
    problem.query(candidates, images=images)
    assert problem.found.tolist() == [True, True, False]
    assert torch.equal(problem.best_point[0], candidates[4]) and torch.equal(problem.best_point[1], candidates[2])
    assert torch.equal(problem.best_point[2], x[2]) and problem.best_distance[2] == float("inf")
    # Two mirror images of one candidate have the same distance from a symmetric image: the first stays.
    flat = make(batch=1, model=rising, labels=torch.zeros(1, dtype=torch.long))
    flat.x.fill_(0.45)
    one = torch.full(SHAPE, 0.45)
    left, right = one.clone(), one.clone()
    left[0, 0] = right[1, 2] = 1.0
    flat.query(torch.stack([left, right]), images=torch.tensor([0, 0]))
    assert torch.equal(flat.best_point[0], left)


def test_not_finite_logits_spoil_nothing() -> None:
    def fragile(x: Tensor) -> Tensor:
        logits = rising(x)
        top = x.flatten(1).amax(1, keepdim=True)
        return torch.where(top > 0.95, torch.full_like(logits, float("nan")), logits)

    problem = make(batch=2, model=fragile, labels=torch.zeros(2, dtype=torch.long))
    candidate = torch.stack([torch.full(SHAPE, 1.0), torch.full(SHAPE, 0.8)])
    query = problem.query(candidate, distance_grad=True)
    assert (
        query.valid.tolist() == [False, True]
        and query.success.tolist() == [False, True]
        and float(query.margin[0]) == float("inf")
    )
    gradient = query.gradient(problem.goal.constraint(query.logits))
    assert bool(torch.isfinite(gradient).all()) and bool(gradient[1].any())
    assert problem.broken.tolist() == [True, False] and problem.found.tolist() == [False, True]
    problem.query(torch.full_like(problem.x, 0.7))
    assert bool(problem.found.all())
    assert torch.equal(problem.midway(candidate)[0], (candidate[0] + problem.best_point[0]) / 2)


def test_escape_gives_only_stuck_rows_a_direction_of_their_own() -> None:
    mask = torch.zeros(2, 3, dtype=torch.bool)
    mask[1, 1] = True
    problem = make(box=Box(mask=mask))
    gradient = torch.zeros_like(problem.x)
    gradient[0, 1, 1] = 2.0
    moved = problem.replace_zero_gradients(gradient, torch.tensor([False, False, True, False]))
    assert torch.equal(moved[0], gradient[0]) and not bool(moved[2].any())
    assert torch.allclose(moved[[1, 3]].flatten(1).norm(dim=1), torch.ones(2)) and not bool(moved[:, ~mask].any())
    alone = make(box=Box(mask=mask))
    assert torch.equal(alone.replace_zero_gradients(gradient, torch.tensor([True, True, True, False]))[3], moved[3])


def test_a_model_without_gradients_is_a_sentence() -> None:
    problem = make(model=lambda x: rising(x.detach()), labels=torch.zeros(4, dtype=torch.long))
    query = problem.query(problem.x)
    with pytest.raises(BadModel, match="carry no gradient, and this attack needs one"):
        query.gradient(problem.goal.margin(query.logits))


def test_a_trace_gets_copies() -> None:
    notes: list[dict[str, Any]] = []
    problem = make(trace=notes.append)
    value = torch.ones(4)
    problem.record(3, value=value)
    value.zero_()
    assert notes[0]["step"] == 3 and notes[0]["value"].tolist() == [1.0] * 4
