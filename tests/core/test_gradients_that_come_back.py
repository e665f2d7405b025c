"""Models that keep hold of what passes through them: they normalise in place, or their backward returns a tensor they
keep."""

from __future__ import annotations

import torch
from laws.samples import Sample, each_attack
from torch import Tensor

from almakit.core import Result
from almakit.distances.base import FunctionDistance
from almakit.models.preflight import preflight


class Squares(torch.autograd.Function):
    """x^2 / 2, whose gradient for the sum is x itself: the saved input goes back as it is."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x)
        return x.square().flatten(1).sum(1) / 2

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:  # type: ignore[no-untyped-def, override]
        (x,) = ctx.saved_tensors
        return x


def returns_its_saved_input(x: Tensor) -> Tensor:
    """Two classes that meet at |x|^2 = 24; the slope that comes back is always x, whatever is asked."""
    energy = Squares.apply(x)
    return torch.stack([energy, torch.full_like(energy, 12.0)], 1)


@each_attack
def test_a_backward_that_returns_its_saved_input(sample: Sample) -> None:
    x = torch.rand(4, *sample.shape, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        labels = returns_its_saved_input(x).argmax(1)
    kept = x.clone()
    result = sample.attack(returns_its_saved_input, x, labels)
    assert isinstance(result, Result) and torch.equal(x, kept)
    for value in (result.adversarials, result.distances):
        assert not value.requires_grad
    with torch.no_grad():
        reached = returns_its_saved_input(result.adversarials).argmax(1) != labels
    assert bool(reached[result.success].all())


class Buffered(torch.autograd.Function):
    """The identity, whose backward hands out one buffer again and again, as a recorded graph does."""

    buffer = torch.zeros(0)

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        return x.clone()

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:  # type: ignore[no-untyped-def, override]
        if Buffered.buffer.numel() < gradient.numel():
            Buffered.buffer = torch.zeros(4 * gradient.numel(), dtype=gradient.dtype)
        return Buffered.buffer[: gradient.numel()].view_as(gradient).copy_(gradient)


@each_attack
def test_a_backward_that_hands_out_one_buffer(sample: Sample) -> None:
    model, x, labels = sample.problem()
    plain, buffered = (
        sample.attack(model, x, labels),
        sample.attack(lambda images: model(Buffered.apply(images)), x, labels),
    )
    assert torch.equal(plain.adversarials, buffered.adversarials) and torch.equal(plain.backwards, buffered.backwards)


@each_attack
def test_a_model_that_normalises_in_place_leaves_the_images_alone(sample: Sample) -> None:
    model, x, labels = sample.problem()

    def in_place(images: Tensor) -> Tensor:
        return model(images.sub_(0.25).div_(0.5).mul_(0.5).add_(0.25))

    kept = x.clone()
    with torch.no_grad():
        labels = in_place(x.clone()).argmax(1)
    result = sample.attack(in_place, x, labels)
    assert torch.equal(x, kept)
    with torch.no_grad():
        fooled = in_place(result.adversarials.clone()).argmax(1) != labels
    assert bool(fooled[result.success].all()) and bool(result.success.any())


def test_the_determinism_probe_passes_a_copy() -> None:
    """A model may write where autograd does not look, too."""
    sample = Sample("ddn(steps=5)")
    model, x, labels = sample.problem()
    seen: list[int] = []

    def writes(images: Tensor) -> Tensor:
        answer = model(images.clone())
        seen.append(len(images))
        images.data.zero_()
        return answer

    kept, result = x.clone(), sample.attack(writes, x, labels)
    assert seen[:4] == [1, 1, 1, 6] and result.probes == 3 + 2 * int(result.success.sum()), (
        "three images alone, then the clean pass; successes again at the end"
    )
    assert torch.equal(x, kept) and torch.equal(result.adversarials, sample.attack(model, x, labels).adversarials)


def test_preflight_passes_copies() -> None:
    model, x, labels = Sample("ddn(steps=5)").problem(batch=12)
    kept = x.clone()
    found = preflight(lambda images: model(images.sub_(0.1).add_(0.1).mul_(2).div_(2)), x, labels)
    assert torch.equal(x, kept) and not [one for one in found.findings if one.severity == "refuse"]


def test_a_distance_whose_backward_returns_its_saved_input() -> None:
    bound = FunctionDistance(lambda x, y: Squares.apply(y - x)).bind(torch.zeros(2, 3))
    _, gradient = bound.value_and_grad(torch.rand(2, 3))
    assert not gradient.requires_grad
