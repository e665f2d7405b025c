"""Models whose answer for an image depends on its row, its batch or a query cap: what is reported holds alone."""

from __future__ import annotations

import warnings

import pytest
import torch
from laws.models import RowWise
from torch import Tensor, nn

import almakit
from almakit import Status
from almakit.bridges.attackbench import as_function
from almakit.core.oracle import probe_rows
from almakit.errors import BadModel

SHAPE = (3, 4, 4)
X = torch.rand(9, *SHAPE, generator=torch.Generator().manual_seed(0))
MODEL = RowWise(SHAPE).eval()
LABELS = MODEL(X).argmax(1)


def rolled(x: Tensor) -> Tensor:
    """The model with the logits of odd rows moved on by one class."""
    odd = (torch.arange(len(x)) % 2 == 1)[:, None]
    logits = MODEL(x)
    return torch.where(odd, logits.roll(1, 1), logits)


@pytest.mark.parametrize("count", range(2, 10))
def test_a_model_that_rolls_odd_rows_is_refused(count: int) -> None:
    assert len(probe_rows(count)) <= 3
    with pytest.raises(BadModel, match="not deterministic"):
        almakit.attack(rolled, X[:count], LABELS[:count], steps=10)


@pytest.mark.parametrize("count", range(1, 10))
@pytest.mark.parametrize("name", ["soft-walk", "ddn", "pgd(epsilon=0.3)"])
def test_no_reported_success_fails_alone(count: int, name: str) -> None:
    """The model rolls odd rows only after the probes and the clean pass, so that the re-check alone can tell."""
    calls = 0

    def later(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return rolled(x) if calls > len(probe_rows(count)) + 1 else MODEL(x)

    result = almakit.attack(later, X[:count], LABELS[:count], attack=name)
    alone = torch.cat([MODEL(image[None]).argmax(1) for image in result.adversarials]) != LABELS[:count]
    assert bool(alone[result.success].all()) and bool(result.success[:1].all())


def test_an_image_that_only_its_row_makes_wrong_is_no_success() -> None:
    def third(x: Tensor) -> Tensor:
        """Rolls the logits of row 3 in batches of nine; the probes look at rows 0, 5 and 8."""
        logits = MODEL(x)
        return logits if len(x) < 9 else torch.where((torch.arange(9) == 3)[:, None], logits.roll(1, 1), logits)

    result = almakit.attack(third, X, LABELS, steps=20)
    assert int(result.status[3]) == Status.FAILED and float(result.distances[3]) == float("inf")
    assert "fresh pass" in str(result.reasons[3]) and bool(result.success[[0, 1, 2, 4, 5, 6, 7, 8]].all())


class Capped(nn.Module):
    """AttackBench's model: each image has so many passes, later ones are answered with the true label. A backward pass
    belongs to the images of the last forward."""

    def __init__(self, cap: int):
        super().__init__()
        self.inner, self.cap = RowWise(SHAPE).eval(), cap
        self.inner.register_full_backward_hook(self.backwards)
        self.passes, self.last = torch.zeros(len(X), dtype=torch.long), torch.zeros(0, dtype=torch.long)

    def forward(self, x: Tensor) -> Tensor:
        self.last = (x.detach()[:, None] - X).flatten(2).norm(dim=2).argmin(1)
        answered = self.passes[self.last] < self.cap
        self.passes[self.last] += answered.long()
        truth = nn.functional.one_hot(LABELS[self.last], 5).to(x) * 5
        return torch.where(answered[:, None], self.inner(x), truth)

    def backwards(self, module: nn.Module, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> None:
        assert len(outputs[0]) == len(self.last), "another forward came between this backward and its own"
        self.passes[self.last] += 1


@pytest.mark.parametrize("name", ["soft-walk(steps=200)", "ddn(steps=200)", "fmn(steps=200)"])
def test_a_query_cap_keeps_what_was_found(name: str) -> None:
    found = as_function(name)(model=Capped(60), inputs=X, labels=LABELS, targeted=False, targets=None)
    assert bool((MODEL(found).argmax(1) != LABELS).all())


def test_no_probe_comes_between_a_forward_and_its_backward() -> None:
    assert bool(almakit.attack(Capped(10_000), X, LABELS, attack="ddn", steps=10).success.all())


def test_labels_off_by_one_are_warned_about() -> None:
    with pytest.warns(UserWarning, match=r"9 of 9 images are already wrong before the attack"):
        almakit.attack(MODEL, X, (LABELS + 1) % 5, steps=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        almakit.attack(MODEL, X, LABELS, steps=5)


def test_an_evaluation_warns_and_its_table_shows_it() -> None:
    model, (x, labels) = almakit.models.load("mnist/smallcnn-tiny"), almakit.data.load("mnist-demo", limit=16).tensors()
    with pytest.warns(UserWarning, match="probabilities: The outputs are probabilities"):
        run = almakit.evaluate(nn.Sequential(model, nn.Softmax(1)), (x, labels), "ddn(steps=5)")
    assert "Preflight, probabilities: The outputs are probabilities" in run.table()
    with pytest.warns(UserWarning, match="low-clean-accuracy: 0 of 4 clean images"):
        run = almakit.evaluate(model, (x[:4], (labels[:4] + 1) % 10), "ddn(steps=5)")
    assert "Preflight, low-clean-accuracy: 0 of 4" in run.table()
    with pytest.warns(UserWarning, match="wrong-labels-or-range: 0 of 16 clean images"):
        run = almakit.evaluate(model, (x, (labels + 1) % 10), "ddn(steps=5)", allow=["wrong-labels-or-range"])
    assert "Preflight, wrong-labels-or-range: 0 of 16" in run.table()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert "Preflight" not in almakit.evaluate(model, (x, labels), "ddn(steps=5)").table()


def test_preflight_refuses_a_model_that_rolls_odd_rows() -> None:
    with pytest.raises(almakit.AlmakitError, match="batch-dependent"):
        almakit.evaluate(rolled, (X.expand(-1, 3, 4, 4), LABELS), "ddn(steps=5)", allow=["wrong-labels-or-range"])
