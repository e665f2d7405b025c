"""A surrogate: gradients of another model, while outputs, decisions and the verdict are the real one's."""

from __future__ import annotations

import copy
import re

import pytest
import torch
from laws.models import Counted, RowWise
from laws.samples import SAMPLES, Sample
from torch import Tensor, nn

import almakit
from almakit import attacks, registry
from almakit.core import Status, best_of
from almakit.errors import AlmakitError

ONE_EACH = {registry.canonical("attacks", sample.text.partition("(")[0]): sample for sample in SAMPLES}


class Rounded(nn.Module):
    """A defence without gradients around a network: inputs rounded to levels."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network((x * 31).round() / 31)


@pytest.mark.parametrize("sample", ONE_EACH.values(), ids=ONE_EACH)
def test_a_surrogate_that_is_the_model_changes_nothing_and_both_are_counted(sample: Sample) -> None:
    model, x, labels = sample.problem(4)
    twin = copy.deepcopy(model)
    plain = sample.attack(model, x, labels)
    real, lent = Counted(model), Counted(twin)
    result = sample.attack(model, x, labels, surrogate=twin)
    for name in ("adversarials", "distances", "forwards", "backwards", "status"):
        assert torch.equal(getattr(result, name), getattr(plain, name)), name
    assert result.surrogate_forwards is not None and plain.surrogate_forwards is None
    assert real.forwards == int(result.forwards.sum()) + result.probes and real.backwards == 0
    assert lent.forwards == int(result.surrogate_forwards.sum()) and lent.backwards == int(result.backwards.sum())
    assert bool((result.surrogate_forwards <= result.forwards).all())
    assert (lent.forwards > 0) == sample.attack.needs_gradients()


@pytest.mark.parametrize("text", ["soft-walk(steps=60)", "ddn(steps=40)", "apgd(distance=linf, epsilon=0.3)"])
@pytest.mark.parametrize("numpy", [False, True], ids=["module", "numpy"])
def test_a_defence_without_gradients_falls(text: str, numpy: bool) -> None:
    network, x, labels = ONE_EACH["ddn"].problem()
    network.train()
    real = Rounded(network)
    model = (lambda images: real(images).detach().numpy()) if numpy else real
    network.eval()
    labels = real(x).argmax(1)
    result = attacks.get(text)(model, x, labels, surrogate=network)
    assert result.success_rate == 1
    with torch.no_grad():
        assert bool((real(result.adversarials).argmax(1) != labels).all())


def test_a_surrogate_inside_the_model_is_no_stranger_and_leaves_as_it_came() -> None:
    network, x, labels = ONE_EACH["ddn"].problem()
    model = Rounded(network)
    network.train()
    model.training = False
    almakit.DDN(steps=5)(model, x, labels, surrogate=network)
    assert network.training and network.drop.training and not model.training
    assert all(parameter.requires_grad for parameter in network.parameters())


def test_random_models_and_surrogates_go_together() -> None:
    network, x, labels = ONE_EACH["ddn"].problem()

    def noisy(images: Tensor) -> Tensor:
        return network((images + 0.02 * torch.randn_like(images)).detach()).detach()

    result = almakit.DDN(steps=10)(noisy, x, labels, surrogate=network, eot=almakit.EOT(4, 20))
    assert bool((result.status == Status.SUCCESS).any()) and result.surrogate_forwards is not None
    assert torch.equal(result.surrogate_forwards % 4, torch.zeros_like(labels))


def test_mistakes_are_sentences() -> None:
    network, x, labels = ONE_EACH["ddn"].problem()
    other = RowWise((3, 5, 5), classes=7)
    with pytest.raises(AlmakitError, match=re.escape("have shape (6, 7) and the model's (6, 5)")):
        almakit.DDN(steps=5)(network, x, labels, surrogate=other)
    with pytest.raises(AlmakitError, match="the surrogate is a int"):
        almakit.DDN(steps=5)(network, x, labels, surrogate=3)  # type: ignore[arg-type]
    with pytest.raises(AlmakitError, match="carry no gradient"):
        almakit.DDN(steps=5)(network, x, labels, surrogate=lambda images: network(images).detach())


def test_results_say_what_the_surrogate_cost(tmp_path) -> None:
    model = almakit.models.load("mnist/smallcnn-tiny")
    x, labels = almakit.data.load("mnist-demo", limit=3).tensors()
    result = almakit.attack(model, x, labels, attack="ddn", steps=10, surrogate="mnist/smallcnn-tiny-ibp")
    kept = type(result).load(result.save(tmp_path / "a.safetensors"))
    assert kept.surrogate_forwards is not None and torch.equal(kept.surrogate_forwards, result.surrogate_forwards)
    assert result.to_pandas()["surrogate_forwards"].tolist() == result.surrogate_forwards.tolist()
    both = best_of([result, result]).surrogate_forwards
    assert both is not None and torch.equal(both, 2 * result.surrogate_forwards)
