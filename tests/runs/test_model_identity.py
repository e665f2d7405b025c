"""A model is its weights, its code, its preprocessing and its settings, wherever runs, transfers and certificates are
matched."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from runs.small_runs import ATTACKS, Net, images, small_run
from torch import Tensor, nn

import almakit
from almakit.cli.arguments import DONE, USAGE
from almakit.cli.main import main
from almakit.errors import BadInput
from almakit.report import board, subjects
from almakit.report.compare import compare
from almakit.runs.model import open_model
from almakit.runs.python_code import settings_sha256
from almakit.runs.spec import RunSpec
from almakit.runs.store.derived import read_transfers

FILE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.first, self.second = nn.Linear(64, 24), nn.Linear(24, 5)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.25

    def forward(self, x):
        return self.second(torch.relu(self.first(2 * x.flatten(1) - 1)))


class Rounding(Net):
    def forward(self, x):
        return super().forward(x.mean(dim=(2, 3), keepdim=True).expand_as(x))


def model():
    return Net()


def rounding():
    return Rounding()
"""


def run_of(model: str, out: Path, **settings: object) -> Path:
    small_run(out, model=model, data=images(12), attacks=ATTACKS[:1], preflight=False, **settings)
    return out


@pytest.fixture
def file(tmp_path: Path) -> Path:
    place = tmp_path / "mine.py"
    place.write_text(FILE)
    return place


def identity(model: object, **settings: object) -> str | None:
    return open_model(model, RunSpec(**settings)).model_sha256  # type: ignore[arg-type]


def two_models(one: Path, two: Path) -> None:
    """Report, board and compare tell the models of two runs apart, by label."""
    found = subjects.load([one, two])
    assert len({subject.name for subject in found}) == 2
    (table,) = board.read([one, two]).tables
    models = board.numbers(board.Board([table], []))["tables"][0]["models"]
    assert len({model["name"] for model in models}) == len({model["page"] for model in models}) == 2
    with pytest.raises(BadInput, match="weights are equal and whose code, preprocessing or settings differ"):
        compare(one, two)
    assert compare(one, two, across_models=True)["comparisons"]


@pytest.mark.parametrize(
    ("edit", "name", "settings"),
    [
        (("", ""), "rounding", {}),
        (("2 * x.flatten(1) - 1", "2 * x.flatten(1).round(decimals=1) - 1"), "model", {}),
        (("", ""), "model", {"mean": (0.1,), "std": (0.9,)}),
    ],
    ids=["another function", "edited code", "another normalisation"],
)
def test_runs_of_models_with_equal_weights_are_of_two_models(
    file: Path, tmp_path: Path, edit: tuple[str, str], name: str, settings: dict[str, Any]
) -> None:
    one = run_of(f"{file}:model", tmp_path / "a")
    file.write_text(FILE.replace(*edit) if edit[0] else FILE)
    two_models(one, run_of(f"{file}:{name}", tmp_path / "b", **settings))


def test_python_models_of_equal_weights_and_another_setting_are_two_models(tmp_path: Path) -> None:
    class Smoothed(Net):
        def __init__(self, strength: float):
            super().__init__()
            self.strength = strength

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x + self.strength * (x.mean() - x) * 0)

    for name, strength in (("a", 0.1), ("b", 0.2)):
        small_run(tmp_path / name, model=Smoothed(strength), attacks=ATTACKS[:1], data=images(12))
    two_models(tmp_path / "a", tmp_path / "b")


