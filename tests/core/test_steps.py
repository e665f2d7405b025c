"""First steps that always end, decays, and random numbers that belong to an image."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from almakit.core.random import ImageRandom
from almakit.optim.steps import cosine_decay, exponential_decay, first_step
from almakit.tensors import per_image


def search(
    x: Tensor, gradient: Tensor, epsilon: float, distance: Callable[[Tensor], Tensor] | None = None
) -> tuple[Tensor, int]:
    """The step sizes, and how many distances were asked for."""
    calls = 0

    def after(eta: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        moved = (x - per_image(eta, x) * gradient).clamp(0, 1)
        return (moved - x).flatten(1).norm(dim=1) if distance is None else distance(moved)

    return first_step(after, gradient, epsilon, 1.0), calls


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_first_step_has_the_length_asked_for(scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x = 0.3 + 0.4 * torch.rand(5, 12, generator=generator)
    gradient = scale * torch.randn(5, 12, generator=generator)
    eta, calls = search(x, gradient, 0.1)
    reached = ((x - eta[:, None] * gradient).clamp(0, 1) - x).norm(dim=1)
    assert torch.allclose(reached, torch.full((5,), 0.1), rtol=1e-4) and calls <= 51


@pytest.mark.parametrize("case", ["out of reach", "zero gradient", "nan distance", "one pixel", "one bad row"])
def test_the_search_always_ends(case: str) -> None:
    x, gradient, epsilon, distance = torch.full((3, 4), 0.5), torch.ones(3, 4), 0.1, None
    if case == "out of reach":
        epsilon = 100.0
    elif case == "zero gradient":
        gradient = torch.zeros(3, 4)
    elif case == "nan distance":

        def distance(moved: Tensor) -> Tensor:
            return torch.full((len(moved),), float("nan"))
    elif case == "one pixel":
        gradient = torch.zeros(3, 4)
        gradient[:, 2] = 1e-20
        epsilon = 0.7
    else:
        gradient[1] = 0
    eta, calls = search(x, gradient, epsilon, distance)
    assert calls <= 51 and bool(torch.isfinite(eta).all()) and bool((eta > 0).all())
    if case in ("out of reach", "one pixel"):
        # Everything that can move has moved.
        moved = (x - eta[:, None] * gradient).clamp(0, 1)
        assert torch.equal(moved[gradient > 0], torch.zeros_like(moved[gradient > 0]))
    if case == "one bad row":
        alone, _ = search(x[:1], gradient[:1], epsilon)
        assert torch.equal(eta[:1], alone)


def test_exponential_decay_starts_late_and_ends_at_the_floor() -> None:
    start = torch.tensor([0.0, 10.0, 100.0])
    assert exponential_decay(5, start, 100).tolist() == pytest.approx([0.01**0.05, 1.0, 1.0])
    assert exponential_decay(100, start, 100).tolist() == pytest.approx([0.01, 0.01, 1.0])
    assert exponential_decay(55, start, 100, 0.25).tolist() == pytest.approx([0.25**0.55, 0.5, 1.0])


def test_exponential_decay_rounds_alike_anywhere_in_a_batch() -> None:
    start = torch.arange(999.0)
    for step in range(0, 1000, 37):
        whole = exponential_decay(step, start, 1000)
        shifted = exponential_decay(step, start[3:], 1000)
        assert torch.equal(whole[3:], shifted)


def test_cosine_decay() -> None:
    assert [cosine_decay(step, 10) for step in (0, 5, 10, 20)] == pytest.approx([1.0, 0.505, 0.01, 0.01])
    assert cosine_decay(0, 0, 3.0, 1.0) == pytest.approx(3.0)


def test_random_numbers_belong_to_the_image() -> None:
    x = torch.rand(4, 2, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 3])
    whole = ImageRandom(7, x, labels)
    first, second = whole.normal(), whole.uniform()
    order = torch.tensor([2, 0])
    part = ImageRandom(7, x[order], labels[order])
    assert torch.equal(part.normal(), first[order]) and torch.equal(part.uniform(), second[order])
    assert float(second.min()) >= 0 and float(second.max()) < 1
    assert not torch.equal(ImageRandom(8, x, labels).normal(), first), "the seed matters"
    assert not torch.equal(ImageRandom(7, x, labels + 1).normal(), first), "the label matters"
    assert len({tuple(row.tolist()) for row in first.flatten(1)}) == 4, "each image has its own"


def test_rows_that_do_not_draw_lose_nothing() -> None:
    x, labels = torch.rand(3, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 0, 0])
    plain = ImageRandom(0, x, labels)
    first, second = plain.normal(), plain.normal()
    random = ImageRandom(0, x, labels)
    only = random.normal([1])
    assert torch.equal(only[1], first[1]) and not bool(only[[0, 2]].any())
    everyone = random.normal()
    assert torch.equal(everyone[[0, 2]], first[[0, 2]]) and torch.equal(everyone[1], second[1])


@pytest.mark.parametrize("drawn_before", [False, True])
def test_a_part_shares_the_generators(drawn_before: bool) -> None:
    x, labels = torch.rand(3, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 0, 0])
    plain, random = ImageRandom(0, x, labels), ImageRandom(0, x, labels)
    if drawn_before:
        plain.normal(), random.normal()
    expected = [plain.normal(), plain.normal()]
    part = random.take(torch.tensor([2, 1]))
    assert torch.equal(part.normal(), expected[0][[2, 1]])
    later = random.normal()
    assert torch.equal(later[0], expected[0][0]) and torch.equal(later[1:], expected[1][1:])


def test_global_randomness_is_not_touched() -> None:
    before = torch.random.get_rng_state()
    ImageRandom(0, torch.rand(2, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1])).normal()
    assert torch.equal(torch.random.get_rng_state(), before)
