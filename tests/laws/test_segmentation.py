"""Laws 1 to 3 for attacks on segmentation models, whose labels are maps."""

from __future__ import annotations

import pytest
import torch
from laws.models import Counted
from torch import Tensor, nn

from almakit import attacks
from almakit.core import Box, Result, Status

ATTACK = "alma-prox(steps=60, rate=0.01, share=0.9)"


class Pixelwise(nn.Module):
    """Logits (B, 4, H, W) from each pixel and its left neighbour, as products and sums: rows never touch."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.own = nn.Parameter(torch.randn(4, 3, generator=generator) * 3)
        self.left = nn.Parameter(torch.randn(4, 3, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - 0.5
        beside = torch.roll(centred, 1, dims=3)
        return (centred.unsqueeze(1) * self.own[:, :, None, None]).sum(2) + (
            beside.unsqueeze(1) * self.left[:, :, None, None]
        ).sum(2)


def scene(batch: int = 4) -> tuple[Pixelwise, Tensor, Tensor]:
    model = Pixelwise()
    x = torch.rand(batch, 3, 5, 6, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return model, x, model(x).argmax(1)


def run(*arguments: object, **options: object) -> Result:
    return attacks.get(ATTACK)(*arguments, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("targeted", [False, True])
def test_enough_pixels_are_wrong_on_a_fresh_forward(targeted: bool) -> None:
    model, x, labels = scene()
    targets = model(x).argsort(1, descending=True)[:, 1] if targeted else None
    result = run(model, x, labels, targets)
    with torch.no_grad():
        maps = torch.cat([model(image[None]).argmax(1) for image in result.adversarials])
    share = ((maps == targets) if targeted else (maps != labels)).flatten(1).double().mean(1)
    assert bool((result.status == Status.SUCCESS).all()) and bool((share >= 0.9).all())
    assert torch.allclose(result.distances, (result.adversarials - x).abs().flatten(1).amax(1)) and bool(
        Box().contains(result.adversarials, x).all()
    )


def test_an_image_takes_no_notice_of_its_batch() -> None:
    model, x, labels = scene(5)
    whole = run(model, x, labels)
    for rows in ([2], [4, 0], [3, 1, 2, 0, 4]):
        part = run(model, x[rows], labels[rows])
        for field in ("status", "forwards", "backwards", "distances", "adversarials"):
            assert torch.equal(getattr(whole, field)[rows], getattr(part, field)), field


def test_counts_are_what_hooks_count_and_budgets_hold() -> None:
    model, x, labels = scene()
    counted = Counted(model)
    result = run(model, x, labels)
    counted.remove()
    assert counted.forwards == int(result.forwards.sum()) + result.probes and counted.backwards == int(
        result.backwards.sum()
    )
    for budget in (1, 5, 17):
        held = run(model, x, labels, budget=budget)
        assert int(held.forwards.max()) <= budget and int(held.backwards.max()) <= budget


def test_callers_need_not_switch_gradients_on() -> None:
    model, x, labels = scene(2)
    plain = run(model, x, labels)
    with torch.no_grad():
        inside = run(model, x, labels)
    assert torch.equal(plain.adversarials, inside.adversarials)


def test_few_classes_and_more_images_than_columns() -> None:
    """Scales are per pixel: a batch of another size than the maps must not be mixed up with their columns."""
    model, x, _ = scene(6)

    def two(images: Tensor) -> Tensor:
        return model(images)[:, :2]

    labels = two(x).argmax(1)
    result = attacks.get(ATTACK)(two, x, labels)
    assert result.success_rate == 1
    assert torch.equal(attacks.get(ATTACK)(two, x[:1], labels[:1]).adversarials, result.adversarials[:1])
