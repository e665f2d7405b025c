"""The model as an attack uses it: its precision, its device, its surroundings."""

from __future__ import annotations

import pytest
import torch
from laws.models import RowWise
from torch import Tensor, nn

from almakit import ALMA, Box, Status, attacks
from almakit.core.oracle import Oracle, borrowed


def network(seed: int = 0) -> nn.Sequential:
    torch_state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 32), nn.Tanh(), nn.Linear(32, 5))
    torch.random.set_rng_state(torch_state)
    return model


X = torch.rand(6, 3, 4, 4, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("model_dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("image_dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_any_precision_of_model_and_images(model_dtype: torch.dtype, image_dtype: torch.dtype) -> None:
    model = network().to(model_dtype)
    x = X.to(image_dtype)
    with torch.no_grad():
        labels = model(x.to(model_dtype)).argmax(1)
    result = ALMA(steps=60)(model, x, labels)
    assert result.adversarials.dtype == (torch.float64 if image_dtype == torch.float64 else torch.float32)
    assert result.distances.dtype == result.adversarials.dtype
    with torch.no_grad():
        fooled = torch.cat([model(image[None].to(model_dtype)).argmax(1) for image in result.adversarials]) != labels
    assert result.success_rate == 1 and bool(fooled.all())
    assert model[1].weight.dtype == model_dtype


@pytest.mark.parametrize("budget", [None, 40])
def test_autocast_keeps_the_decision_in_full_precision(budget: int | None) -> None:
    model = network()
    seen: list[torch.dtype] = []
    model[3].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    with torch.no_grad():
        labels = model(X).argmax(1)
    seen.clear()
    result = ALMA(steps=40)(model, X, labels, autocast=torch.bfloat16, budget=budget)
    assert torch.bfloat16 in seen and torch.float32 in seen, "attacked in bfloat16, judged in float32"
    with torch.no_grad():
        fooled = torch.cat([model(image[None]).argmax(1) for image in result.adversarials]) != labels
    assert result.success_rate == 1 and bool(fooled.all())
    assert bool((result.forwards <= (budget or 45)).all())
    assert torch.allclose(result.distances, (result.adversarials - X).flatten(1).norm(dim=1), rtol=1e-5)
    exact = ALMA(steps=40)(model, X, labels)
    # The margin demanded in bfloat16 is 1.6 % of the logits' spread, and that costs some distance.
    assert float((result.distances / exact.distances).median()) < 1.2


def test_borrowed_models_come_back_after_an_exception() -> None:
    model = network().train()
    model[1].eval()
    model[3].bias.requires_grad_(False)
    with pytest.raises(KeyError), borrowed(model):
        assert not any(module.training for module in model.modules())
        assert not any(parameter.requires_grad for parameter in model.parameters())
        raise KeyError
    assert [module.training for module in model.modules()] == [True, True, False, True, True]
    assert [parameter.requires_grad for parameter in model.parameters()] == [True, True, True, False]


@pytest.mark.parametrize("surroundings", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference_mode"])
def test_callers_need_not_switch_gradients_on(surroundings: type) -> None:
    model = RowWise((3, 4, 4)).eval()
    with torch.no_grad():
        labels = model(X).argmax(1)
    plain = ALMA(steps=20)(model, X, labels)
    with surroundings():
        inside = ALMA(steps=20)(model, X * 1.0, labels * 1)
    assert torch.equal(inside.adversarials, plain.adversarials) and plain.success_rate == 1


def test_images_that_require_gradients_are_left_alone() -> None:
    model = RowWise((3, 4, 4)).eval()
    x = X.clone().requires_grad_(True)
    result = ALMA(steps=5)(model, x, model(X).argmax(1))
    assert x.grad is None and x.requires_grad and not result.adversarials.requires_grad


def test_the_default_dtype_of_the_caller_does_not_matter() -> None:
    model = RowWise((3, 4, 4)).eval()
    labels = model(X).argmax(1)
    plain = ALMA(steps=20)(model, X, labels)
    torch.set_default_dtype(torch.float64)
    try:
        other = ALMA(steps=20)(model, X, labels)
    finally:
        torch.set_default_dtype(torch.float32)
    assert other.distances.dtype == torch.float32 and torch.equal(other.adversarials, plain.adversarials)


def test_strided_images_and_other_memory_formats() -> None:
    model = RowWise((3, 4, 4)).eval()
    labels = model(X).argmax(1)
    plain = ALMA(steps=10)(model, X, labels)
    last = X.contiguous(memory_format=torch.channels_last)
    assert torch.allclose(ALMA(steps=10)(model, last, labels).distances, plain.distances, rtol=1e-4)
    stepped = torch.stack([X, X], 1).flatten(0, 1)[::2]
    assert torch.equal(ALMA(steps=10)(model, stepped, labels).adversarials, plain.adversarials)


def test_a_plain_function_gets_the_images_precision() -> None:
    seen: set[torch.dtype] = set()

    def model(x: Tensor) -> Tensor:
        seen.add(x.dtype)
        return x.flatten(1)[:, :4]

    ALMA(steps=3)(model, X.double(), model(X.double()).argmax(1))
    assert seen == {torch.float64} and Oracle(model, torch.float64).precision == torch.float64


def test_labels_may_be_lists_and_small_integers() -> None:
    model = RowWise((3, 4, 4)).eval()
    labels = model(X).argmax(1)
    plain = ALMA(steps=10)(model, X, labels)
    for form in (labels.tolist(), tuple(labels.tolist()), labels.numpy(), labels.to(torch.uint8), labels.int()):
        assert torch.equal(ALMA(steps=10)(model, X, form).adversarials, plain.adversarials)


def test_a_box_of_ones_own() -> None:
    model = RowWise((3, 4, 4)).eval()

    def shifted(x: Tensor) -> Tensor:
        return model((x + 1) / 2)

    x = X * 2 - 1
    labels = shifted(x).argmax(1)
    for box in (Box(-1, 1), Box(-1, 1, bits=8)):
        result = ALMA(steps=60)(shifted, x, labels, box=box)
        assert bool((result.status == Status.SUCCESS).all()) and bool(box.contains(result.adversarials, x).all())
        assert float(result.adversarials.min()) >= -1 and float(result.adversarials.max()) <= 1


def test_autocast_leaves_a_fixed_radius_fixed() -> None:
    model = network()
    with torch.no_grad():
        labels = model(X).argmax(1)
    result = attacks.get("pgd(distance=l2, epsilon=0.2, steps=10)")(model, X, labels, autocast=torch.bfloat16)
    assert bool((result.distances[result.success] <= 0.2 * (1 + 1e-5)).all()) and bool(result.success.any())
