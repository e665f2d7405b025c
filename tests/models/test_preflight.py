"""Every finding on a model that deserves it, none on one that does not, and no trace left on either."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import almakit
from almakit import data, models
from almakit.errors import BadInput, UnknownName
from almakit.models.preflight import REMEDIES, preflight

MODEL = models.load("mnist/smallcnn-tiny")
X, LABELS = data.load("mnist-demo").tensors()


def names(model: object, x: Tensor = X, labels: Tensor = LABELS, **options: object) -> dict[str, str]:
    report = preflight(model, x, labels, **options)  # type: ignore[arg-type]
    return {finding.name: finding.severity for finding in report.findings}


def test_a_good_model_passes_with_figures() -> None:
    report = preflight(MODEL, X, LABELS)
    assert report.findings == ()
    assert report.clean_accuracy is not None and report.clean_accuracy > 0.98
    assert report.classes == 10 and report.images == 256


@pytest.mark.shared_data
@pytest.mark.parametrize(
    "name", ["mnist/smallcnn-trades", "cifar10/resnet20", "cifar10/resnet4b-adv", "cifar10/cnn-a-adv"]
)
def test_the_zoo_passes(name: str) -> None:
    model = models.load(name)
    assert model.dataset is not None
    assert names(model, *data.load(model.dataset, limit=48).tensors()) == {}


@pytest.mark.parametrize(
    ("model", "name", "severity"),
    [
        (lambda x: MODEL(x).roll(3, 1), "wrong-labels-or-range", "refuse"),
        (lambda x: MODEL(x).softmax(1), "probabilities", "warn"),
        (lambda x: MODEL(x) + 5 * torch.rand(len(x), 10), "not-deterministic", "refuse"),
        (lambda x: MODEL(x) - MODEL(x).mean(0), "batch-dependent", "refuse"),
        (lambda x: MODEL(x).detach(), "non-differentiable", "refuse"),
        (lambda x: MODEL(x.detach().requires_grad_(True)), "non-differentiable", "refuse"),
        (lambda x: MODEL((x * 255).round() / 255), "zero-gradient", "refuse"),
        (lambda x: MODEL(x.detach()) + 0.1 * x.flatten(1)[:, 300:310], "constant-gradient", "warn"),
        (lambda x: MODEL(x) + 0 * (x - x).flatten(1).norm(dim=1, keepdim=True).sqrt(), "nan-gradient", "refuse"),
        (lambda x: MODEL(x) / torch.zeros(1), "nan-logits", "refuse"),
        (lambda x: MODEL(x).squeeze(0), "batch-dependent", "refuse"),
        (lambda x: MODEL(torch.cat([x, x], 1)), "forward-fails", "refuse"),
        (lambda x: MODEL(x).argmax(1), "bad-output", "refuse"),
        (lambda x: (MODEL(x),), "bad-output", "refuse"),
        (lambda x: MODEL(x)[:, :8], "labels-outside", "refuse"),
        (lambda x: MODEL(x) * 1e4, "saturated", "note"),
        (copy.deepcopy(MODEL).to(torch.bfloat16), "low-precision", "warn"),
    ],
)
def test_each_fault_is_found(model: object, name: str, severity: str) -> None:
    assert names(model)[name] == severity


@pytest.mark.parametrize(
    "model",
    [lambda x: MODEL(x).detach().numpy(), lambda x: MODEL(x).detach(), lambda x: MODEL((x * 255).round() / 255)],
    ids=["numpy", "detached", "rounded"],
)
def test_gradients_that_nobody_needs_are_a_note(model: object) -> None:
    needed, not_needed = (preflight(model, X[:16], LABELS[:16], gradients=each) for each in (True, False))
    assert [f.severity for f in needed.findings] == ["refuse"] and [f.severity for f in not_needed.findings] == ["note"]
    assert "square" in str(needed.findings[0]) and "hopskipjump" in str(needed.findings[0])


def test_a_linear_model_has_a_constant_gradient_that_it_follows() -> None:
    linear = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    assert "constant-gradient" not in names(linear, X, linear(X).argmax(1))


def test_some_zero_gradients_warn() -> None:
    dark = (X.flatten(1).mean(1) < 0.1).reshape(-1, 1, 1, 1)
    assert bool(dark[:64].any()) and not bool(dark[:64].all())

    def partly(x: Tensor) -> Tensor:
        hide = x.flatten(1).mean(1).reshape(-1, 1, 1, 1) < 0.1
        return MODEL(torch.where(hide, x.detach(), x))

    assert names(partly) == {"zero-gradient": "warn"}


@pytest.mark.parametrize(
    "x",
    [X * 255, (X - 0.13) / 0.31, X / 255, torch.where(X > 0.5, torch.nan, X)],
    ids=["bytes", "normalised", "twice", "nan"],
)
def test_images_out_of_range_are_refused(x: Tensor) -> None:
    assert names(MODEL, x)["data-range"] == "refuse"


def test_chance_is_a_matter_of_how_many_images() -> None:
    shuffled = LABELS[torch.randperm(256, generator=torch.Generator().manual_seed(0))]
    assert "wrong-labels-or-range" in names(MODEL, X, shuffled)
    # 2 of 9 right says nothing, 90 of 256 right is not luck but weak.
    assert names(MODEL, X[:9], (LABELS[:9] + 1) % 10) == {"few-images": "note", "low-clean-accuracy": "warn"}
    mixed = torch.where(torch.arange(256) < 90, LABELS, (LABELS + 1) % 10)
    assert names(MODEL, X, mixed) == {"low-clean-accuracy": "warn"}


def test_an_unknown_name_cannot_be_allowed() -> None:
    with pytest.raises(UnknownName, match="no finding called 'everything'"):
        almakit.evaluate(MODEL, (X[:4], LABELS[:4]), "ddn(steps=2)", allow=["everything"])


def test_input_that_is_no_input() -> None:
    with pytest.raises(BadInput, match="one integer label per image"):
        preflight(MODEL, X, LABELS[:5])
    with pytest.raises(BadInput, match=r"x.float\(\) / 255"):
        preflight(MODEL, (X * 255).byte(), LABELS)


def test_every_finding_has_a_way_out_and_a_sentence() -> None:
    report = preflight(lambda x: MODEL(x).softmax(1).roll(1, 1).detach(), X * 255, LABELS)
    assert len(report.findings) >= 4
    for finding in report.findings:
        assert finding.way_out == REMEDIES[finding.name] and finding.sentence.endswith(".")
    order = [finding.severity for finding in report.findings]
    assert order == sorted(order, key=["refuse", "warn", "note"].index)


class Mixed(nn.Module):
    """Batch norm in training mode, dropout in evaluation mode, one frozen parameter, a gradient, a hook."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop, self.line = nn.BatchNorm2d(1), nn.Dropout(), nn.Linear(784, 10)
        self.train()
        self.drop.eval()
        self.line.bias.requires_grad_(False)
        self.line.weight.grad = torch.ones_like(self.line.weight)
        self.calls = 0
        self.register_forward_hook(lambda *_: setattr(self, "calls", self.calls + 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.line(self.drop(self.norm(x)).flatten(1))


def test_the_model_leaves_as_it_came() -> None:
    model = Mixed()
    state = {key: value.clone() for key, value in model.state_dict().items()}
    modes = {name: module.training for name, module in model.named_modules()}
    free = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    hooks = dict(model._forward_hooks)
    torch.manual_seed(5)
    generator = torch.get_rng_state()
    report = preflight(model, X, LABELS)
    assert "train-mode" in str(report.findings) and model.calls > 0
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert {name: module.training for name, module in model.named_modules()} == modes
    assert {name: parameter.requires_grad for name, parameter in model.named_parameters()} == free
    assert model.line.weight.grad is not None and bool((model.line.weight.grad == 1).all())
    assert model.norm.weight.grad is None
    assert dict(model._forward_hooks) == hooks
    assert torch.equal(torch.get_rng_state(), generator)


def test_the_model_leaves_as_it_came_when_it_fails() -> None:
    class Fails(Mixed):
        def forward(self, x: Tensor) -> Tensor:
            raise KeyError("not today")

    model = Fails()
    report = preflight(model, X, LABELS)
    assert report.findings[0].name == "forward-fails"
    assert "images of shape (64, 1, 28, 28) with KeyError: 'not today'" in report.findings[0].sentence
    assert model.training and model.norm.training and not model.drop.training and model.line.weight.requires_grad


def test_a_random_model_is_offered_means_over_passes_and_taken_with_them() -> None:
    """Without eot it is refused with the way out; with eot it is noted, and whether seeds hold it is said."""
    noisy = lambda x: MODEL(x) + 5 * torch.rand(len(x), 10)  # noqa: E731
    refused = preflight(noisy, X, LABELS).findings
    assert "--eot 16" in str(refused[0]) and refused[0].name == "not-deterministic"
    taken = preflight(noisy, X, LABELS, eot=8)
    assert [finding.name for finding in taken.findings] == ["random"] and "means over 8 passes" in str(taken.findings)
    secret = torch.Generator().manual_seed(0)
    elsewhere = preflight(lambda x: MODEL(x) + 5 * torch.rand(len(x), 10, generator=secret), X, LABELS, eot=8)
    assert "another run will give other numbers" in str(elsewhere.findings[0])
    assert "8 passes give the same as one" in str(preflight(MODEL, X, LABELS, eot=8).findings)


def test_a_model_without_problems_is_called_three_times() -> None:
    calls: list[int] = []

    def counted(x: Tensor) -> Tensor:
        calls.append(len(x))
        return MODEL(x)

    report = preflight(counted, X[:32], LABELS[:32])
    assert not report.findings and calls == [32, 32, 1]


@pytest.mark.parametrize(
    "model",
    [
        lambda x: MODEL(x) + torch.arange(len(x)).reshape(-1, 1) % 2 * torch.arange(10.0),
        lambda x: torch.cat([MODEL(x[:1]).roll(1, 1), MODEL(x[1:])]),
        lambda x: MODEL(x) if len(x) > 1 else MODEL(x).roll(1, 1),
        lambda x: MODEL(x - x.mean(0)),
        lambda x: MODEL(x) if len(x) > 1 else MODEL(x)[0],
    ],
    ids=["odd rows", "first row", "single image", "mean of the batch", "no batch of one"],
)
def test_every_dependence_on_the_batch_is_found(model: object) -> None:
    assert "batch-dependent" in names(model, X[:32], LABELS[:32])
