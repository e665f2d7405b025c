"""The losses of fixed-radius attacks against their formulas."""

from __future__ import annotations

import pytest
import torch

from almakit.attacks.fixed_epsilon import ascent_loss, check_loss
from almakit.errors import BadInput
from almakit.goals.classes import ClassGoal

LOGITS = torch.tensor([[3.0, 1.0, 2.5, -1.0, 0.0], [0.0, 4.0, 1.0, 3.0, 2.0]], dtype=torch.float64)
LABELS = torch.tensor([0, 1])
GOAL = ClassGoal(LABELS, reference=torch.tensor([2.0, 4.0], dtype=torch.float64))


def test_the_formulas() -> None:
    assert torch.allclose(ascent_loss("margin", GOAL, LOGITS), torch.tensor([-0.5, -1.0], dtype=torch.float64))
    assert torch.allclose(ascent_loss("dlr", GOAL, LOGITS), torch.tensor([-0.5 / 2.0, -1.0 / 2.0], dtype=torch.float64))
    rivals = torch.tensor([1, 4])
    expected = torch.tensor([(1 - 3) / (3 - 0.5), (2 - 4) / (4 - 1.5)], dtype=torch.float64)
    assert torch.allclose(ascent_loss("targeted-dlr", GOAL, LOGITS, rivals), expected)
    assert torch.allclose(ascent_loss("ce", GOAL, LOGITS), -torch.log_softmax(LOGITS, 1)[[0, 1], LABELS])


def test_with_targets_every_loss_grows_towards_the_target() -> None:
    targets = torch.tensor([2, 3])
    goal = ClassGoal(LABELS, targets, reference=torch.ones(2, dtype=torch.float64))
    closer = LOGITS.scatter_add(1, targets[:, None], torch.full((2, 1), 0.3, dtype=torch.float64))
    for name in ("ce", "dlr", "margin", "targeted-dlr"):
        assert bool((ascent_loss(name, goal, closer) > ascent_loss(name, goal, LOGITS)).all()), name


@pytest.mark.parametrize("classes", [2, 3])
def test_few_classes_fall_back_to_the_clean_margin(classes: int) -> None:
    logits = LOGITS[:, :classes]
    expected = (logits[[0, 1], [1, 0]] - logits[[0, 1], LABELS]) / GOAL.reference  # type: ignore[operator]
    assert torch.allclose(ascent_loss("targeted-dlr", GOAL, logits, torch.tensor([1, 0])), expected)


def test_rivals_are_ranked_without_the_label() -> None:
    ways = GOAL.rivals(LOGITS)
    assert ways is not None and ways.tolist() == [[2, 1, 4, 3], [3, 4, 2, 0]]


def test_an_unknown_loss_is_answered_with_the_known_ones() -> None:
    with pytest.raises(BadInput, match="choose one of ce, dlr, margin, targeted-dlr"):
        check_loss("hinge")
