"""Random models: means over passes, votes of fresh passes, each image's own random numbers, and exact probabilities."""

from __future__ import annotations

import math
import statistics

import pytest
import torch
from torch import Tensor, nn

import almakit
from almakit import EOT
from almakit.core.oracle import image_seed, seeded
from almakit.errors import BadInput
from almakit.wilson import wilson

NOISE = 0.3


class Shaken(nn.Module):
    """Two classes: z = (0, w.x - b + NOISE e) with e standard normal for every image and pass."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.6, -0.8, 0.0, 0.0]))
        self.calls: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append(len(x))
        score = x @ self.weight - 0.1 + NOISE * torch.randn(len(x))
        return torch.stack([torch.zeros_like(score), score], 1)


def points(count: int = 4) -> Tensor:
    return 0.2 * torch.rand(count, 4, generator=torch.Generator().manual_seed(0)) + torch.tensor([0.0, 0.7, 0.4, 0.4])


def test_wilson_is_the_root_of_its_equation() -> None:
    for reached, passes in ((0, 10), (3, 10), (50, 100), (100, 100)):
        for end in wilson(reached / passes, passes):
            if 0 < end < 1:
                gap = abs(reached / passes - end)
                assert gap == pytest.approx(1.959964 * math.sqrt(end * (1 - end) / passes), rel=1e-6)
    assert wilson(0, 10)[0] == 0 and wilson(1, 10)[1] == 1 and 0 < wilson(0, 10)[1] < 0.3


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_random_linear_model_needs_what_its_noise_says(share: float) -> None:
    """P(class 1 at y) = Phi((w.y - b) / NOISE): the nearest point with P >= s is (b + NOISE z_s - w.x) / |w| away."""
    model, x, labels = Shaken(), points(), torch.zeros(4, dtype=torch.long)
    result = almakit.attack(model, x, labels, steps=40, eot=EOT(32, 400, share), box=almakit.Box(-2, 2))
    assert bool(result.success.all()) and result.shares is not None
    score = (x @ model.weight - 0.1).detach()
    best = NOISE * statistics.NormalDist().inv_cdf(share) - score
    reached = (result.adversarials @ model.weight - 0.1).detach() / NOISE
    true = torch.tensor([statistics.NormalDist().cdf(float(value)) for value in reached])
    for seen, probability in zip(result.shares.tolist(), true.tolist(), strict=True):
        low, high = wilson(seen, 400)
        assert low >= share or seen == 1
        assert low - 0.03 <= probability <= high + 0.03  # 95 % intervals, and some room for four of them
    assert bool((true >= share - 0.02).all())
    assert bool((result.distances >= 0.97 * best).all()) and bool((result.distances <= 2.2 * best).all())


def test_passes_are_counted_and_the_company_does_not_matter() -> None:
    model, x, labels = Shaken(), points(5), torch.zeros(5, dtype=torch.long)
    attack = almakit.DDN(steps=10)
    whole = attack(model, x, labels, eot=EOT(7, 50), box=almakit.Box(-2, 2), seed=3)
    assert sum(model.calls) == int(whole.forwards.sum()) + whole.probes
    assert bool((whole.forwards % 7 == 0).all()) and bool((whole.backwards % 7 == 0).all())
    part = attack(model, x[[4, 1]], labels[:2], eot=EOT(7, 50), box=almakit.Box(-2, 2), seed=3, batch_size=1)
    assert torch.equal(part.adversarials, whole.adversarials[[4, 1]]) and part.shares is not None
    assert whole.shares is not None and torch.equal(part.shares, whole.shares[[4, 1]])
    other = attack(model, x, labels, eot=EOT(7, 50), box=almakit.Box(-2, 2), seed=4)
    assert not torch.equal(other.adversarials, whole.adversarials)
    capped = attack(model, x, labels, eot=EOT(7, 50), box=almakit.Box(-2, 2), budget=40)
    assert int(capped.forwards.max()) <= 40 and int(capped.backwards.max()) <= 40


def test_the_callers_random_numbers_stay_his() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    almakit.DDN(steps=3)(Shaken(), points(2), [0, 0], eot=EOT(2, 5), box=almakit.Box(-2, 2))
    assert torch.equal(torch.rand(3), expected)


def test_an_image_that_is_wrong_often_enough_needs_no_attack() -> None:
    x = points(2)
    x[0] = torch.tensor([1.0, 0.0, 0.0, 0.0])
    result = almakit.DDN(steps=5)(Shaken(), x, [0, 0], eot=EOT(4, 60), box=almakit.Box(-2, 2))
    assert result.status.tolist()[0] == 0 and float(result.distances[0]) == 0 and result.shares is not None
    assert float(result.shares[0]) > 0.8 and int(result.forwards[0]) == 4


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"eot": 0}, "eot=0: how many passes"),
        ({"eot": 2.5}, "eot=2.5"),
        ({"eot": (2, True)}, "votes=True"),
        ({"eot": (2, 100, 0)}, "share=0: the part of the votes"),
        ({"eot": 20, "budget": 10}, "with eot=20 a query takes 20 passes"),
    ],
)
def test_wrong_settings_are_sentences(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        if isinstance(settings := options["eot"], tuple):
            options = {"eot": EOT(*settings)}
        almakit.DDN(steps=3)(Shaken(), points(2), [0, 0], box=almakit.Box(-2, 2), **options)  # type: ignore[arg-type]


def test_numbers_of_a_purpose_come_from_image_and_seed_alone() -> None:
    image = torch.rand(3, generator=torch.Generator().manual_seed(0))

    def drawn(seed: int, purpose: str, point: Tensor) -> Tensor:
        with seeded(image_seed(seed, point, purpose), point.device):
            return torch.rand(2)

    first = drawn(1, "a", image)
    assert torch.equal(first, drawn(1, "a", image.clone()))
    for seed, purpose, point in ((2, "a", image), (1, "b", image), (1, "a", image + 1e-3)):
        assert not torch.equal(first, drawn(seed, purpose, point))
