"""The outer loop of penalty attacks: the search on the weight and the stop of images that stand still, each image by
itself."""

from __future__ import annotations

import torch

from almakit.optim.penalties import WeightSearch
from almakit.optim.steps import Stagnation

X = torch.zeros(3, 4)


def test_the_weight_grows_tenfold_then_halves_its_bracket() -> None:
    search = WeightSearch(X, 0.001)
    # Image 0 succeeds from 1 on, image 1 from 0.5 on, image 2 never.
    threshold = torch.tensor([1.0, 0.5, float("inf")])
    seen = []
    for _ in range(9):
        seen.append(search.weight.clone())
        search.update(search.weight >= threshold)
    weights = torch.stack(seen)
    assert torch.allclose(weights[:4, 0], torch.tensor([0.001, 0.01, 0.1, 1.0]))
    assert torch.allclose(weights[4:6, 1], torch.tensor([0.55, 0.325]))
    assert torch.allclose(weights[:, 2], 0.001 * 10.0 ** torch.arange(9))
    assert torch.allclose(search.upper[:2], threshold[:2], rtol=0.1) and bool((search.lower[:2] < threshold[:2]).all())


def test_a_weight_that_never_succeeds_stays_finite_and_the_best_can_be_repeated() -> None:
    search = WeightSearch(X, 1.0)
    for _ in range(60):
        search.update(torch.tensor([False, False, True]))
    assert float(search.weight[0]) == 1e10
    search.update(torch.tensor([False, False, True]), repeat_best=True)
    assert float(search.weight[2]) == float(search.upper[2])


def test_progress_compares_the_best_loss_between_checks() -> None:
    progress = Stagnation(X, every=2)
    losses = torch.tensor(
        [
            [5.0, 5.0, 5.0],
            [4.0, 6.0, 5.0],
            [9.0, 5.0, 4.9],  # check: image 0 was better in between, image 1 never, image 2 is
            [4.0, 1.0, 4.9],
            [4.0, 9.0, 4.9],  # check: only image 1 has improved since
        ]
    )
    answers = [progress.stalled(step, loss) for step, loss in enumerate(losses)]
    assert answers[1] is None and answers[3] is None
    assert answers[0] is not None and not bool(answers[0].any())
    assert answers[2] is not None and answers[2].tolist() == [False, True, False]
    assert answers[4] is not None and answers[4].tolist() == [True, False, True]


def test_a_loss_that_is_nowhere_finite_counts_as_standing_still() -> None:
    progress = Stagnation(X, every=1)
    infinite = torch.full((3,), float("inf"))
    progress.stalled(0, torch.ones(3))
    stalled = progress.stalled(1, infinite)
    assert stalled is not None and bool(stalled.all())
