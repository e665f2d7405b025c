"""What makes attacks fast must not change what they find: layouts, fixed batches, graphs, and steps that never wait for
the device."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from laws.models import RowWise
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from almakit import ALMA, attacks
from almakit.core import Problem
from almakit.core.attack import default_batch_size
from almakit.core.model import CHANNELS_LAST, CONTIGUOUS, FixedBatch, Graphed, accelerated, faster_layout, laid_out
from almakit.core.problem import Best
from almakit.core.steps import choose, first_step, largest_entry
from almakit.errors import BadInput, BadModel, Unavailable

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


# Layouts.


def test_weights_come_back_as_the_very_tensors_they_were() -> None:
    model = convolutional()
    before = [(parameter.data_ptr(), parameter.stride(), parameter.clone()) for parameter in model.parameters()]
    with pytest.raises(KeyError), laid_out(model, CHANNELS_LAST):
        assert model[0].weight.is_contiguous(memory_format=torch.channels_last) and not model[0].weight.is_contiguous()
        assert torch.equal(model[0].weight, before[0][2])
        raise KeyError
    for parameter, (place, stride, values) in zip(model.parameters(), before, strict=True):
        assert parameter.data_ptr() == place and parameter.stride() == stride and torch.equal(parameter, values)


def test_another_layout_changes_nothing_but_rounding() -> None:
    model, seen = convolutional(), []
    labels = classes(model)
    model[0].register_forward_hook(lambda module, inputs, output: seen.append(module.weight.is_contiguous()))
    plain = ALMA(steps=15)(model, X, labels)
    assert all(seen)
    seen.clear()
    other = ALMA(steps=15)(model, X, labels, layout=CHANNELS_LAST)
    assert not any(seen) and model[0].weight.is_contiguous()
    assert torch.equal(other.success, plain.success) and bool(plain.success.all())
    assert float((other.distances / plain.distances).nan_to_num(1.0).sub(1).abs().median()) < 1e-3
    assert other.adversarials.is_contiguous()
    seen.clear()
    ALMA(steps=3)(model, X, labels, layout="auto")
    assert len(set(seen[-3:])) == 1, "the choice is made once"


def test_a_layout_that_does_not_exist_is_refused() -> None:
    model = convolutional()
    with pytest.raises(BadInput, match="layout='nhwc': choose auto, contiguous, channels_last"):
        ALMA(steps=3)(model, X, classes(model), layout="nhwc")
    with pytest.raises(BadInput, match="accelerate='fast'"):
        ALMA(steps=3)(model, X, classes(model), accelerate="fast")


def test_models_without_convolutions_keep_their_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    assert faster_layout(RowWise(SHAPE).eval(), X) == CONTIGUOUS
    assert faster_layout(lambda x: x.flatten(1)[:, :4], X) == CONTIGUOUS

    def seconds(model: nn.Module, x: Tensor, gain: float) -> float:
        return 1.0 if model[0].weight.is_contiguous() else gain

    for gain, layout in ((0.9, CHANNELS_LAST), (0.97, CONTIGUOUS), (1.2, CONTIGUOUS)):
        monkeypatch.setattr(
            "almakit.core.model.layout.pass_seconds", lambda model, x, gain=gain: seconds(model, x, gain)
        )
        assert faster_layout(convolutional(), X) == layout


def test_large_images_go_in_small_batches() -> None:
    assert default_batch_size(torch.empty(1, 1, 28, 28)) == 128
    assert default_batch_size(torch.empty(1, 3, 224, 224)) == 8
    assert default_batch_size(torch.empty(1, 3, 2000, 2000)) == 1


# Batches of one size, compiled programs, recorded graphs.


def test_fixed_batches_fill_up_and_agree() -> None:
    model, sizes = RowWise(SHAPE).eval(), []

    def fast(x: Tensor) -> Tensor:
        sizes.append(len(x))
        return model(x)

    fixed = FixedBatch(model, fast, 6)
    for count, expected in ((6, [6]), (4, [6]), (3, [6]), (2, []), (9, [])):
        sizes.clear()
        leaf, same = X[:count].clone().requires_grad_(True), X[:count].clone().requires_grad_(True)
        logits = fixed(leaf)
        assert sizes == expected and torch.equal(logits, model(same))
        ours, theirs = (torch.autograd.grad(z.square().sum(), at)[0] for z, at in ((logits, leaf), (model(same), same)))
        assert torch.equal(ours, theirs)


def test_a_compiled_model_finds_the_same() -> None:
    model = convolutional()
    labels = classes(model)
    fixed = accelerated(model, "compile", 9, torch.device("cpu"), backend="aot_eager")
    plain, other = ALMA(steps=10)(model, X, labels), ALMA(steps=10)(fixed, X, labels)
    assert torch.equal(other.success, plain.success) and bool(plain.success.any())
    assert float((other.distances / plain.distances).nan_to_num(1.0).sub(1).abs().median()) < 1e-3


def test_a_graph_refuses_a_gradient_that_it_has_overwritten() -> None:
    model = RowWise(SHAPE).eval()
    recorded = []

    def record(inner: Any, x: Tensor) -> Any:
        recorded.append(tuple(x.shape))
        return inner

    graphed = Graphed(model, record)
    leaf = X.clone().requires_grad_(True)
    first = graphed(leaf)
    assert torch.equal(torch.autograd.grad(first.sum(), leaf)[0], torch.autograd.grad(model(leaf).sum(), leaf)[0])
    first = graphed(leaf)
    graphed(leaf)
    with pytest.raises(BadModel, match="accelerate='none'"):
        torch.autograd.grad(first.sum(), leaf)
    assert recorded == [tuple(X.shape)], "recorded once"
    result = ALMA(steps=8)(FixedBatch(model, Graphed(model, record), 9), X, classes(model))
    assert torch.equal(result.adversarials, ALMA(steps=8)(model, X, classes(model)).adversarials)


def test_graphs_need_cuda() -> None:
    model = convolutional()
    with pytest.raises(Unavailable, match="records CUDA graphs, and the model is on cpu"):
        ALMA(steps=3)(model, X, classes(model), accelerate="graph")


# Steps that never wait for the device.


class Waits(TorchDispatchMode):
    """Counts the operations whose answer Python has to wait for on a device."""

    NAMES = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "item", "masked_select", "unique")

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        if name in self.NAMES or (
            name == "index" and any(index is not None and index.dtype == torch.bool for index in args[1])
        ):
            self.seen[name] += 1
        return function(*args, **(kwargs or {}))


@pytest.fixture
def without_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Problems that do as they do on a GPU."""
    made = Problem.__init__

    def blind(self: Problem, *args: Any, **options: Any) -> None:
        made(self, *args, **options)
        self._looks, self._best = False, Best.nothing(self.x, look=False)

    monkeypatch.setattr(Problem, "__init__", blind)


