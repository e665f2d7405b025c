"""Runs of tables and of values with a box of their own: units, verdict, verify, resume, shards, workers, the page."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import almakit
from almakit import Box, evaluate
from almakit.cli.main import main
from almakit.errors import BadInput
from almakit.runs.export import export_png
from almakit.runs.failures import SpecChanged
from almakit.runs.merge import merge
from almakit.runs.model import open_model
from almakit.runs.verdict import judge
from almakit.runs.verify import verify_run

SOURCE = """
import torch
from torch import nn


class Credit(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.02, 0.001, -0.3, 0.0]))

    def forward(self, people):
        age = people[:, 0].detach()
        if not bool((age == age.round()).all()) or float(people[:, 1].detach().max()) < 200:
            raise ValueError("people are asked about in other units than the table's")
        score = people @ self.weight - 1.7
        return torch.stack([-score, score], 1)


def build():
    return Credit()
"""
ATTACKS = ["soft-walk(distance=l1, steps=30)", "fmn(distance=linf, steps=30)"]


@pytest.fixture
def people(tmp_path: Path) -> tuple[str, str]:
    """A model file and the URI of a table it is right about."""
    draw, lines = random.Random(0), ["age,income,debt,sex,granted"]
    for _ in range(24):
        age, income, debt, sex = draw.randint(18, 80), draw.uniform(200, 2500), draw.uniform(0, 4), draw.randint(0, 1)
        lines.append(f"{age},{income:.2f},{debt:.3f},{sex},{int(0.02 * age + 0.001 * income - 0.3 * debt > 1.7)}")
    (tmp_path / "people.csv").write_text("\n".join(lines))
    (tmp_path / "credit.py").write_text(SOURCE)
    table = f"table:{tmp_path / 'people.csv'}?label=granted&fixed=sex&integer=age"
    return f"{tmp_path / 'credit.py'}:build", table


def found_in(run: almakit.Run, attack: int) -> tuple[np.ndarray, np.ndarray]:
    """Clean rows and what an attack made of them, in the table's units."""
    features, records = run.features, run.records_of(attack)
    assert features is not None
    clean = features.own(run.originals([record.image for record in records]))
    return clean, features.own(run.adversarials(records))


def test_a_table_is_attacked_in_its_units_judged_verified_and_shown(people: tuple[str, str], tmp_path: Path) -> None:
    model, table = people
    run = evaluate(model, table, ATTACKS, tmp_path / "run", batch_size=8)
    assert run.features is not None and run.features.names == ("age", "income", "debt", "sex")
    for attack, distance in enumerate(("l1", "linf")):
        clean, points = found_in(run, attack)
        assert np.array_equal(clean[:, 3], points[:, 3]) and np.array_equal(points[:, 0], np.rint(points[:, 0]))
        assert (points >= run.features.lo - 1e-6).all() and (points <= run.features.hi + 1e-6).all()
        score = points @ np.array([0.02, 0.001, -0.3, 0.0]) - 1.7
        labels = np.array([run.images[record.image].label for record in run.records_of(attack)])
        assert ((score > 0) != labels).all() and all(record.fooled for record in run.records_of(attack))
        scaled = np.abs(points - clean) / run.features.sides
        measured = [record.measures[distance] for record in run.records_of(attack)]
        assert np.allclose(scaled.sum(1) if distance == "l1" else scaled.max(1), measured, rtol=1e-4, atol=1e-5)
    assert verify_run(run, open_model(model, run.spec)).good
    page = run.report(figures=False).read_text()
    assert "Features" in page and "income" in page and "features change in the mean" in page
    shown = page.partition('id="report-data"')[0].partition("<body>")[2]
    assert "8 bits" not in shown and 'id="explore"' not in shown and "8-bit" not in run.table()
    assert json.loads(page.split('id="report-data">')[1].split("</script>")[0])["gallery"] == []
    with pytest.raises(BadInput, match="cannot be PNG files"):
        export_png(run, tmp_path / "png")
    assert run.to_pandas().shape[0] == 48


def test_the_smallest_change_of_a_table_is_found(people: tuple[str, str]) -> None:
    """With one feature free the smallest change is known: |score| over the slope per width of income's range."""
    model, table = people
    run = evaluate(model, table.replace("fixed=sex&integer=age", "fixed=sex,age,debt"), ATTACKS[:1])
    features, slope = run.features, np.array([0.02, 0.001, -0.3, 0.0])
    assert features is not None
    clean = features.own(run.originals())
    score = clean @ slope - 1.7
    room = np.where(score > 0, clean[:, 1] - features.lo[1], features.hi[1] - clean[:, 1])
    for record, need, most in zip(run.records_of(0), np.abs(score) / 0.001, room, strict=True):
        if need > most:
            assert record.status == "failed"
        else:
            assert 1 - 1e-3 <= record.verified * features.sides[1] / need <= 1.01


