"""C&W against its algorithm in a plain loop, its counts, and distances other than l2."""

from __future__ import annotations

import pytest
import torch
from attacks.small_problem import LABELS, MODEL, X, traced
from laws.models import RowWise
from torch import Tensor

from almakit import attacks
from almakit.attacks.cw import CW


def by_the_book(image: Tensor, label: int, c: float, steps: int, rate: float) -> float:
    """One search for one image (1, ...) with torch's own Adam and autograd all the way; the smallest l2 seen."""
    w = torch.atanh((2 * image - 1) * (1 - 1e-6)).requires_grad_(True)
    adam = torch.optim.Adam([w], lr=rate)
    best = float("inf")
    for _ in range(steps):
        point = (torch.tanh(w) + 1) / 2
        logits = MODEL(point)[0]
        margin = logits[label] - torch.cat([logits[:label], logits[label + 1 :]]).max()
        size = (point - image).square().sum()
        if float(margin.detach()) < 0:
            best = min(best, float(size.detach().sqrt()))
        adam.zero_grad()
        (size + c * margin.clamp_min(0)).backward()
        adam.step()
    return best


@pytest.mark.parametrize("c", [0.5, 5.0])
def test_one_search_is_the_algorithm(c: float) -> None:
    result = CW(steps=120, searches=1, rate=0.02, weight=c, abort_early=False)(MODEL, X, LABELS)
    for row in range(3):
        expected = by_the_book(X[row : row + 1], int(LABELS[row]), c, 120, 0.02)
        assert float(result.distances[row]) == pytest.approx(expected, rel=1e-3)


def test_images_that_stand_still_stop_and_others_do_not() -> None:
    attack = CW(steps=200, searches=6, rate=0.02)
    early, full = attack(MODEL, X, LABELS), CW(steps=200, searches=6, rate=0.02, abort_early=False)(MODEL, X, LABELS)
    assert bool((early.forwards < full.forwards).all()) and len(set(early.forwards.tolist())) > 1
    assert bool((early.distances <= 1.02 * full.distances).all())


def test_the_weight_is_searched_for_each_image() -> None:
    _, notes = traced(CW(steps=40, searches=5, rate=0.02, weight=0.001, abort_early=False))
    weights = torch.stack([note["weight"] for note in notes if note["step"] == 1])
    # Ten times the weight after a failure, half of it after a success.
    assert bool((weights[0] == 0.001).all()) and set(weights[1].tolist()) == {0.01, 0.0005}
    assert len(set(weights[-1].tolist())) > 1


def test_it_minimises_the_distance_it_is_given() -> None:
    def l4(x: Tensor, y: Tensor) -> Tensor:
        return ((y - x) ** 4).flatten(1).sum(1).clamp_min(1e-30) ** 0.25

    settings = {"steps": 300, "searches": 6, "rate": 0.02, "weight": 0.1}
    own, other = CW(distance=l4, **settings)(MODEL, X, LABELS), CW(**settings)(MODEL, X, LABELS)
    assert own.success_rate == 1 and bool((own.distances <= l4(X, other.adversarials) * 1.01).all())
    assert bool((own.distances < 0.97 * l4(X, other.adversarials)).any())


@pytest.mark.parametrize("distance", ["ciede2000", "ssim"])
def test_perceptual_distances(distance: str) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(3, 3, 12, 12, generator=generator)
    weight = torch.randn(4, 432, generator=generator)

    def model(y: Tensor) -> Tensor:
        return (y - 0.5).flatten(1) @ weight.T

    start = {
        "ciede2000": {"steps": 60, "searches": 4, "weight": 10.0},
        "ssim": {"steps": 150, "searches": 8, "weight": 1e-4, "rate": 0.003},
    }
    result = CW(distance=distance, **start[distance])(model, x, model(x).argmax(1))
    l2 = CW(steps=60, searches=4, weight=0.1)(model, x, model(x).argmax(1))
    assert result.success_rate == 1
    assert bool((result.distances < CW(distance=distance).measure(x, l2.adversarials)).all())


@pytest.mark.parametrize(
    "text",
    [
        "cw(steps=1000, searches=4)",
        "cw(distance=linf, steps=1000, searches=5)",
        "cw(distance=l1, steps=1000, searches=5)",
    ],
)
def test_binary_images_do_not_read_as_robust(text: str) -> None:
    """All values lie where tanh is flat: the loss stands still long before anything was tried."""
    model = RowWise((1, 8, 8)).eval()
    x = (torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0)) > 0.5).float()
    labels = model(x).argmax(1)
    result = attacks.get(text)(model, x, labels)
    assert result.success_rate == 1
    if "searches=4" in text:
        whole = attacks.get(text.replace(")", ", abort_early=false)"))(model, x, labels)
        assert bool((result.distances <= 1.01 * whole.distances).all()) and int(result.forwards.sum()) < int(
            whole.forwards.sum()
        )


def test_grey_images_stop_as_before() -> None:
    """Saturation is measured, not guessed: an image with values inside the box is not held back."""
    model = RowWise((1, 8, 8)).eval()
    x = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert int(attacks.get("cw(steps=200)")(model, x, model(x).argmax(1)).forwards.max()) < 9 * 200