@pytest.mark.parametrize(
    "text",
    ["alma(distance=l2, steps={})", "alma(distance=l1, steps={})", "ddn(steps={})", "fmn(distance=l2, steps={})"],
)
def test_no_step_waits_for_the_device(text: str, without_looking: None) -> None:
    model = RowWise(SHAPE).eval()
    labels, counts = classes(model), []
    for steps in (6, 26):
        with Waits() as waits:
            attacks.get(text.format(steps))(model, X, labels, check=False)
        counts.append(waits.seen)
    # Fewer is fine: reasons are looked up for images that fewer steps did not find.
    assert all(counts[1][name] <= counts[0][name] for name in Waits.NAMES) and counts[1]["index"] <= counts[0]["index"]


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


def test_choose_agrees_with_where() -> None:
    a, b = X, X.flip(0)
    for marks in (torch.zeros(9, dtype=torch.bool), torch.ones(9, dtype=torch.bool), torch.arange(9) % 3 == 0):
        expected = torch.where(marks[:, None, None, None], a, b)
        assert torch.equal(choose(marks, a, b, True), expected) and torch.equal(choose(marks, a, b, False), expected)


def test_largest_entry_is_that_of_absolute_values() -> None:
    values = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(0))
    values[3] = 0
    values[4, 0, 0] = float("nan")
    found, expected = largest_entry(values), values.abs().flatten(1).amax(1)
    assert torch.equal(found[:4], expected[:4]) and bool(found[4].isnan())


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