def test_resume_shards_and_changed_ranges(people: tuple[str, str], tmp_path: Path) -> None:
    model, table = people
    whole = evaluate(model, table, ATTACKS, tmp_path / "whole", batch_size=8)
    again = evaluate(model, table, ATTACKS, tmp_path / "whole", batch_size=8)
    for number in range(2):
        evaluate(model, table, ATTACKS, tmp_path / "parts", batch_size=8, shard=(number, 2))
    merge([tmp_path / "parts"])
    parts = almakit.open(tmp_path / "parts")
    for other in (again, parts):
        assert [record.distance for record in other.records] == [record.distance for record in whole.records]
        assert other.features is not None and whole.features is not None
        assert other.features.to_json() == whole.features.to_json()
    assert json.loads(whole.meta["features"])["names"] == ["age", "income", "debt", "sex"]
    csv = Path(table.removeprefix("table:").partition("?")[0])
    csv.write_text(csv.read_text().replace(",debt,", ",debts,"))
    with pytest.raises(SpecChanged, match="the features of"):
        evaluate(model, table, ATTACKS, tmp_path / "whole", batch_size=8)


def test_the_command_line_runs_and_verifies_a_table(
    people: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, table = people
    out = str(tmp_path / "run")
    assert main(["run", "--model", model, "--data", table, "--attack", "ddn(steps=10)", "--out", out]) == 0
    assert main(["verify", out, "--model", model]) == 0
    assert "Every claimed success fools the model" in capsys.readouterr().out
    assert main(["doctor", "--model", model, "--data", table]) == 0
    assert "24 images of shape (4,)" in capsys.readouterr().out
    refused = ["run", "--model", model, "--data", table, "--attack", "ddn(steps=10)", "--bits", "8"]
    assert main([*refused, "--out", str(tmp_path / "bits")]) == 1
    assert "bits is the grid of image files" in capsys.readouterr().err


def test_the_verdict_refuses_what_leaves_the_grid_or_moves_what_is_fixed(people: tuple[str, str]) -> None:
    model, table = people
    run = evaluate(model, table, ATTACKS[1:], batch_size=24)
    assert run.features is not None
    subject = open_model(model, run.spec).with_features(run.features)
    records = run.records_of(0)
    x, points = torch.from_numpy(run.originals()), torch.from_numpy(run.adversarials(records))
    labels = [info.label for info in run.images]
    assert all(found.fooled for found in judge(subject, x, points, labels, None, "linf", None, 8))
    for column, by in ((3, 0.5), (0, 0.25 / float(run.features.sides[0]))):  # the fixed sex, a quarter of a year
        moved = points.clone()
        moved[:, column] += torch.where(moved[:, column] > 0.5, -by, by)
        assert not any(found.fooled for found in judge(subject, x, moved, labels, None, "linf", None, 8))


class Loud(nn.Module):
    """Two classes of sounds (B, 2, 16) in [-1, 1]: is the first channel louder on the whole?"""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(1))

    def forward(self, sound: Tensor) -> Tensor:
        assert sound.shape[1:] == (2, 16)
        loud = self.gain * (sound[:, 0].sum(1) - sound[:, 1].sum(1))
        return torch.stack([-loud, loud], 1)


def test_sounds_and_vectors_from_python(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    sound = 2 * torch.rand(12, 2, 16, generator=generator) - 1
    labels = Loud()(sound).argmax(1)
    run = evaluate(Loud(), (sound, labels), "ddn(steps=20)", tmp_path / "run", box=Box(-1, 1))
    assert run.features is not None and run.features.lo.shape == (2, 16) and run.originals().shape == (12, 2, 16)
    best = (sound[:, 0].sum(1) - sound[:, 1].sum(1)).abs() / 32**0.5 / 2  # in widths of [-1, 1]
    distances = torch.tensor([record.verified for record in run.records_of(0)])
    assert bool((distances >= best - 1e-4).all()) and bool((distances <= 1.05 * best + 1e-3).all())
    assert "value 0, 0" in run.report(figures=False).read_text()
    with pytest.raises(SpecChanged, match="features of"):
        evaluate(Loud(), (sound / 2, labels), "ddn(steps=20)", tmp_path / "run", box=Box(-0.5, 0.5))
    vectors = torch.rand(16, 5, generator=generator)
    linear = nn.Linear(5, 3)
    plain = evaluate(linear, (vectors, linear(vectors).argmax(1)), "ddn(steps=10)", preflight=False)
    assert plain.originals().shape == (16, 5)
    with pytest.raises(BadInput, match="needs RGB images"):
        evaluate(linear, (vectors, linear(vectors).argmax(1)), "alma(distance=ciede2000, steps=10)", preflight=False)
    np.savez(tmp_path / "sound.npz", x=sound.numpy(), y=labels.numpy(), lo=-1.0, hi=1.0)
    held = evaluate(Loud(), f"npz:{tmp_path / 'sound.npz'}", "ddn(steps=20)")
    assert [record.distance for record in held.records] == [record.distance for record in run.records]


def test_features_that_somebody_altered_end_in_a_sentence(people: tuple[str, str], tmp_path: Path) -> None:
    run = almakit.open(evaluate(*people, ATTACKS[1:], tmp_path / "run", limit=4, preflight=False).folder)
    run.meta["features"] = '{"shape": [4], "lo": "low"}'
    with pytest.raises(BadInput, match="the recorded features cannot be read"):
        assert run.features
