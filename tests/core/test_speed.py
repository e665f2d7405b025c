"""What makes attacks fast must not change what they find: faster models, and steps that never wait for the device."""

from __future__ import annotations

import pytest
import torch
from laws.models import RowWise
from torch import Tensor, nn

from almakit import ALMA, attacks
from almakit.core.attack import default_batch_size
from almakit.optim.steps import first_step

SHAPE = (3, 6, 6)
X = torch.rand(9, *SHAPE, generator=torch.Generator().manual_seed(0))


def convolutional() -> nn.Sequential:
    state = torch.random.get_rng_state()
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 2), nn.Flatten(), nn.Linear(8, 4)
    ).eval()
    torch.random.set_rng_state(state)
    return model


def classes(model: nn.Module) -> Tensor:
    with torch.no_grad():
        return model(X).argmax(1)


# Models that the caller made faster.


@pytest.mark.parametrize("how", ["channels_last", "compile"])
def test_a_model_the_caller_made_faster_finds_the_same(how: str) -> None:
    model = convolutional()
    labels = classes(model)
    plain = ALMA(steps=10)(model, X, labels)
    faster = (
        torch.compile(model, backend="aot_eager") if how == "compile" else model.to(memory_format=torch.channels_last)
    )
    other = ALMA(steps=10)(faster, X, labels)
    assert torch.equal(other.success, plain.success) and bool(plain.success.any())
    assert float((other.distances / plain.distances).nan_to_num(1.0).sub(1).abs().median()) < 1e-3
    assert other.adversarials.is_contiguous()


def test_large_images_go_in_small_batches() -> None:
    assert default_batch_size(torch.empty(1, 1, 28, 28)) == 128
    assert default_batch_size(torch.empty(1, 3, 224, 224)) == 8
    assert default_batch_size(torch.empty(1, 3, 2000, 2000)) == 1


# Steps that never wait for the device.


@pytest.fixture
def without_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Problems that do as they do on a GPU."""
    monkeypatch.setenv("ALMAKIT_CHEAP_SYNC", "0")


@pytest.mark.parametrize(
    "text",
    [
        "alma(distance=l2, steps=15)",
        "ddn(steps=15)",
        "fmn(distance=linf, steps=15)",
        "apgd(distance=l2, epsilon=0.5, steps=15)",
    ],
)
def test_looking_or_not_gives_the_same_bits(text: str, request: pytest.FixtureRequest) -> None:
    model = RowWise(SHAPE).eval()
    labels = classes(model)
    looked = attacks.get(text)(model, X, labels)
    request.getfixturevalue("without_looking")
    blind = attacks.get(text)(model, X, labels)
    assert (
        torch.equal(looked.adversarials, blind.adversarials)
        and torch.equal(looked.distances, blind.distances)
        and bool(looked.success.any())
    )


def test_flat_models_are_left_without_looking(without_looking: None) -> None:
    def steps(x: Tensor) -> Tensor:
        """Flat almost everywhere: the class changes where the rounded sum does, and the gradient is zero."""
        total = (x.flatten(1) * 3).round().sum(1)
        return torch.stack([total * 0 + 50, total], 1) + 0 * x.flatten(1)[:, :2]

    x = torch.full((4, 1, 4, 4), 0.55)
    labels = steps(x).argmax(1)
    result = ALMA(steps=30, distance="l2")(steps, x, labels)
    again = ALMA(steps=30, distance="l2")(steps, x[[2, 0]], labels[[2, 0]])
    assert torch.equal(result.distances[[2, 0]], again.distances), "each image has noise of its own"


# Small pieces.


@pytest.mark.parametrize("wanted", [1e-7, 1e-3, 0.3, 4.0, 1e9])
def test_the_first_step_is_bracketed_as_by_doubling(wanted: float) -> None:
    slope = torch.tensor([[3.0], [1e-4], [2e5]])
    room = torch.tensor([2.0, 50.0, 2000.0])

    def after(eta: Tensor) -> Tensor:
        return torch.minimum(eta * slope[:, 0], room)

    found = first_step(after, slope, wanted, 1.0)
    largest = slope[:, 0]
    for row in range(3):
        if wanted < room[row] and 2.0**-20 <= wanted <= 2.0**10:
            assert float(after(found)[row]) == pytest.approx(wanted, rel=1e-5)
        elif wanted >= room[row]:
            assert float(found[row] * largest[row]) == pytest.approx(1024, rel=1e-5), (
                "out of reach: a thousand box widths"
            )
