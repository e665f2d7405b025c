"""Square and HopSkipJump: forwards alone, on models without gradients, by scores and by decisions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from laws.models import Counted, RowWise
from laws.samples import Sample
from torch import Tensor, nn

import almakit
from almakit import attacks, registry
from almakit.attacks.square import HALVED_AT, Square, bump
from almakit.core import Box, Result
from almakit.errors import AlmakitError
from almakit.models.preflight import REMEDIES

TEXTS = [
    "square(distance=linf, epsilon=0.3, steps=60)",
    "square(distance=l2, epsilon=2, steps=60)",
    "search(attack=square(distance=linf, steps=30), halvings=6)",
    "hopskipjump(distance=l2, steps=150)",
    "hopskipjump(distance=linf, steps=150)",
]
each_text = pytest.mark.parametrize("text", TEXTS)


def problem(batch: int = 5) -> tuple[RowWise, Tensor, Tensor]:
    return Sample(TEXTS[0]).problem(batch)


def in_numpy(model: RowWise) -> object:
    """The same network in numpy, as a model of another library would be: it cannot be gone back through."""
    first, second = model.first.detach().numpy(), model.second.detach().numpy()

    def scores(x: Tensor) -> np.ndarray:
        hidden = (x.numpy().reshape(len(x), -1) - 0.5) @ first.T
        return (hidden / (1 + np.abs(hidden))) @ second.T

    return scores


def decision(model: RowWise) -> object:
    """Nothing but the class, as one-hot rows."""
    return lambda x: nn.functional.one_hot(model(x).argmax(1), 5).to(x.dtype)


@each_text
def test_models_without_gradients_are_attacked(text: str) -> None:
    model, x, labels = problem()
    result = attacks.get(text)(in_numpy(model), x, labels)
    assert result.success_rate > 0.7, result
    with torch.no_grad():
        assert bool((model(result.adversarials[result.success]).argmax(1) != labels[result.success]).all())
    assert int(result.backwards.max()) == 0 and int(result.forwards.max()) > 1


@each_text
def test_no_backward_is_made_and_no_call_waits(text: str) -> None:
    model, x, labels = problem()
    counted = Counted(model)
    result = attacks.get(text)(model, x, labels, check=False)
    assert counted.backwards == 0 and counted.forwards == int(result.forwards.sum())
    if not text.startswith("search"):  # whose images wait for each other's radius
        assert counted.calls <= 1.1 * int(result.forwards.max())


def test_hopskipjump_needs_decisions_alone() -> None:
    model, x, labels = problem()
    attack = almakit.HopSkipJump(steps=150)
    scores, hard = attack(model, x, labels), attack(decision(model), x, labels)
    # Scores that differ by less than their rounding are no decision yet, one-hot rows always are.
    assert torch.allclose(scores.distances, hard.distances, rtol=0.05) and torch.equal(scores.forwards, hard.forwards)


@pytest.mark.parametrize("kind", [in_numpy, decision], ids=["numpy", "argmax"])
@pytest.mark.parametrize("text", ["ddn(steps=5)", "soft-walk(steps=20)"])
def test_attacks_that_need_gradients_name_those_that_do_not(text: str, kind: object) -> None:
    model, x, labels = problem()
    named = [name for name in registry.names("attacks") if not _needs_gradients(name)]
    assert named == ["square", "hopskipjump"]
    with pytest.raises(AlmakitError, match=r"carry no gradient.* square .* hopskipjump"):
        attacks.get(text)(kind(model), x, labels)  # type: ignore[operator]
    for finding in ("non-differentiable", "zero-gradient"):
        assert all(name in REMEDIES[finding] for name in named)


def _needs_gradients(name: str) -> bool:
    kind = registry.get("attacks", name)
    return bool(kind.needs_gradients(kind()) if name not in ("search", "ensemble") else True)


def test_parts_decide_whether_gradients_are_needed() -> None:
    square, ddn = attacks.get("square(distance=l2, epsilon=1)"), attacks.get("ddn")
    assert not almakit.Ensemble(attacks=(square, attacks.get("hopskipjump"))).needs_gradients()
    assert almakit.Ensemble(attacks=(square, ddn)).needs_gradients()
    assert not attacks.get("search(attack=square)").needs_gradients()
    assert attacks.get("search(attack=apgd)").needs_gradients()


def test_any_goal_is_served() -> None:
    model, x, labels = problem()
    goal = almakit.goals.top_k(k=2)
    for text in TEXTS:
        result = attacks.get(text)(in_numpy(model), x, labels, goal=goal)
        with torch.no_grad():
            first = model(result.adversarials).topk(2).indices
        assert bool((first != labels.unsqueeze(1)).all(1)[result.success].all()) and bool(result.success.any()), text


def test_a_table_and_a_model_of_numpy() -> None:
    """Rows of four features with ranges and whole numbers of their own."""
    weight = np.array([[1.0, -0.02, 0.5, 0.0], [-1.0, 0.02, -0.5, 0.3]])
    x = torch.tensor([[1.0, 30.0, 2.0, 1.0], [0.5, 20.0, 1.0, 0.0]], dtype=torch.float64)
    box = Box(lo=torch.tensor([0.0, 18, 0, 0]), hi=torch.tensor([2.0, 90, 5, 1]), step=torch.tensor([0.0, 1, 1, 1]))
    labels = torch.from_numpy((x.numpy() @ weight.T).argmax(1))
    for text in ("hopskipjump(steps=200)", "square(distance=l2, epsilon=40, steps=200)"):
        result = attacks.get(text)(lambda rows: rows.numpy() @ weight.T, x, labels, box=box)
        assert result.success_rate == 1 and bool(box.around(x).contains(result.adversarials, x).all()), text
        assert torch.equal(result.adversarials[:, 1:], result.adversarials[:, 1:].round())


@pytest.mark.parametrize("distance", ["l2", "linf"])
def test_square_stays_in_the_ball_and_on_the_grid(distance: str) -> None:
    model, x, labels = Sample(TEXTS[0]).problem(bits=8)
    epsilon = 0.05 if distance == "linf" else 0.3
    seen: list[Tensor] = []
    attack = Square(distance=distance, epsilon=epsilon, steps=40)
    attack(model, x, labels, box=Box(bits=8), trace=lambda row: seen.append(row["distance"]))
    assert len(seen) > 5 and float(torch.cat(seen).max()) <= epsilon * (1 + 1e-6)


def test_squares_shrink_as_published() -> None:
    """p is halved after 10, 50, 200, 500, 1000, 2000, 4000, 6000 and 8000 of 10000 queries."""
    assert [round(10_000 * part) for part in HALVED_AT] == [10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000]
    image = torch.zeros(1, 3, 32, 32)
    assert Square()._window(image, 0.25) == (16, 16) and Square()._window(image, 1e-9) == (1, 1)
    assert Square(distance="l2")._window(image, 1e-9) == (3, 3)
    assert Square()._window(torch.zeros(1, 1, 1, 40), 0.25) == (1, 10)


def test_the_bump_is_the_papers() -> None:
    """Two pyramids of rings 1 + 1/4 + ..., the second turned down."""
    shape = bump(6, 3)
    assert torch.allclose(shape[:3], -shape[3:]) and float(shape.square().sum()) == pytest.approx(1)
    assert float(shape[1, 1] / shape[0, 0]) == pytest.approx((1 + 1 / 4) / (1 / 4))


def test_start_tries_that_find_nothing_end_in_a_reason() -> None:
    x, labels = torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(0)), torch.zeros(2, dtype=torch.long)
    always = lambda images: torch.tensor([[1.0, 0.0]]).expand(len(images), 2)  # noqa: E731
    result = almakit.HopSkipJump(steps=100, start_tries=12)(always, x, labels)
    assert result.success_rate == 0 and result.forwards.tolist() == [13, 13]
    assert result.reasons == ["no adversarial point was found within the budget"] * 2


@pytest.mark.parametrize("steps", [1, 2, 12])
def test_hopskipjump_keeps_to_its_queries(steps: int) -> None:
    model, x, labels = problem()
    result: Result = almakit.HopSkipJump(steps=steps)(model, x, labels)
    assert int(result.forwards.max()) <= steps
