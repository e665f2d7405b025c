"""Run folders of an older almakit: a setting it did not have leaves them as they are, as long as it has its default."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from runs.small_runs import Net

from almakit import evaluate
from almakit.runs.failures import SpecChanged
from almakit.runs.resume import as_written_now, continue_in
from almakit.runs.spec import RunSpec
from almakit.runs.store import Store
from almakit.runs.store.records import AttackInfo


def _go(text: str, folder: Path) -> None:
    """A small run of the attack into the folder, or going on in it."""
    x = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    model = Net().eval()
    evaluate(model, (x, model(x).argmax(1)), text, folder, batch_size=4, preflight=False)


def _stored_as(monkeypatch: pytest.MonkeyPatch, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """The settings of attacks as an older almakit stored them."""
    stored = Store.attacks

    def older(self: Store) -> list[AttackInfo]:
        return [replace(info, settings=change(info.settings)) for info in stored(self)]

    monkeypatch.setattr(Store, "attacks", older)


def test_a_setting_that_came_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _go("fmn(distance=l2, steps=4)", tmp_path)
    _stored_as(monkeypatch, lambda settings: {name: settings[name] for name in settings if name != "overshoot"})
    _go("fmn(distance=l2, steps=4)", tmp_path)


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("search(attack=apgd(distance=l2, steps=3), halvings=2)", "attack.loss"),
        ("ensemble(attacks=[ddn(steps=2), apgd(distance=l2, steps=2, epsilon=1)])", "attacks.1.loss"),
    ],
)
def test_a_default_inside_another_attack_is_held_to_as_well(
    text: str, inside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plain(value: Any) -> Any:
        several = isinstance(value, list)
        return [plain(one) for one in value] if several else value["attack"] if isinstance(value, dict) else value

    _go(text, tmp_path)
    with monkeypatch.context() as patch:
        _stored_as(patch, lambda settings: json.loads(json.dumps(settings).replace('"margin"', '"dlr"')))
        with pytest.raises(SpecChanged, match=f"now runs with {inside}=margin and ran with {inside}=dlr"):
            _go(text, tmp_path)
    _stored_as(monkeypatch, lambda settings: {name: plain(value) for name, value in settings.items()})  # as texts
    _go(text, tmp_path)


def test_an_attack_that_was_written_otherwise_goes_on(tmp_path: Path) -> None:
    recorded = RunSpec(model="python:Net", data="python:arrays", attacks=("ead(distance=l1, steps=4)",), batch_size=4)
    (tmp_path / "run.toml").write_text(recorded.to_toml())
    spec, found = continue_in(replace(recorded, attacks=("ead(steps=4)",)), tmp_path)
    assert found == recorded and spec.sha256 == recorded.sha256, "as an older almakit wrote it"
    with pytest.raises(SpecChanged):
        continue_in(replace(recorded, attacks=("ead(steps=5)",)), tmp_path)
    assert as_written_now("foreign.py:attack(steps=4)") is None, "code beside a found file is not run"
