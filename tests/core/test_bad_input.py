"""Bad input is answered with a sentence that says what to do, before the model is called and with nothing half done."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from laws.models import RowWise
from torch import Tensor, nn

import almakit
from almakit import ALMA, Box, registry
from almakit.core import ClassGoal
from almakit.errors import AlmakitError, BadInput, BadModel, UnknownName

X = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2])


class Spy:
    """A model that must not be called, or counts its calls."""

    def __init__(self) -> None:
        self.inner, self.calls = RowWise((1, 4, 4)), 0

    def __call__(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.inner(x)


def spoilt(row: int, value: float) -> Tensor:
    x = X.clone()
    x[row, 0, 1, 2] = value
    return x


BEFORE_THE_MODEL: dict[str, tuple[dict[str, Any], str]] = {
    "0-255 images": (
        {"x": X * 255},
        r"image 0 has values in \[.*\], outside the box \[0, 1\]; this looks like 0-255 data: divide by 255",
    ),
    "normalised images": (
        {"x": spoilt(1, -0.5)},
        r"image 1 has values in \[-0.5, .*this looks like normalised data.*inside the model",
    ),
    "slightly above": ({"x": spoilt(2, 1.01)}, r"image 2 has values in .* 1.01\], outside the box"),
    "nan": ({"x": spoilt(1, float("nan"))}, "image 1 contains NaN or infinite values; remove or repair it"),
    "inf": ({"x": spoilt(2, float("inf"))}, "image 2 contains NaN or infinite values"),
    "bytes": (
        {"x": (X * 255).byte()},
        r"images are torch.uint8; convert to floats in \[0, 1\], e.g. x.float\(\) / 255",
    ),
    "complex": ({"x": X.to(torch.complex64)}, "images are torch.complex64; convert to floats"),
    "an object": ({"x": object()}, "data are a name, a pair|are no array of numbers"),
    "no batch": ({"x": X.flatten()}, r"images must have a batch dimension.*use x.unsqueeze\(0\)"),
    "no pixels": ({"x": X[:, :, :0]}, "have no pixels"),
    "float labels": ({"labels": LABELS.float()}, "labels are torch.float32; they must be integer class indices"),
    "one-hot labels": ({"labels": torch.eye(3)}, r"or .argmax\(1\) for one-hot rows"),
    "boolean labels": ({"labels": LABELS.bool()}, "labels are torch.bool; they must be integer"),
    "too few labels": ({"labels": LABELS[:2]}, r"labels have shape \(2,\); for 3 images they must have shape \(3,\)"),
    "labels of a wrong kind": ({"labels": "abc"}, "labels must be a tensor with a row for each image, not a str"),
    "negative label": (
        {"labels": torch.tensor([0, -1, 2])},
        "label -1 of image 1 is not a class; classes are counted from 0",
    ),
    "target equals label": (
        {"targets": torch.tensor([1, 2, 2])},
        r"the target of image 2 equals its label \(2\); choose another class for it, or leave such images out",
    ),
    "float targets": ({"targets": LABELS.float()}, "targets are torch.float32"),
    "too many targets": ({"targets": torch.zeros(4, dtype=torch.long)}, r"targets have shape \(4,\)"),
    "mask of a wrong shape": (
        {"box": Box(mask=torch.ones(5, 5, dtype=torch.bool))},
        r"the mask has shape \(5, 5\); it must be \(3, 1, 4, 4\) or \(1, 4, 4\)",
    ),
    "no budget": ({"budget": 0}, "budget=0: give a whole number, at least 1"),
    "half a budget": ({"budget": 2.5}, "budget=2.5: give a whole number"),
    "negative batch size": ({"batch_size": -1}, "batch_size=-1: give a whole number, at least 1"),
    **{
        f"confidence {lead!r}": (
            {"goal": ClassGoal(confidence=lead)},
            f"confidence={lead!r}: the required lead must be",
        )
        for lead in (-0.1, "1", float("inf"), float("nan"))
    },
    "images without values": (
        {"x": X.to("meta")},
        "the images are on the device meta, which holds shapes and no values",
    ),
}


@pytest.mark.parametrize("case", BEFORE_THE_MODEL)
def test_refused_before_the_model_is_called(case: str) -> None:
    change, sentence = BEFORE_THE_MODEL[case]
    spy = Spy()
    arguments: dict[str, Any] = {"x": X, "labels": LABELS, "steps": 5} | change
    with pytest.raises(BadInput, match=sentence):
        almakit.attack(spy, **arguments)
    assert spy.calls == 0


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"mask": [True, False]},
            r"the mask must be a boolean tensor, not a list; use torch.as_tensor\(mask, dtype=torch.bool\)",
        ),
        ({"mask": X[0].numpy() > 0.5}, "the mask must be a boolean tensor, not a ndarray"),
        ({"mask": X}, r"the mask must be boolean .* use mask.bool\(\)"),
        ({"lo": torch.zeros(3), "hi": torch.ones(5)}, "which do not go together"),
        ({"lo": torch.ones(1, 4, 4), "hi": torch.zeros(4)}, "the box needs lo <= hi for every value"),
        ({"lo": torch.tensor([0.0, float("nan")])}, "the box's lo holds values that are not finite"),
        ({"hi": torch.tensor([True, False])}, "the box's hi is a finite number for all values, or a tensor"),
        ({"lo": "0"}, "the box's lo is a finite number for all values, or a tensor with one for each, not '0'"),
        (
            {"hi": float("inf")},
            "the box's hi is a finite number for all values, or a tensor with one for each, not inf",
        ),
        ({"step": -1.0}, "the box's step is 0"),
        ({"step": "x"}, "the box's step is a finite number for all values"),
        ({"step": 0.1, "bits": 8}, "bits and step are two grids"),
        ({"lo": float("nan")}, "the box's lo is a finite number"),
        ({"lo": None}, "the box's lo is a finite number"),
        ({"lo": 1.0, "hi": 1.0}, "the box needs lo < hi"),
        ({"bits": 0}, "bits=0 is no bit depth; use 1 to 16"),
        ({"bits": 17}, "bits=17 is no bit depth"),
        ({"bits": "8"}, "bits='8' is no bit depth"),
        ({"bits": 8.5}, "bits=8.5 is no bit depth"),
        ({"bits": True}, "bits=True is no bit depth"),
    ],
)
def test_a_box_that_is_none_is_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        Box(**settings)


def test_a_model_without_values_is_refused() -> None:
    for module in (
        nn.Linear(16, 5, device="meta"),
        nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16, affine=False, device="meta")),
    ):
        with pytest.raises(
            BadModel, match="the model's weights are on the device meta, which holds shapes and no values"
        ):
            ALMA(steps=5)(module, X, LABELS)
        with pytest.raises(BadModel, match="on the device meta"):
            almakit.evaluate(module, (X, LABELS), ["ddn(steps=2)"], preflight=False)
    with pytest.raises(AlmakitError, match=r"the device 'meta' cannot be used here .*; choose --device cpu"):
        almakit.evaluate(Spy(), (X, LABELS), ["ddn(steps=2)"], preflight=False, device="meta")


def test_a_box_of_ones_own_is_named_in_the_sentence() -> None:
    with pytest.raises(BadInput, match=re.escape("outside the box [-1, 0.5]")):
        almakit.attack(Spy(), X, LABELS, box=Box(-1, 0.5))


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        ({"steps": 0}, BadInput, "steps=0: an attack needs a whole number of steps, at least 1"),
        ({"steps": 2.5}, BadInput, "steps=2.5: an attack needs a whole number"),
        ({"steps": True}, BadInput, "steps=True"),
        ({"distance": "l3"}, UnknownName, "there is no distance called 'l3'; did you mean"),
        ({"distance": "lpisp"}, UnknownName, "did you mean lpips"),
        ({"penalty": "p9"}, UnknownName, "there is no penalty called 'p9'; did you mean"),
        ({"epsilon": "large"}, BadInput, "give a positive number, 'paper' or 'scripts'"),
        ({"epsilon": -1.0}, BadInput, "epsilon=-1.0: it must be positive"),
        ({"alpha": 1.0}, BadInput, r"alpha=1.0: it must be in \[0, 1\)"),
        ({"mu": 0.0}, BadInput, "mu=0.0: it must be positive"),
        ({"gamma": 0.5}, BadInput, "gamma=0.5: it must be at least 1"),
        ({"check_steps": 0}, BadInput, "check_steps=0: it must be at least 1"),
        ({"final_step": 0.0}, BadInput, r"final_step=0.0: it must be in \(0, 1\]"),
        ({"mu": "high"}, BadInput, "ALMA cannot take mu='high'; it must be float"),
        ({"check_steps": 1.5}, BadInput, "ALMA cannot take check_steps=1.5; it must be int"),
        ({"ema": 1}, BadInput, "ALMA cannot take ema=1; it must be bool"),
        ({"rho": True}, BadInput, "ALMA cannot take rho=True; it must be float"),
    ],
)
def test_refused_when_the_attack_is_made(settings: dict[str, Any], error: type[AlmakitError], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        ALMA(**settings)


def test_an_unknown_attack_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="there is no attack called 'alma-plsu'; did you mean alma-plus"):
        almakit.attacks.get("alma-plsu")


@pytest.mark.parametrize(
    ("distance", "shape", "sentence"),
    [
        ("ssim", (3, 8, 8), "window of 11 x 11 pixels, and these images are 8 x 8"),
        ("ms-ssim", (3, 64, 64), "needs at least 177 x 177 pixels, and these are 64 x 64"),
        ("lpips", (1, 32, 32), r"colour images of shape \(B, 3, H, W\), not \(2, 1, 32, 32\)"),
        ("lpips", (3, 8, 8), "needs at least 31 x 31 pixels, and these are 8 x 8"),
        ("ciede2000", (1, 32, 32), r"needs RGB images of shape \(B, 3, H, W\), not \(2, 1, 32, 32\)"),
    ],
)
def test_distances_refuse_images_they_are_not_defined_for(distance: str, shape: tuple[int, ...], sentence: str) -> None:
    x = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
    calls: list[int] = []

    def model(images: Tensor) -> Tensor:
        calls.append(len(images))
        return images.flatten(1)[:, :3]

    with pytest.raises(BadInput, match=sentence):
        ALMA(distance=distance, steps=5)(model, x, torch.tensor([0, 0]))
    assert not calls


def after_one_call(
    model: Any, sentence: str, labels: Any = LABELS, error: type[AlmakitError] = BadModel, **options: Any
) -> None:
    with pytest.raises(error, match=sentence):
        ALMA(steps=5)(model, X, labels, **options)


def test_what_only_the_models_output_can_show() -> None:
    model = RowWise((1, 4, 4))
    after_one_call(
        model,
        r"label 7 of image 1 is not a class of this model, which has 5 \(0 to 4\)",
        torch.tensor([0, 7, 1]),
        BadInput,
    )
    after_one_call(model, "target 9 of image 2 is not a class of this model", LABELS, BadInput, targets=[1, 2, 9])
    after_one_call(
        lambda x: x, r"must return logits of shape \(batch, classes\); for 1 images it returned shape \(1, 1, 4, 4\)"
    )
    after_one_call(lambda x: x.flatten(1).sum(1), r"it returned shape \(1,\)")
    after_one_call(lambda x: x.flatten(1)[:2], r"for 3 images it returned shape \(2, 16\)")
    after_one_call(lambda x: {"scores": x}, "it returned a dict. Wrap it in a function that returns the logits alone")
    after_one_call(lambda x: x.flatten(1)[:, :1], r"the model returns a single logit; stack \(-z/2, z/2\)")
    after_one_call("resnet", "the model is a str; give a torch module or a function from images to logits")
    after_one_call(lambda x: model(x).detach(), "the model's logits carry no gradient", model.eval()(X).argmax(1))


def test_a_model_that_is_not_deterministic_is_refused() -> None:
    noise = torch.Generator().manual_seed(0)
    inner = RowWise((1, 4, 4)).eval()

    def noisy(x: Tensor) -> Tensor:
        return inner(x) + torch.randn(len(x), 5, generator=noise)

    labels = inner(X).argmax(1)
    after_one_call(
        noisy,
        "the model is not deterministic: the same image got different logits twice.*eot=16.*pass check=False",
        labels,
    )
    assert len(ALMA(steps=5)(noisy, X, labels, check=False)) == 3

    def batchwise(x: Tensor) -> Tensor:
        return inner(x - x.mean(0))

    after_one_call(batchwise, "a dependence on the rest of the batch", labels)


def test_probabilities_are_warned_about_and_attacked_all_the_same() -> None:
    inner = RowWise((1, 4, 4)).eval()
    with pytest.warns(UserWarning, match="look like probabilities.*Give the logits before the softmax"):
        result = almakit.attack(lambda x: inner(x).softmax(1), X, inner(X).argmax(1), steps=50)
    assert result.success_rate == 1.0


def test_train_mode_is_run_in_eval_mode_and_restored() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 4), nn.BatchNorm1d(4))
    model.train()
    model[2].eval()
    statistics = {name: value.clone() for name, value in model.named_buffers()}
    calm = nn.Sequential(*model).eval()
    labels = calm(X).argmax(1)
    for module, training in zip((model, *model), (True, True, True, False, True), strict=True):
        module.training = training
    result = almakit.attack(model, X, labels, steps=30)
    assert [module.training for module in (model, *model)] == [True, True, True, False, True]
    assert all(torch.equal(value, statistics[name]) for name, value in model.named_buffers())
    model.eval()
    assert bool((model(result.adversarials).argmax(1) != labels)[result.success].all()) and result.success_rate == 1


def test_no_images_give_an_empty_result() -> None:
    spy = Spy()
    result = almakit.attack(spy, X[:0], LABELS[:0])
    assert len(result) == 0 and result.adversarials.shape == (0, 1, 4, 4) and spy.calls == 0


def test_a_model_that_fails_on_one_image_or_on_channels_last_is_explained() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 3))
    x = torch.rand(3, 3, 8, 8)
    with pytest.raises(BadInput, match=r"\(3, 8, 8, 3\), whose channels are last .*give x.permute\(0, 3, 1, 2\)"):
        almakit.attack(model, x.permute(0, 2, 3, 1), LABELS)

    def two(x: Tensor) -> Tensor:
        if len(x) < 2:
            raise ValueError("expected more than 1 value per channel")
        return model(x)

    for count, options in ((3, {}), (3, {"batch_size": 1}), (1, {})):
        with pytest.raises(BadModel, match=r"batch of one image \(ValueError: expected .*\), and not on two.*: let"):
            almakit.attack(two, x[:count], LABELS[:count], **options)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="to have 3 channels"):
        almakit.attack(model, x[:, :2], LABELS)


def test_a_device_is_where_the_model_is() -> None:
    with pytest.raises(BadInput, match=r"no setting 'device': it runs where the model and the images are"):
        almakit.attack(Spy(), X, LABELS, device="cuda")


RANGES = [
    (attack, name, interval)
    for attack in registry.names("attacks")
    for interval, names in registry.get("attacks", attack).ranges.items()
    for name in names.split()
]


@pytest.mark.parametrize(("attack", "name", "interval"), RANGES)
def test_a_number_outside_the_range_of_a_setting_is_refused(attack: str, name: str, interval: str) -> None:
    kind = registry.get("attacks", attack)
    whole = "int" in str(kind.__dataclass_fields__[name].type)
    low, high = (float(end) for end in interval[1:-1].split(","))
    outside = [low - 1, *([] if interval[0] == "[" else [low])]
    outside += [] if high == float("inf") else [high + 1, *([] if interval[-1] == "]" else [high])]
    for value in outside:
        with pytest.raises(BadInput, match=f"^{name}=.*: it must be "):
            kind(**{name: int(value) if whole else value})
    if interval[0] == "[":
        needed = {"attack": almakit.PGD()} if attack == "search" else {}
        kind(**needed, **{name: int(low) if whole else low})
