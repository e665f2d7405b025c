"""Every attack, goal and distance makes its tensors on the device of its inputs: run on a pretended device, found
without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from distances.distance_samples import direction, images
from goals.aims import AIMS, Aim, X
from laws.other_device import DEVICE, OtherDevice, WrongDevice, put
from laws.samples import Sample, each_attack
from torch import Tensor

from almakit import attacks, distances, registry
from almakit.core import Box, Result, best_of
from almakit.core.oracle import EOT
from almakit.distances.base import Distance


def check_place(result: Result, success: Tensor) -> None:
    for name in ("adversarials", "distances", "status", "forwards", "backwards"):
        assert getattr(result, name).device == DEVICE, name
    assert result.success.cpu().tolist() == success.tolist()


@each_attack
def test_an_attack_stays_on_the_device(sample: Sample) -> None:
    model, x, labels = sample.problem(batch=4)
    plain = sample.attack(model, x, labels)
    with OtherDevice():
        check_place(sample.attack(put(model), put(x.clone()), labels), plain.success)


MASK = torch.ones(3, 5, 5, dtype=torch.bool).index_fill(0, torch.tensor([0]), False)
OPTIONS: dict[str, dict[str, Any]] = {
    "mask": {"box": Box(mask=MASK)},
    "bits": {"box": Box(bits=8)},
    "bounds of each value": {"box": Box(torch.zeros(3, 5, 5), torch.ones(3, 5, 5), step=torch.full((3, 5, 5), 0.0))},
    "random model": {"eot": EOT(2, votes=5)},
    "budget": {"budget": 4},
    "radius": {"stop_within": 0.3},
    "targets": {"targets": torch.tensor([1, 2, 3, 4])},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_and_the_methods_of_a_result_stay_on_the_device(name: str, tmp_path: Path) -> None:
    attack, options = attacks.get("ddn(steps=8)"), OPTIONS[name]
    model, x, _ = Sample("ddn").problem(batch=4)
    plain = attack(model, x, torch.zeros(4, dtype=torch.long), check=False, **options)
    with OtherDevice():
        result = attack(put(model), put(x.clone()), torch.zeros(4, dtype=torch.long), check=False, **options)
        check_place(result, plain.success)
        other = attack(model, x, torch.zeros(4, dtype=torch.long), check=False, surrogate=model, **options)
        check_place(result[torch.tensor([1, 0])], plain.success[[1, 0]])
        assert len(best_of([result, result])) == len(other[other.success | True]) == len(list(result)) == 4
        assert len(Result.load(result.save(tmp_path / "result"))) == 4 and repr(result) and result.curve()


@pytest.mark.parametrize("aim", AIMS, ids=lambda aim: f"{aim.name}-{aim.text}")
def test_a_goal_stays_on_the_device(aim: Aim) -> None:
    attack = attacks.get("soft-walk(steps=15)")
    plain = attack(aim.model, X, aim.labels, None, aim.goal)
    with OtherDevice():
        check_place(attack(put(aim.model), put(X.clone()), aim.labels, None, aim.goal), plain.success)
    for tensor in aim.model.parameters():
        del tensor.on_device


@pytest.mark.parametrize("name", registry.names("distances"))
def test_a_distance_stays_on_the_device(name: str) -> None:
    distance = distances.get(name)
    assert isinstance(distance, Distance)
    x = images(name, torch.float32)
    y = x + 0.02 * direction(x)
    with OtherDevice():
        bound = distance.bind(put(x))
        value, gradient = bound.value_and_grad(put(y))
        assert value.device == gradient.device == bound(y).device == DEVICE
        rows = torch.arange(2, device=x.device)
        assert bound.take(rows)(y[rows]).device == DEVICE


def test_the_pretended_device_finds_tensors_of_the_cpu() -> None:
    x = put(torch.rand(3, 4))
    with OtherDevice():
        assert x.device == DEVICE and x.sum().device == DEVICE and (x * torch.tensor(2.0)).device == DEVICE
        assert torch.zeros(3, device=x.device).device == DEVICE and torch.zeros_like(x).device == DEVICE
        assert x[torch.tensor([0, 2])].device == DEVICE and x.cpu().device.type == "cpu"
        for wrong in (
            lambda: x + torch.zeros(4),
            lambda: torch.where(torch.ones(3, 4) > 0, x, 0.0),
            lambda: x.index_select(0, torch.tensor([0])),
            lambda: x.numpy(),
            lambda: torch.cat([x, torch.zeros(1, 4)]),
        ):
            with pytest.raises(WrongDevice):
                wrong()