def test_a_copy_of_the_same_file_is_the_same_model(file: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    copy = tmp_path / "elsewhere" / "other.py"
    copy.write_text(FILE)
    assert identity(f"{file}:model") == identity(f"{copy}:model") is not None
    one, two = run_of(f"{file}:model", tmp_path / "a"), run_of(f"{copy}:model", tmp_path / "b")
    assert len(subjects.load([one, two])) == 1 and compare(one, two)["comparisons"][0]["ties"] == 12


def test_a_model_has_one_identity_by_name_and_as_an_object() -> None:
    name = "mnist/smallcnn-tiny"
    loaded = almakit.models.load(name)
    assert identity(name) == identity(loaded) is not None
    assert identity(name, mean=(0.1,), std=(0.3,)) != identity(name)
    other = almakit.models.load(name, normalisation=((0.1,), (0.3,)))
    assert identity(other) not in (identity(name), None)
    assert other.weights_sha256 == loaded.weights_sha256
    assert identity(f"{name}?output=fit") != identity(name)


def scaled(factor: float) -> Callable[[Tensor], Tensor]:
    network = Net()
    return lambda x: network(x) * factor


def shifted(x: Tensor, by: float = 0.0) -> Tensor:
    return x + by


def test_settings_of_python_models_are_seen_wherever_they_are_held() -> None:
    class Plain(nn.Module):
        LEVELS = 3

        def __init__(self, **held: object):
            super().__init__()
            self.__dict__ |= held | dict(nn.Module().__dict__)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)

        def inner(self, x: Tensor) -> Tensor:
            return x

    class Other(Plain):
        def inner(self, x: Tensor) -> Tensor:
            return x + 1

    hooked = Plain()
    hooked.register_forward_pre_hook(lambda module, x: x[0] * 2)
    models = [Plain(), Other(), hooked, scaled(1.0), scaled(2.0), partial(shifted, by=0.1), partial(shifted, by=0.2)]
    models += [Plain(sigma=1.0), Plain(sigma=2.0), Plain(kernel=torch.ones(2)), Plain(kernel=torch.zeros(2))]
    models += [Plain(sizes=[1, {"a": 2}]), Plain(sizes=[1, {"a": 3}]), nn.Dropout(0.1), nn.Dropout(0.2)]
    models += [nn.Sequential(nn.Hardtanh(-1, 1)), nn.Sequential(nn.Hardtanh(-2, 2))]
    hashes = [settings_sha256(model) for model in models]
    assert len(set(hashes)) == len(hashes)
    assert hashes == [settings_sha256(model) for model in models]
    assert settings_sha256(scaled(2.0)) == settings_sha256(scaled(2.0))


def test_counters_that_a_model_keeps_of_its_calls_are_no_settings() -> None:
    network, x = Net(), images(2)[0]
    before = identity(network)
    network(x)
    network.train()
    assert network.passes == 1 and identity(network) == before is not None
    calls = 0

    def counted(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return x

    before = settings_sha256(counted)
    counted(x)
    assert calls == 1 and settings_sha256(counted) == before


def test_transfer_asks_again_after_the_code_of_the_target_was_edited(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_of(f"{file}:model", tmp_path / "a")
    command = ["transfer", str(folder), "--model", f"{file}:model", "--json"]
    assert main(command) == DONE
    (target,), before = (made := json.loads(capsys.readouterr().out))["targets"], made["rows"][0]["cells"][0]
    assert target == f"{file}:model" and before["share"] == 1.0, "every success fools the model it was found with"
    file.write_text(FILE.replace("return self.second(", "return -self.second("))
    assert main(command) == DONE
    made = json.loads(capsys.readouterr().out)
    kept = read_transfers(folder)
    assert len(made["targets"]) == len(set(made["targets"])) == len(kept) == 2
    assert made["rows"][0]["cells"][0] != made["rows"][0]["cells"][1], "the edited model answers otherwise"
    assert main(["report", str(folder), "--out", str(tmp_path / "page"), "--no-figures"]) == DONE
    page = (tmp_path / "page" / "index.html").read_text()
    assert all(name in page for name in made["targets"])


def test_certify_refuses_another_model_of_the_same_weights(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_of(f"{file}:model", tmp_path / "a")
    other = tmp_path / "other.py"
    other.write_text(FILE.replace("2 * x.flatten(1) - 1", "0.1 * x.flatten(1)"))
    for wrong in (f"{other}:model", f"{file}:rounding"):
        assert main(["certify", str(folder), "--model", wrong, "--method", "ibp", "--quiet"]) == USAGE
        said = capsys.readouterr().err
        assert f"{wrong} is not the model of the run, {file}:model" in said
        assert "the code, preprocessing or settings of the two differ" in said
    assert not (folder / "certificates").exists()
    assert main(["certify", str(folder), "--model", f"{file}:model", "--method", "ibp", "--quiet"]) == DONE
    assert almakit.open(folder).certified["l2"]
