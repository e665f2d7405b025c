"""Runs that stop each image once it is broken within a radius."""

from __future__ import annotations

import math

import pytest
import torch
from runs.small_runs import Net, contents, images, small_run, source_file

from almakit import attack
from almakit.cli.main import main
from almakit.core.oracle import steady
from almakit.errors import BadInput
from almakit.runs.failures import SpecChanged
from almakit.runs.folder import RunFolder
from almakit.runs.spec import RunSpec

RADII = {"l2": 0.3, "linf": "8/255"}
ATTACKS = ["alma(distance=l2, steps=12)", "fmn(distance=linf, steps=12)", "alma(distance=l1, steps=12)"]


def test_a_run_stops_each_attack_at_its_distance_s_radius_and_resumes(tmp_path):
    whole = small_run(tmp_path / "whole", attacks=ATTACKS)
    run = small_run(tmp_path / "run", attacks=ATTACKS, stop_within=RADII)
    x, labels = images()
    for index, (text, radius) in enumerate(zip(ATTACKS, (0.3, "8/255", None), strict=True)):
        parts = [
            attack(
                steady(Net(), x.device), x[i : i + 8], labels[i : i + 8], attack=text, check=False, stop_within=radius
            )
            for i in range(0, 40, 8)
        ]
        records, before = run.records_of(index), whole.records_of(index)
        assert [r.distance for r in records] == torch.cat([p.distances for p in parts]).double().tolist()
        assert [r.forwards for r in records] == torch.cat([p.forwards for p in parts]).tolist()
        saved = sum(r.forwards for r in before) - sum(r.forwards for r in records)
        assert saved > 0 if radius else saved == 0
    for radius in ("l2", 0.3), ("linf", 8 / 255):
        assert run.robust_accuracy(dict([radius])) == whole.robust_accuracy(dict([radius]))
    assert RunSpec.from_toml(tmp_path / "run" / "run.toml").stop_within == ("l2=0.3", "linf=8/255")
    assert "stopped within l2=0.3, linf=8/255 (says nothing of smaller radii)" in run.summary["run"]["threat_model"]
    stored = contents(tmp_path / "run")
    small_run(tmp_path / "run", attacks=ATTACKS, stop_within=RADII)
    assert contents(tmp_path / "run") == stored
    with pytest.raises(SpecChanged, match="stop_within is not given now and was"):
        small_run(tmp_path / "run", attacks=ATTACKS)


def test_the_command_line_takes_a_radius_for_each_distance(tmp_path, capsys):
    path = source_file(tmp_path)
    base = ["run", "--model", f"{path}:model", "--data", f"{path}:data", "--quiet", "--attack", "ddn(steps=8)"]
    assert main([*base, "--out", str(tmp_path / "a"), "--stop-within", "l2=0.3"]) == 0
    run = RunFolder(tmp_path / "a")
    assert run.spec.stop_within == ("l2=0.3",) and max(record.forwards for record in run.records) <= 9
    assert main([*base, "--out", str(tmp_path / "b"), "--stop-within", "linf=8/255"]) == 2
    assert "stop_within is given for linf" in capsys.readouterr().err


def test_a_result_says_nothing_of_radii_below_the_one_it_stopped_at():
    x, labels = images()
    whole = attack(Net(), x, labels, attack="ddn", steps=12)
    result = attack(Net(), x, labels, attack="ddn", steps=12, stop_within="1/4")
    assert result.stop_within == 0.25 and math.isnan(result.robust_accuracy(0.2))
    assert [eps for eps, _ in result.curve()][:2] == [0.0, 0.25]
    for eps in (0, 0.25, 0.4, 2):
        assert result.robust_accuracy(eps) == whole.robust_accuracy(eps)


@pytest.mark.parametrize("wrong", ["linf", -1, float("nan"), "l2=0.3,0.4", True])
def test_a_radius_that_is_none_is_refused(wrong):
    x, labels = images(4)
    with pytest.raises(BadInput, match="stop_within"):
        attack(Net(), x, labels, attack="ddn", steps=3, stop_within=wrong)
    with pytest.raises(BadInput, match="stop_within"):
        RunSpec(stop_within=wrong)
